//! The lock-down: what the helper gives up before it reads the first byte from a client.
//!
//! One place, one order (see [`lock_down`]). What the kernel refuses to enforce is not passed over in silence: every
//! item stands in the returned [`Enforced`] with its reason, and with [`LockDown::require`] the items that carry the
//! weight are start-up failures.
//!
//! After it the process can no longer be given a second thread, a program to execute or a socket to make, so everything
//! of that kind (notify socket, listeners, epoll descriptor, signal mask) must be there before.

mod caps;
mod enforced;
mod error;
pub mod landlock;
mod panic;
mod process;
mod rlimits;
pub mod seccomp;
mod status;

use std::os::fd::BorrowedFd;

pub use enforced::{Enforced, Item};
pub use error::SandboxError;
pub use panic::install_panic_hook;

/// How far the helper's writes must reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Beneath its scope directories only: every mode but the node service.
    ScopeDirectories,
    /// Beneath the whole cgroup2 mount: the node service, whose leaves lie in containers' own cgroups. Which place is
    /// right is then checked in code alone.
    CgroupMount,
}

/// What a helper needs to keep. Directories are given as descriptors that were opened and checked before, so that no
/// path is looked up a second time.
#[derive(Debug)]
pub struct LockDown<'a> {
    /// The scope directories that this helper serves, its own first.
    pub scope_dirs: &'a [BorrowedFd<'a>],
    /// The root of the cgroup2 mount. It may always be read: whose session a caller is in stands in the extended
    /// attributes of cgroups above and outside the scope directories.
    pub cgroup_mount: BorrowedFd<'a>,
    /// The directory of the helper's own socket, where it removes that socket at its end. None where systemd owns it.
    pub socket_dir: Option<BorrowedFd<'a>>,
    /// How far writes must reach.
    pub reach: Reach,
    /// Whether to fail where capabilities, no_new_privs, seccomp or landlock's file rules cannot be enforced
    /// (`--require-sandbox`, and always in the root modes: uid 0 without capabilities still writes root's files).
    pub require: bool,
}

/// Locks this process down for good.
///
/// The order is part of the meaning: the bounding set can only be emptied while CAP_SETPCAP is there; landlock and
/// seccomp need `no_new_privs` once it is gone; the seccomp filter knows none of the calls used before it, so it is last.
/// Then the kernel is asked what it holds this process to (`/proc/self/status`, see proc_pid_status(5)), and that, not
/// what was attempted, is what is returned.
///
/// # Errors
/// [`SandboxError::Threads`] where there is a second thread (landlock and seccomp bind one thread each);
/// [`SandboxError::Status`] where the kernel's answer cannot be read; [`SandboxError::Required`] where
/// [`LockDown::require`] is set and something required is not enforced. After an error the process may be locked down in
/// part: say it and exit.
pub fn lock_down(plan: &LockDown<'_>) -> Result<Enforced, SandboxError> {
    lock_down_with(plan, &seccomp::table())
}

/// [`lock_down`] with another allow-list: what shows that no entry of the real one is idle is a process that dies
/// without it.
///
/// # Errors
/// As [`lock_down`].
pub fn lock_down_with(
    plan: &LockDown<'_>,
    allowed: &[seccomp::Allowed],
) -> Result<Enforced, SandboxError> {
    let before = status::Status::read().map_err(SandboxError::Status)?;
    if before.threads != 1 {
        return Err(SandboxError::Threads(before.threads));
    }
    let mut enforced = Enforced::nothing();
    caps::drop_all(&mut enforced);
    process::restrict(&mut enforced);
    rlimits::apply(&mut enforced);
    landlock::restrict(plan, &mut enforced);
    seccomp::restrict(allowed, &mut enforced);
    let after = status::Status::read().map_err(SandboxError::Status)?;
    enforced.confirm(&after);
    if plan.require {
        enforced.require()?;
    }
    Ok(enforced)
}
