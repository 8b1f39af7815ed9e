//! The lock-down tried in a child first, where a filter around the helper may kill for one of its calls: a helper that is killed
//! can say nothing of it.

use anyhow::{Context as _, Result, bail};
use cgleaf_shared::process::Proc;
use nix::errno::Errno;
use nix::sys::prctl::set_dumpable;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid};

use crate::sandbox::{self, LockDown};
use crate::sys::fork::fork_single_threaded;

/// Fails where the lock-down would be the helper's end. Whatever else comes of it, the lock-down itself will tell.
pub(crate) fn lock_down(plan: &LockDown<'_>, proc: &Proc) -> Result<()> {
    if !is_filtered(proc) {
        return Ok(());
    }
    match fork_single_threaded().context("fork, to try the lock-down in a child")? {
        ForkResult::Child => {
            // A core dump would tell nobody anything.
            let _ = set_dumpable(false);
            let _ = sandbox::lock_down(plan);
            std::process::exit(0)
        }
        ForkResult::Parent { child } => {
            if end_of(child) == Some(Signal::SIGSYS) {
                bail!(
                    "the lock-down would be this helper's end (SIGSYS): the system call filter around this process kills for \
                     landlock_create_ruleset(2) or another call of it; let these calls through, or have the filter answer an \
                     error instead (of a unit: SystemCallErrorNumber=EPERM)"
                );
            }
            Ok(())
        }
    }
}

/// Whether there is a filter (`Seccomp: 2`, proc_pid_status(5)). What cannot be read is found out by the lock-down.
fn is_filtered(proc: &Proc) -> bool {
    let status = proc.own().and_then(|own| own.status());
    status.is_ok_and(|status| status.seccomp == Some(2))
}

/// The signal that ended the child, if one did.
fn end_of(child: Pid) -> Option<Signal> {
    loop {
        match waitpid(child, None) {
            Err(Errno::EINTR) => {}
            Ok(WaitStatus::Signaled(_, signal, _)) => return Some(signal),
            _ => return None,
        }
    }
}
