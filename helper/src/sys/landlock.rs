//! What the kernel itself says about landlock.

use std::io;

/// `LANDLOCK_CREATE_RULESET_VERSION`: ask for the ABI instead of making a ruleset.
const CREATE_RULESET_VERSION: libc::c_uint = 1;

/// The landlock ABI that the running kernel offers (1 and more).
///
/// # Errors
/// `ENOSYS`: a kernel without landlock; `EOPNOTSUPP`: built in, but not enabled at boot. See landlock_create_ruleset(2).
pub(crate) fn kernel_abi() -> io::Result<u32> {
    // SAFETY: with the version flag the kernel reads no memory: the attribute pointer must be null and its size 0, as
    // they are.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            CREATE_RULESET_VERSION,
        )
    };
    u32::try_from(answer).map_err(|_| io::Error::last_os_error())
}
