//! `adopt`: a session for a process that runs already, and for what it started.

use cgleaf_shared::process::{Pid, ProcessId, Stat};
use cgleaf_shared::wire::Mode;

use super::claim::{Claim, Identity};
use super::leaf::{self, Entry, Leaf, Made};
use super::{Site, TierWanted};
use crate::error::{Code, Error, OrCode, Result};
use crate::ops::{Adopted, Reach, gather_into};
use crate::records::{Record, Tier};
use crate::trace;

/// A session that was made for a process that ran already.
#[derive(Debug)]
pub struct Adoption {
    /// Its record.
    pub record: Record,
    /// What was moved, and what could not be proven.
    pub adopted: Adopted,
}

/// Makes a session and moves a running process with what it started into its leaf. They stand still for that time.
///
/// # Errors
/// USAGE: there is no such process, it has ended, or the name is taken. REFUSED: it may not be adopted, or ends meanwhile; why. UNSUPPORTED: no leaf can
/// be had. Nothing was moved then, and nothing is left behind.
pub fn adopt(site: &Site<'_>, identity: &Identity, pid: Pid) -> Result<Adoption> {
    let root = running(pid)?;
    trace::adopts();
    let mut claim = Claim::make(site, identity, Tier::Cgroup)?;
    // The leaf belongs to this connection until somebody is in it.
    let leaf = match leaf::make(site, claim.record(), None, Entry::Birth)? {
        Made::Leaf(leaf) => leaf,
        Made::NotServed(said) => return Err(leaf::not_served(TierWanted::Auto, &said)),
        Made::MoveDenied(refusal) => return Err(Error::new(Code::Refused, refusal.message)),
    };
    adopts(&leaf)?;
    // Before anybody is moved: what is adopted runs already, and what a destroy has ended must not be there again. One that
    // comes later finds the leaf, and what was killed takes nobody in.
    claim.look_for_tombstone()?;
    // Whoever asks from inside another helper's session is sent to that one, whatever was named: the leaf is there.
    let reach = Reach::new(site.base, Some(leaf.client.path()));
    let adopted = gather_into(&reach, &claim.record().session, root)?;
    if adopted.moved.is_empty() {
        return Err(Error::new(
            Code::Refused,
            format!("nothing was adopted: {}", adopted.unproven.join("; ")),
        ));
    }
    claim.set_leaf(leaf.attestation.clone(), leaf.helper.clone(), root);
    // From here on there are members: the session stays, whatever else fails.
    claim.keep();
    claim.write_running()?;
    Ok(Adoption {
        record: claim.record().clone(),
        adopted,
    })
}

/// A helper that root runs for others takes no pidfd from them: whoever could name a process could name another's.
fn adopts(leaf: &Leaf) -> Result<()> {
    let mode = leaf.client.mode();
    if !Mode::from_name(mode).is_some_and(Mode::is_root_mode) {
        return Ok(());
    }
    let socket = leaf.client.path().display();
    Err(Error::new(
        Code::Unsupported,
        format!(
            "nothing was adopted: the helper at {socket} is a {mode}, which root runs for others, and moves nobody but its own \
             callers; start the program with `cgleaf run` or `cgleaf exec` instead"
        ),
    ))
}

fn running(pid: Pid) -> Result<ProcessId> {
    let stat = cgleaf_shared::process::Proc::system()
        .and_then(|proc| proc.process(pid))
        .and_then(|dir| dir.stat())
        .or_code(Code::Usage)
        .map_err(|error| error.while_doing(format_args!("adopt process {pid}")))?;
    if stat.state.is_over() {
        return Err(over(&stat));
    }
    let program = std::fs::read_link(format!("/proc/{pid}/exe"));
    if program.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        let why = format!(
            "process {pid} has no program: it is one of the kernel's own, or is just ending"
        );
        return Err(Error::new(Code::Usage, why));
    }
    Ok(stat.id)
}

/// It is there as a zombie: nothing of it runs, or only threads that no leaf would show or end.
fn over(stat: &Stat) -> Error {
    let pid = stat.id.pid;
    if stat.threads > 1 {
        let why = format!(
            "nothing was adopted: the main thread of process {pid} has ended, and other threads of it run: where those are cannot \
             be told; SIGKILL ends them"
        );
        return Error::new(Code::Refused, why);
    }
    let why = format!(
        "process {pid} has ended, and whoever started it has not reaped it yet; what it started and left is adopted by its own \
         number"
    );
    Error::new(Code::Usage, why)
}
