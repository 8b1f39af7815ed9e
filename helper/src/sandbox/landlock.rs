//! Landlock: which files, sockets and processes are still within reach. See landlock(7).

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use nix::errno::Errno;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

use super::enforced::{Enforced, Item};
use super::{LockDown, Reach};
use crate::sys;

/// The handled rights are those of this ABI, on every kernel: a newer one may handle more (resolving unix sockets, from
/// ABI 9 on), which would cut off the notify socket. What each kernel gives of them is reported.
pub const HANDLED_ABI: u32 = 6;
/// The least that counts as file rules: without ABI 3 a file outside could still be truncated.
pub const REQUIRED_ABI: u32 = 3;

const HANDLED: ABI = ABI::V6;
const TCP_ABI: u32 = 4;
const IOCTL_ABI: u32 = 5;
const SCOPES_ABI: u32 = 6;

/// The landlock ABI that the running kernel offers (1 and more).
///
/// # Errors
/// `ENOSYS`: a kernel without landlock; `EOPNOTSUPP`: built in, but not enabled at boot.
pub fn kernel_abi() -> std::io::Result<u32> {
    sys::landlock::kernel_abi()
}

/// Restricts this thread, and tells by the kernel's own ABI what that is worth: the crate's status word says "partially
/// enforced" for anything from one right upwards.
///
/// [`super::lock_down`] calls it. Alone it shows what this wall is worth where seccomp's does not stand before it.
pub fn restrict(plan: &LockDown<'_>, enforced: &mut Enforced) {
    let outcome = sys::landlock::kernel_abi()
        .map_err(|cause| Item::missing("landlock_create_ruleset(2)", cause))
        .and_then(|abi| apply(plan).map(|()| abi.min(HANDLED_ABI)));
    match outcome {
        Ok(abi) => report(abi, enforced),
        Err(missing) => {
            enforced.landlock_files = missing.clone();
            enforced.landlock_ioctl = missing.clone();
            enforced.landlock_tcp = missing.clone();
            enforced.landlock_scopes = missing;
        }
    }
}

fn report(abi: u32, enforced: &mut Enforced) {
    enforced.landlock_abi = abi;
    let from = |needed: u32, what: &str| {
        if abi >= needed {
            Item::Enforced
        } else {
            Item::Missing(format!(
                "this kernel's landlock ABI is {abi}, {what} needs {needed}"
            ))
        }
    };
    enforced.landlock_files = from(REQUIRED_ABI, "refusing truncation");
    enforced.landlock_tcp = from(TCP_ABI, "refusing TCP");
    enforced.landlock_ioctl = from(IOCTL_ABI, "refusing ioctl on devices");
    enforced.landlock_scopes = from(SCOPES_ABI, "the signal and abstract socket scope");
}

fn apply(plan: &LockDown<'_>) -> Result<(), Item> {
    let proc = open_proc()?;
    let status = ruleset(plan, proc.as_fd())
        .and_then(RulesetCreated::restrict_self)
        .map_err(|cause| Item::missing("restricting by landlock", cause))?;
    if status.ruleset == RulesetStatus::NotEnforced {
        return Err(Item::Missing(
            "landlock took the rules and enforces none of them".to_owned(),
        ));
    }
    probe()
}

/// A /proc that is no proc filesystem would turn its rule into a hole.
fn open_proc() -> Result<File, Item> {
    let proc = File::open("/proc").map_err(|cause| Item::missing("open /proc", cause))?;
    match fstatfs(&proc).map(|found| found.filesystem_type()) {
        Ok(PROC_SUPER_MAGIC) => Ok(proc),
        Ok(_) => Err(Item::Missing("/proc is not a proc filesystem".to_owned())),
        Err(errno) => Err(Item::missing("fstatfs /proc", errno)),
    }
}

fn ruleset(plan: &LockDown<'_>, proc: BorrowedFd<'_>) -> Result<RulesetCreated, RulesetError> {
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(HANDLED))?
        .handle_access(AccessNet::from_all(HANDLED))?
        .scope(Scope::from_all(HANDLED))?
        .create()?
        .add_rule(PathBeneath::new(proc, read()))?;
    let mount_rights = match plan.reach {
        Reach::ScopeDirectories => read(),
        Reach::CgroupMount => keep_leaves(),
    };
    rules = rules.add_rule(PathBeneath::new(plan.cgroup_mount, mount_rights))?;
    for scope_dir in plan.scope_dirs {
        rules = rules.add_rule(PathBeneath::new(*scope_dir, keep_leaves()))?;
    }
    if let Some(socket_dir) = plan.socket_dir {
        // It was bound before; all that is left to do there is to remove it at the end.
        rules = rules.add_rule(PathBeneath::new(socket_dir, AccessFs::RemoveFile))?;
    }
    Ok(rules)
}

fn read() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::ReadDir
}

/// What leaves take: their control files are written, never truncated, made or removed.
fn keep_leaves() -> BitFlags<AccessFs> {
    read() | AccessFs::WriteFile | AccessFs::MakeDir | AccessFs::RemoveDir
}

/// The proof by trying: the root directory must not open any more.
fn probe() -> Result<(), Item> {
    match File::open("/") {
        Err(refused) if refused.raw_os_error() == Some(Errno::EACCES as i32) => Ok(()),
        Err(other) => Err(Item::missing(
            "trying to open / after the restriction",
            other,
        )),
        Ok(_) => Err(Item::Missing(
            "after the restriction / still opened".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What counts, by the ABI of the kernels that are around (5.13 … 6.12 and later).
    #[test]
    fn each_abi_is_reported_for_what_it_gives() {
        let holds = |abi| {
            let mut enforced = Enforced::nothing();
            report(abi, &mut enforced);
            [
                enforced.landlock_files.holds(),
                enforced.landlock_tcp.holds(),
                enforced.landlock_ioctl.holds(),
                enforced.landlock_scopes.holds(),
            ]
        };
        assert_eq!(holds(1), [false; 4]);
        assert_eq!(holds(2), [false; 4]);
        assert_eq!(holds(3), [true, false, false, false]);
        assert_eq!(holds(4), [true, true, false, false]);
        assert_eq!(holds(5), [true, true, true, false]);
        assert_eq!(holds(6), [true; 4]);
    }

    #[test]
    fn leaves_are_never_truncated_or_moved_and_nothing_is_executed() {
        for right in [
            AccessFs::Truncate,
            AccessFs::Refer,
            AccessFs::Execute,
            AccessFs::MakeReg,
            AccessFs::RemoveFile,
        ] {
            assert!(!keep_leaves().contains(right), "{right:?}");
        }
    }
}
