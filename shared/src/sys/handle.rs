//! name_to_handle_at(2) on an opened cgroup directory.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::id::CgroupId;

/// FILEID_KERNFS of include/linux/exportfs.h: the handle is the 64-bit kernfs id.
const FILEID_KERNFS: i32 = 0xfe;

#[repr(C)]
struct KernfsHandle {
    handle_bytes: u32,
    handle_type: i32,
    id: u64,
}

/// The kernfs id of the directory that `dir` has open.
///
/// # Errors
/// `EPERM`, `ENOSYS`: an outer seccomp filter refuses the call; the caller then takes `st_ino`.
pub(crate) fn kernfs_id(dir: BorrowedFd<'_>) -> io::Result<CgroupId> {
    let mut handle = KernfsHandle {
        handle_bytes: 8,
        handle_type: 0,
        id: 0,
    };
    let mut mount_id: libc::c_int = 0;
    // SAFETY: the handle has room for exactly the 8 bytes that it announces, the path is a static empty C string
    // (AT_EMPTY_PATH: the directory itself), and mount_id is a live int.
    let result = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            dir.as_raw_fd(),
            c"".as_ptr(),
            &raw mut handle,
            &raw mut mount_id,
            libc::AT_EMPTY_PATH,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if handle.handle_type != FILEID_KERNFS {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    Ok(CgroupId(handle.id))
}
