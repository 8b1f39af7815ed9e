//! Keeping descriptors from being sent at all.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

/// `SO_PASSRIGHTS` of include/uapi/asm-generic/socket.h, which no library has yet.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Has the kernel refuse descriptors (`EPERM` at the sender) on a unix socket and on all that are accepted from it.
///
/// # Errors
/// `ENOPROTOOPT`: a kernel before 6.16.
pub(crate) fn refuse(socket: BorrowedFd<'_>) -> nix::Result<()> {
    let no: libc::c_int = 0;
    // SAFETY: `no` is an int that outlives the call, and its size is what is told.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const no).cast(),
            size_of_val(&no).try_into().unwrap_or_default(),
        )
    };
    Errno::result(answer).map(drop)
}
