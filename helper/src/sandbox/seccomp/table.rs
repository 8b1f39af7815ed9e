//! The allow-list: which system call, with which arguments, and why.
//!
//! Two tests hold it to the truth: a traced run of the helper's scenarios must use every [`Usage::Always`] entry and
//! nothing outside the list, and each [`Usage::Conditional`] entry has a forced case that uses it.
//!
//! It is made for glibc, dynamic and static, for musl, and for the standard library that rust-toolchain.toml pins. Not on the list, and
//! so the end of the process: execve, fork, clone, ptrace, mount, bpf, keyctl, setuid, prctl, kill, socket, connect, bind,
//! mprotect, ioctl, and every mapping that is executable or of a file.

use super::entry::{Allowed, Argument, Force, Usage, Value};

const ANY: &[&[Argument]] = &[];

const fn arg(index: u8, value: Value) -> Argument {
    Argument { index, value }
}

/// A constant of libc as the 32 bits that the kernel compares. None of those used here is negative.
#[allow(clippy::cast_sign_loss)]
const fn bits(value: libc::c_int) -> u32 {
    value as u32
}

/// No executable memory, and none of a file.
const PLAIN_MEMORY: &[&[Argument]] = &[&[
    arg(2, Value::Without(bits(libc::PROT_EXEC))),
    arg(3, Value::With(bits(libc::MAP_ANONYMOUS))),
]];

/// Who is at the other end.
const PEER_QUESTIONS: &[&[Argument]] = &[
    &[
        arg(1, Value::Is(bits(libc::SOL_SOCKET))),
        arg(2, Value::Is(bits(libc::SO_PEERCRED))),
    ],
    &[
        arg(1, Value::Is(bits(libc::SOL_SOCKET))),
        arg(2, Value::Is(bits(libc::SO_PEERPIDFD))),
    ],
];

const DESCRIPTOR_FLAGS: &[&[Argument]] = &[
    &[arg(1, Value::Is(bits(libc::F_GETFL)))],
    &[arg(1, Value::Is(bits(libc::F_SETFL)))],
    &[arg(1, Value::Is(bits(libc::F_GETFD)))],
    &[arg(1, Value::Is(bits(libc::F_SETFD)))],
    &[arg(1, Value::Is(bits(libc::F_DUPFD_CLOEXEC)))],
];

/// A signal to a thread of this process and to nobody else.
const TO_ITSELF: &[&[Argument]] = &[&[arg(0, Value::OwnPid)]];

