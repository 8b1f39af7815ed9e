//! Descriptors that have only a number.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

fn answer(value: libc::c_int) -> io::Result<libc::c_int> {
    if value == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(value)
    }
}

/// A close-on-exec copy of a descriptor that this process was started with.
///
/// # Errors
/// `EBADF`: there is none of that number.
#[cfg(feature = "cli")]
pub(crate) fn own_copy(raw: RawFd) -> io::Result<OwnedFd> {
    copy_from(raw, 3)
}

/// A close-on-exec copy whose number is at least `lowest`.
///
/// # Errors
/// `EMFILE`: there is no such number left.
pub(crate) fn own_copy_from(fd: BorrowedFd<'_>, lowest: RawFd) -> io::Result<OwnedFd> {
    copy_from(fd.as_raw_fd(), lowest)
}

/// Whether this process could have `number` more descriptors now (RLIMIT_NOFILE, getrlimit(2)).
#[cfg(feature = "cli")]
pub(crate) fn are_left(number: usize) -> bool {
    let copies: io::Result<Vec<OwnedFd>> = (0..number)
        .map(|_| copy_from(libc::STDERR_FILENO, 3))
        .collect();
    !copies.is_err_and(|error| error.raw_os_error() == Some(libc::EMFILE))
}

fn copy_from(raw: RawFd, lowest: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: integers only.
    let copy = answer(unsafe { libc::fcntl(raw, libc::F_DUPFD_CLOEXEC, lowest) })?;
    // SAFETY: the kernel has just made it for us, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Makes `number` the same as `fd`, inherited by the program that is executed next. What had that number before is closed.
///
/// # Errors
/// Whatever dup2(2) answers.
pub(crate) fn put_at(fd: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    if fd.as_raw_fd() == number {
        return set_close_on_exec(number, false);
    }
    // SAFETY: integers only; the callers own every descriptor of the process: they are between fork and exec, or have no thread beside them.
    answer(unsafe { libc::dup2(fd.as_raw_fd(), number) }).map(|_| ())
}

/// Says whether execve(2) closes a descriptor.
///
/// # Errors
/// `EBADF`: there is none of that number.
pub(crate) fn set_close_on_exec(raw: RawFd, close: bool) -> io::Result<()> {
    let flags = if close { libc::FD_CLOEXEC } else { 0 };
    // SAFETY: integers only.
    answer(unsafe { libc::fcntl(raw, libc::F_SETFD, flags) }).map(|_| ())
}

/// Closes every descriptor from this number on: close_range(2), or one by one where that is not to be had. For a process
/// that is about to execute another program and owns none of them any more.
pub(crate) fn close_from(first: RawFd) {
    let from = libc::c_uint::try_from(first).unwrap_or(0);
    // SAFETY: the caller is about to execute another program and uses no descriptor from that number on.
    if unsafe { libc::syscall(libc::SYS_close_range, from, libc::c_uint::MAX, 0) } == 0 {
        return;
    }
    let most = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)
        .map_or(1024, |(soft, _)| soft.min(65_536));
    for fd in first..RawFd::try_from(most).unwrap_or(1024) {
        // SAFETY: as above; a number that is not open is EBADF.
        unsafe { libc::close(fd) };
    }
}

/// Closes every descriptor but these and the three standard ones (close_range(2)). For a process that lives on and owns
/// none of the others: they are copies of what its parent has.
///
/// # Errors
/// `ENOSYS` before Linux 5.9: nothing has been closed then.
pub(crate) fn close_all_but(keep: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut keep: Vec<u32> = keep
        .iter()
        .map(|fd| fd.as_raw_fd().unsigned_abs())
        .collect();
    keep.sort_unstable();
    let mut from = 3;
    for kept in keep {
        if from < kept {
            close_range(from, kept - 1)?;
        }
        from = from.max(kept + 1);
    }
    close_range(from, u32::MAX)
}

fn close_range(from: u32, to: u32) -> io::Result<()> {
    // SAFETY: integers only; the callers say that nothing in the process uses these descriptors any more.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, from, to, 0_u32) };
    if closed == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use nix::fcntl::{FcntlArg, FdFlag};

    use super::*;

    #[test]
    fn a_copy_is_closed_on_exec_and_a_number_that_is_not_open_is_refused() {
        use std::os::fd::AsFd;
        let copy = own_copy(2).unwrap();
        let flags = nix::fcntl::fcntl(copy.as_fd(), FcntlArg::F_GETFD).unwrap();
        assert!(FdFlag::from_bits_truncate(flags).contains(FdFlag::FD_CLOEXEC));
        let refused = own_copy(60_000).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EBADF));
    }
}
