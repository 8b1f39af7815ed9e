//! The lock-down tried in a child first, where it may be the helper's end, or make it blind: a helper that is killed can say nothing of
//! it, and one that sees nobody has taken the place of one that would.

use anyhow::{Context as _, Result, bail};
use cgleaf_shared::process::{Pid, Proc};
use nix::errno::Errno;
use nix::sys::prctl::set_dumpable;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::ForkResult;

use crate::sandbox::{self, LockDown};
use crate::sys::fork::fork_single_threaded;

/// What the child's exit status says.
const SEES: i32 = 0;
const BLIND: i32 = 1;

/// Fails where the lock-down would be the helper's end, or keep it from seeing who asks. Whatever else comes of it, the lock-down
/// itself will tell.
pub(crate) fn lock_down(plan: &LockDown<'_>, proc: &Proc) -> Result<()> {
    let may_be_blind = proc.hides_processes().unwrap_or(false);
    if !may_be_blind && !is_filtered(proc) {
        return Ok(());
    }
    let helper = Pid::own();
    match fork_single_threaded().context("fork, to try the lock-down in a child")? {
        ForkResult::Child => {
            // A core dump would tell nobody anything.
            let _ = set_dumpable(false);
            let _ = sandbox::lock_down(plan);
            // This process's parent is locked down as little as a client.
            let seen = proc.process(helper).and_then(|one| one.status()).is_ok();
            std::process::exit(if seen || !may_be_blind { SEES } else { BLIND })
        }
        ForkResult::Parent { child } => match end_of(child) {
            Some(End::Signal(Signal::SIGSYS)) => bail!(
                "the lock-down would be this helper's end (SIGSYS): the system call filter around this process kills for \
                 landlock_create_ruleset(2) or another call of it; let these calls through, or have the filter answer an \
                 error instead (of a unit: SystemCallErrorNumber=EPERM)"
            ),
            Some(End::Status(BLIND)) => bail!(
                "/proc is mounted with hidepid= (of a unit: ProtectProc=), and so hides every process from a helper that is locked \
                 down: it could not tell who asks"
            ),
            _ => Ok(()),
        },
    }
}

/// Whether there is a filter (`Seccomp: 2`, proc_pid_status(5)). What cannot be read is found out by the lock-down.
fn is_filtered(proc: &Proc) -> bool {
    let status = proc.own().and_then(|own| own.status());
    status.is_ok_and(|status| status.seccomp == Some(2))
}

/// How the child ended.
enum End {
    Status(i32),
    Signal(Signal),
}

fn end_of(child: nix::unistd::Pid) -> Option<End> {
    loop {
        match waitpid(child, None) {
            Err(Errno::EINTR) => {}
            Ok(WaitStatus::Signaled(_, signal, _)) => return Some(End::Signal(signal)),
            Ok(WaitStatus::Exited(_, status)) => return Some(End::Status(status)),
            _ => return None,
        }
    }
}
