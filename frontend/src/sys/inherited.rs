//! What this process was started with and the standard library changes before `main`: it ignores SIGPIPE, and opens
//! /dev/null where a standard descriptor is closed. A program that is started must see neither, so that both are
//! looked at before that.

use std::sync::atomic::{AtomicBool, Ordering};

static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether there was no stdout when this process was started: what is written to what stands in for it is lost.
#[cfg(feature = "cli")]
pub(crate) fn stdout_was_closed() -> bool {
    STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}

/// Whether SIGPIPE was ignored when this process was started.
pub(crate) fn pipe_was_ignored() -> bool {
    PIPE_WAS_IGNORED.load(Ordering::Relaxed)
}

// SAFETY: the section holds pointers to functions that the C library calls one after the other before `main`, with
// arguments that this one does not look at (System V ABI: a caller's arguments may be ignored).
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

/// It runs before the runtime is set up: plain system calls only.
extern "C" fn before_main() {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action changes nothing, and the old one is written to memory that is ours.
    let read = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), action.as_mut_ptr()) };
    if read == 0 {
        // SAFETY: all zeroes is a valid sigaction, and the call above has filled it in.
        let handler = unsafe { action.assume_init() }.sa_sigaction;
        PIPE_WAS_IGNORED.store(handler == libc::SIG_IGN, Ordering::Relaxed);
    }
    for fd in 0..=2 {
        fill_if_closed(fd);
    }
}

/// A closed standard descriptor would be the next one that is opened: a socket of ours would then be the program's stderr.
/// What is put there is closed again by execve(2), so that the program finds it closed.
fn fill_if_closed(fd: libc::c_int) {
    // SAFETY: F_GETFD takes no further argument and touches no memory.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
        if fd == libc::STDOUT_FILENO {
            STDOUT_WAS_CLOSED.store(true, Ordering::Relaxed);
        }
        // The lowest free number is this one: those below it were filled before.
        // SAFETY: a constant C string.
        unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    }
}
