//! fsetxattr(2) and fremovexattr(2).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets one attribute, new or not.
pub(crate) fn set(dir: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> io::Result<()> {
    // SAFETY: the name is NUL-terminated, pointer and length are of one live buffer that is only read.
    let answer = unsafe {
        libc::fsetxattr(
            dir.as_raw_fd(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Removes one attribute.
pub(crate) fn remove(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: the name is NUL-terminated.
    let answer = unsafe { libc::fremovexattr(dir.as_raw_fd(), name.as_ptr()) };
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
