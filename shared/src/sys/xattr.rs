//! fgetxattr(2). Setting attributes is the helper's.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The longest value that we ever write or accept.
const MAX_VALUE: usize = 4096;

/// Reads one extended attribute; `None` where it does not exist.
pub(crate) fn get_xattr(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0; MAX_VALUE];
    // SAFETY: name is NUL-terminated, pointer and length are of one live, exclusively borrowed buffer.
    let length = unsafe {
        libc::fgetxattr(
            dir.as_raw_fd(),
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    match usize::try_from(length) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
        Err(_) => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENODATA) => Ok(None),
            error => Err(error),
        },
    }
}
