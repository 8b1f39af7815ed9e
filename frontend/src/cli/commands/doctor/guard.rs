//! What a system call filter may kill for is tried in a child first: its death is an answer, and doctor's would be none.

use cgleaf_shared::cgroup::{CgroupPath, CgroupRoot};
use cgleaf_shared::process::{Pid, Pidfd, Proc};
use nix::libc;
use nix::sys::prctl::set_dumpable;

use super::checks::Check;
use super::spawn::end_of;
use crate::error::{Code, Error, Result};
use crate::sys::{self, Change, Forked};

/// What a killed call means.
pub(super) const KILLED: &str =
    "killed by SIGSYS: the system call filter around this process kills for a call that is needed";

/// What helps.
pub(super) const REMEDY: &str = "have the system call filter around this process let that call through, or answer an error instead of \
                                 killing (of a unit: `SystemCallErrorNumber=EPERM`)";

/// The check; where a filter kills for it, that.
pub(super) fn guarded(name: &'static str, check: fn() -> Check) -> Check {
    if kills_for(|| drop(check())) {
        return Check::new(name, Some(false), format!("refused: {KILLED}"));
    }
    check()
}

/// Whether what a frontend itself cannot do without is let through, or answered with an error that it can deal with.
pub(super) fn no_call_kills() -> Result<()> {
    let calls = || {
        if let Ok(root) = CgroupRoot::open() {
            drop(root.open_path(&CgroupPath::root()));
        }
        drop(Proc::system().and_then(|proc| proc.process(Pid::own())));
        drop(Pidfd::open(Pid::own()));
    };
    if kills_for(calls) {
        return Err(Error::new(
            Code::Unsupported,
            format!("openat2(2), name_to_handle_at(2) or pidfd_open(2) is {KILLED}"),
        ));
    }
    Ok(())
}

/// Whether SIGSYS ends a child that tries it. Where there is no child to be had nothing is known, and it counts as let through.
fn kills_for(attempt: impl FnOnce()) -> bool {
    match sys::fork() {
        Ok(Forked::Child) => {
            // A core dump would tell nobody anything.
            let _ = set_dumpable(false);
            attempt();
            sys::exit_now(0)
        }
        Ok(Forked::Parent(child)) => end_of(child) == Some(Change::Signalled(libc::SIGSYS)),
        Err(_) => false,
    }
}
