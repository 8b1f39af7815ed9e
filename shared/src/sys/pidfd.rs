//! pidfd_open(2) and pidfd_send_signal(2), which nix does not wrap.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `pidfd_open(pid, 0)`: close-on-exec by itself.
pub(crate) fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two integers and touches no memory of ours.
    let answer = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0_u32) };
    match i32::try_from(answer) {
        // SAFETY: the kernel has just made this descriptor for us, and nobody else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `pidfd_send_signal(fd, signal, NULL, 0)`: as kill(2) would, to this very process.
pub(crate) fn pidfd_send_signal(fd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let info: *const libc::siginfo_t = std::ptr::null();
    // SAFETY: the descriptor is open for the length of the call, and a null siginfo asks the kernel to make its own.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            fd.as_fd().as_raw_fd(),
            signal,
            info,
            0_u32,
        )
    };
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
