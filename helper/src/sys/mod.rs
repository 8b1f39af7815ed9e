//! The only place of this crate where `unsafe` may stand: system calls that no library wraps.

#![allow(unsafe_code)]

pub(crate) mod fork;
pub(crate) mod landlock;
pub(crate) mod passrights;
pub(crate) mod xattr;

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};

/// Takes over a descriptor that was inherited under this number, and makes it close-on-exec.
///
/// # Errors
/// `EBADF`: there is none of that number.
pub(crate) fn own_inherited(number: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: only borrowed, to ask whether it is open at all.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
    fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    // SAFETY: it is open, it was inherited for us (a number on our command line, or LISTEN_FDS), and is taken once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
