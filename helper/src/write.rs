//! Everything that the helper ever writes to the cgroup tree. No other module of cgleaf does.

use std::ffi::CStr;
use std::os::fd::AsFd;
use std::path::Path;

use cgleaf_shared::cgroup::{CgroupDir, ControlFile};
use cgleaf_shared::{IoContext, IoError};
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::sys;

/// A leaf must be open to a user's own look at it, also where root owns it.
const LEAF_MODE: Mode = Mode::from_bits_truncate(0o755);

/// Writes a value to a control file of the cgroup that is open.
///
/// The flags are plain O_WRONLY: landlock refuses O_TRUNC, and there is nothing to truncate.
///
/// # Errors
/// `ENODEV`, `ENOENT`: the cgroup was removed, or this kernel has no such file. For `cgroup.procs`, cgroup-v2.rst:
/// `EACCES`, `EBUSY`, `EOPNOTSUPP`, `ESRCH`.
pub(crate) fn control(dir: &CgroupDir, file: ControlFile, value: &str) -> Result<(), IoError> {
    let path = || dir.shown().join(file.name());
    let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let open = openat(dir.as_fd(), file.name(), flags, Mode::empty())
        .context("open for writing", path())?;
    loop {
        match nix::unistd::write(&open, value.as_bytes()) {
            Ok(_) => return Ok(()),
            Err(nix::Error::EINTR) => {}
            Err(errno) => return Err(IoError::new("write to", path(), errno)),
        }
    }
}

/// Makes a directory beneath the one that is open.
///
/// # Errors
/// `EEXIST`; `EAGAIN`, `ENOSPC`: a limit (cgroup-v2.rst); `ENOENT`, `ENODEV`: the parent was removed.
pub(crate) fn make_dir(parent: &CgroupDir, name: &str) -> Result<(), IoError> {
    mkdirat(parent.as_fd(), name, LEAF_MODE).context("make", parent.shown().join(name))
}

/// Removes an empty cgroup beneath the one that is open.
///
/// # Errors
/// `EBUSY`: it has a live process or a child. `ENOENT`: it is gone.
pub(crate) fn remove_dir(parent: &CgroupDir, name: &str) -> Result<(), IoError> {
    unlinkat(parent.as_fd(), Path::new(name), UnlinkatFlags::RemoveDir)
        .context("remove", parent.shown().join(name))
}

/// Sets an extended attribute.
///
/// # Errors
/// `EOPNOTSUPP`: this kernel has no user attributes on cgroup2 (before 5.7); `ENOSPC`: too many of them.
pub(crate) fn set_attribute(dir: &CgroupDir, name: &CStr, value: &str) -> Result<(), IoError> {
    sys::xattr::set(dir.as_fd(), name, value.as_bytes())
        .context("write an attribute of", dir.shown())
}

/// Removes an extended attribute; one that is not there is fine.
///
/// # Errors
/// As [`set_attribute`].
pub(crate) fn remove_attribute(dir: &CgroupDir, name: &CStr) -> Result<(), IoError> {
    match sys::xattr::remove(dir.as_fd(), name) {
        Err(error) if error.raw_os_error() == Some(libc::ENODATA) => Ok(()),
        other => other.context("remove an attribute of", dir.shown()),
    }
}