/// One entry a line: its name and number, when it is allowed, its usage and its reason.
macro_rules! calls {
    ($($(#[$attribute:meta])* $call:ident = $number:ident, $when:expr, $usage:expr, $reason:literal;)*) => {
        vec![$(
            $(#[$attribute])*
            Allowed {
                name: stringify!($call),
                number: libc::$number as i64,
                when: $when,
                usage: $usage,
                reason: $reason,
            },
        )*]
    };
}

/// The list for this architecture.
#[must_use]
pub fn table() -> Vec<Allowed> {
    let mut table = serving();
    table.extend(waiting());
    table.extend(memory());
    table.extend(ending());
    table.extend(libc_specific());
    table
}

/// Clients, the cgroup tree and /proc.
fn serving() -> Vec<Allowed> {
    use Usage::Always;
    calls! {
        accept4 = SYS_accept4, ANY, Always, "take a client";
        close = SYS_close, ANY, Always, "every descriptor's end";
        fcntl = SYS_fcntl, DESCRIPTOR_FLAGS, Always, "opendir(3) asks for the flags; duplicating a descriptor";
        fgetxattr = SYS_fgetxattr, ANY, Always, "what a leaf remembers of its session";
        fsetxattr = SYS_fsetxattr, ANY, Always, "the same, written";
        fremovexattr = SYS_fremovexattr, ANY, Always, "a hold, a lease or a freeze flag that is over";
        fstatfs = SYS_fstatfs, ANY, Always, "a directory must be of cgroup2";
        getpid = SYS_getpid, ANY, Always, "the helper itself is never moved; abort(3)";
        getdents64 = SYS_getdents64, ANY, Always, "list leaves and what lies beneath them";
        getrandom = SYS_getrandom, ANY, Always, "nonces; seeds of hash tables";
        getsockopt = SYS_getsockopt, PEER_QUESTIONS, Always, "who is asking";
        lseek = SYS_lseek, ANY, Always, "read a file or a directory again from its start";
        mkdirat = SYS_mkdirat, ANY, Always, "make a leaf";
        name_to_handle_at = SYS_name_to_handle_at, ANY, Always, "a cgroup's id, from its opened directory";
        newfstatat = SYS_newfstatat, ANY, Always, "owner and kind of what was opened (fstat(3))";
        openat = SYS_openat, ANY, Always, "control files, /proc; landlock decides which";
        openat2 = SYS_openat2, ANY, Always, "paths beneath a directory, without links; landlock decides which";
        read = SYS_read, ANY, Always, "control files, /proc, events";
        recvmsg = SYS_recvmsg, ANY, Always, "requests";
        sendmsg = SYS_sendmsg, ANY, Always, "replies, and the descriptor of a leaf's events";
        unlinkat = SYS_unlinkat, ANY, Always, "remove a leaf, and the socket at the end";
        write = SYS_write, ANY, Always, "control files, the log";
    }
}

/// The one loop. aarch64 and riscv64 have neither poll nor epoll_wait: the C library takes the newer calls there.
fn waiting() -> Vec<Allowed> {
    use Usage::{Always, Conditional};
    calls! {
        epoll_ctl = SYS_epoll_ctl, ANY, Always, "clients come and go";
        #[cfg(target_arch = "x86_64")]
        epoll_wait = SYS_epoll_wait, ANY, Always, "wait for the next event";
        #[cfg(not(target_arch = "x86_64"))]
        epoll_pwait = SYS_epoll_pwait, ANY, Always, "wait for the next event";
        #[cfg(target_arch = "x86_64")]
        poll = SYS_poll, ANY, Always, "is that pidfd's process alive?";
        #[cfg(not(target_arch = "x86_64"))]
        ppoll = SYS_ppoll, ANY, Always, "is that pidfd's process alive?";
        restart_syscall = SYS_restart_syscall, ANY, Conditional(Force::StopAndContinue), "the kernel goes on with an interrupted poll";
        clock_gettime = SYS_clock_gettime, ANY, Conditional(Force::NoVdsoClock), "where the vdso cannot tell the time without a call";
    }
}

/// The allocator. No mprotect: nothing becomes executable, and nothing that was protected is opened.
fn memory() -> Vec<Allowed> {
    use Usage::Conditional;
    calls! {
        brk = SYS_brk, ANY, Conditional(Force::HeapGrowth), "the heap grows and shrinks";
        mmap = SYS_mmap, PLAIN_MEMORY, Conditional(Force::BigAllocation), "an allocation above the threshold";
        mremap = SYS_mremap, ANY, Conditional(Force::BigAllocation), "such an allocation grows";
        munmap = SYS_munmap, ANY, Conditional(Force::BigAllocation), "such an allocation is freed";
    }
}

/// The ways out, the bad ones too: each must still say what happened.
fn ending() -> Vec<Allowed> {
    const RETURN: Usage = Usage::Conditional(Force::Return);
    const SEGFAULT: Usage = Usage::Conditional(Force::Segfault);
    const PANIC: Usage = Usage::Conditional(Force::Panic);
    calls! {
        exit_group = SYS_exit_group, ANY, RETURN, "the end";
        sigaltstack = SYS_sigaltstack, ANY, RETURN, "std returns its signal stack";
        rt_sigaction = SYS_rt_sigaction, ANY, SEGFAULT, "std's handler takes itself off";
        rt_sigreturn = SYS_rt_sigreturn, ANY, SEGFAULT, "that handler returns";
        rt_sigprocmask = SYS_rt_sigprocmask, ANY, PANIC, "abort(3) sets the signal mask";
    }
}

/// What glibc does in its own way.
#[cfg(target_env = "gnu")]
fn libc_specific() -> Vec<Allowed> {
    const PANIC: Usage = Usage::Conditional(Force::Panic);
    const HEAP: Usage = Usage::Conditional(Force::HeapDamage);
    calls! {
        gettid = SYS_gettid, ANY, PANIC, "raise(3) names its own thread";
        tgkill = SYS_tgkill, TO_ITSELF, PANIC, "abort(3) raises SIGABRT";
        writev = SYS_writev, ANY, HEAP, "the C library's own last words";
    }
}

/// What musl does in its own way: open(3) and fstat(3) take the oldest call that there is, and it raises by tkill(2),
/// whose thread is the process's own pid where there is but one.
#[cfg(target_env = "musl")]
fn libc_specific() -> Vec<Allowed> {
    const PANIC: Usage = Usage::Conditional(Force::Panic);
    calls! {
        #[cfg(target_arch = "x86_64")]
        open = SYS_open, ANY, Usage::Always, "control files; landlock decides which";
        fstat = SYS_fstat, ANY, Usage::Always, "owner and kind of what was opened";
        tkill = SYS_tkill, TO_ITSELF, PANIC, "abort(3) raises SIGABRT";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_stands_twice_and_each_has_its_reason() {
        let mut numbers: Vec<_> = table().iter().map(|allowed| allowed.number).collect();
        numbers.sort_unstable();
        let count = numbers.len();
        numbers.dedup();
        assert_eq!(numbers.len(), count);
        assert!(table().iter().all(|allowed| !allowed.reason.is_empty()));
    }

    #[test]
    fn what_the_helper_must_never_do_is_not_there() {
        let banned = [
            "execve",
            "execveat",
            "fork",
            "vfork",
            "clone",
            "clone3",
            "ptrace",
            "mount",
            "bpf",
            "keyctl",
            "setuid",
            "setresuid",
            "prctl",
            "kill",
            "pidfd_send_signal",
            "socket",
            "connect",
            "bind",
            "mprotect",
            "ioctl",
            "process_vm_writev",
            "open_by_handle_at",
            "io_uring_setup",
            "unshare",
            "setns",
            "seccomp",
            "userfaultfd",
        ];
        for name in banned {
            assert!(table().iter().all(|allowed| allowed.name != name), "{name}");
        }
    }
}
