//! fork(2), for the one child that the helper ever has.

use std::os::fd::{AsFd, AsRawFd};

use nix::unistd::{ForkResult, fork};

/// Forks. Only before there is a second thread.
///
/// # Errors
/// `EAGAIN`: a limit on processes.
pub(crate) fn fork_single_threaded() -> nix::Result<ForkResult> {
    // SAFETY: the helper has one thread (the lock-down, later, makes sure of it), so that no lock can be held by a
    // thread that the child does not have.
    unsafe { fork() }
}

/// Closes every descriptor but these, for a child that never comes back to the code that owned the others.
pub(crate) fn keep_only(kept: &[&dyn AsFd]) {
    let mut numbers: Vec<u32> = kept
        .iter()
        .filter_map(|fd| u32::try_from(fd.as_fd().as_raw_fd()).ok())
        .collect();
    numbers.sort_unstable();
    let mut from = 0;
    for number in numbers {
        if number > from {
            close_range(from, number - 1);
        }
        from = number + 1;
    }
    close_range(from, u32::MAX);
}

/// Before Linux 5.9 there is no close_range(2): then what was inherited stays open in the child, which does nothing
/// with it.
fn close_range(first: u32, last: u32) {
    // SAFETY: the owners of these descriptors are never used again in this process: it waits, cleans and exits.
    let _ = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}
