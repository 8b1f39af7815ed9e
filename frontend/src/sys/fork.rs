//! New processes.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use cgleaf_shared::process::Pid;

/// Which side of a fork this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forked {
    /// The old process.
    Parent(Pid),
    /// The new one.
    Child,
}

fn side(answer: libc::c_long) -> io::Result<Forked> {
    match i32::try_from(answer).ok() {
        Some(0) => Ok(Forked::Child),
        Some(pid) if pid > 0 => Ok(Forked::Parent(Pid::new(pid).unwrap_or(Pid::INIT))),
        _ => Err(io::Error::last_os_error()),
    }
}

/// fork(2). In a process with several threads the child should only make system calls until it executes a program or
/// ends: another thread may have held a lock.
///
/// # Errors
/// `EAGAIN`: a limit on processes.
pub(crate) fn fork() -> io::Result<Forked> {
    // SAFETY: the child is a copy of this thread alone. Locks that other threads held then stay locked in it, which can
    // make it wait for ever and nothing worse: the C library keeps its own usable (pthread_atfork(3)).
    side(libc::c_long::from(unsafe { libc::fork() }))
}

/// A child that is born in a cgroup (clone3(2), `CLONE_INTO_CGROUP`, Linux 5.7). `cgroup` is the directory. It is no
/// vfork: a child that is born in a frozen cgroup does not run, and would hold its parent up.
///
/// # Errors
/// `ENOSYS`: no clone3, or a container's filter. `EACCES`: the directory's `cgroup.procs`, or that of the common
/// ancestor, may not be written. `EOPNOTSUPP`: it is threaded or an invalid domain. `EBUSY`: it has domain
/// controllers enabled. `ENODEV`: it was removed. `EAGAIN`: a limit on processes.
///
/// The C library does not know of this child: it should only make system calls until it executes a program or ends.
pub(crate) fn clone_into_cgroup(cgroup: BorrowedFd<'_>) -> io::Result<Forked> {
    // linux/sched.h: struct clone_args of 88 bytes (Linux 5.7).
    #[repr(C)]
    #[derive(Default)]
    struct CloneArgs {
        flags: u64,
        pidfd: u64,
        child_tid: u64,
        parent_tid: u64,
        exit_signal: u64,
        stack: u64,
        stack_size: u64,
        tls: u64,
        set_tid: u64,
        set_tid_size: u64,
        cgroup: u64,
    }
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    let args = CloneArgs {
        flags: CLONE_INTO_CGROUP,
        exit_signal: u64::from(libc::SIGCHLD.unsigned_abs()),
        cgroup: u64::from(cgroup.as_raw_fd().unsigned_abs()),
        ..CloneArgs::default()
    };
    // SAFETY: the description lives for the length of the call; without a stack of its own and without CLONE_VM the child
    // goes on on a copy of this one.
    side(unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw const args,
            std::mem::size_of::<CloneArgs>(),
        )
    })
}

/// Ends the process at once: no destructor runs, nothing buffered is written twice.
pub(crate) fn exit_now(status: u8) -> ! {
    // SAFETY: _exit ends the process and touches no memory of it.
    unsafe { libc::_exit(libc::c_int::from(status)) }
}
