//! How a session of the group tier looks, without stopping anybody: for lists, and for waiting.

use std::time::Duration;

use cgleaf_shared::process::liveness::{self, GroupProbe, Liveness};
use cgleaf_shared::process::{Proc, ProcView, ReadError};

use super::contradiction::contradiction;
use super::gc::GC_LOOKS;
use super::identity::{GroupIdentity, NOT_OF_HERE};
use super::members::members;

/// What looks show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Somebody of it lives: its monitor, its leader, or a member.
    Alive,
    /// Only what has left its group lives, or carries its mark.
    Strays,
    /// Nobody was seen, in as many looks as gc takes: a chain of forks may have kept out of them. Only [`super::destroy`] and
    /// [`super::gc_judges_over`], which stop a group to look at it, prove more.
    Nobody,
    /// Nobody has its group's number: it has ended.
    Gone,
    /// It was recorded in another boot or pid namespace.
    Elsewhere,
    /// The kernel says that its record's parts do not fit. Why.
    Contradicted(String),
    /// Nobody was seen, and somebody may be hidden. Why.
    Untold(String),
}

/// Why nothing may be done by a record, if nothing may: it is of another boot or pid namespace, or the kernel contradicts it.
///
/// # Errors
/// If the boot id cannot be read.
pub fn unfit(proc: &Proc, identity: &GroupIdentity) -> Result<Option<String>, ReadError> {
    if identity.is_of_here(proc)? {
        return Ok(contradiction(proc, identity));
    }
    Ok(Some(NOT_OF_HERE.to_owned()))
}

/// Looks at a session that is not known to be over.
///
/// # Errors
/// If /proc cannot be read.
pub fn look(proc: &Proc, identity: &GroupIdentity) -> Result<Seen, ReadError> {
    for _ in 0..GC_LOOKS {
        match look_once(proc, identity)? {
            Seen::Nobody => std::thread::sleep(Duration::from_micros(200)),
            told => return Ok(told),
        }
    }
    look_once(proc, identity)
}

/// The same by one look, for a session that is said to be over: whoever has written that knew it better than looks do.
///
/// # Errors
/// If /proc cannot be read.
pub fn look_once(proc: &Proc, identity: &GroupIdentity) -> Result<Seen, ReadError> {
    if !identity.is_of_here(proc)? {
        return Ok(Seen::Elsewhere);
    }
    if let Some(why) = contradiction(proc, identity) {
        return Ok(Seen::Contradicted(why));
    }
    let mut untold = hidden(proc);
    for process in identity.monitor.into_iter().chain(identity.leader()) {
        match liveness::of(proc, process) {
            Liveness::Alive => return Ok(Seen::Alive),
            Liveness::Unknown(why) => untold = Some(why),
            Liveness::Dead => {}
        }
    }
    let seen = members(proc, identity)?;
    if seen.iter().any(|member| member.is_of_its_group(identity)) {
        return Ok(Seen::Alive);
    }
    if !seen.is_empty() {
        return Ok(Seen::Strays);
    }
    let group = identity.pgid.map(liveness::probe_group);
    Ok(match (group, untold) {
        (Some(Ok(GroupProbe::Gone)), _) => Seen::Gone,
        (_, Some(why)) => Seen::Untold(why),
        _ => Seen::Nobody,
    })
}

/// Why somebody may be there whom nobody can see here, if that is so.
pub(super) fn hidden(proc: &Proc) -> Option<String> {
    match (proc.view(), proc.hides_processes()) {
        (Ok(ProcView::Own), Ok(false)) => None,
        (Ok(ProcView::Foreign), _) => Some("/proc is that of another pid namespace".to_owned()),
        (Ok(ProcView::Own), Ok(true)) => Some("/proc hides processes (hidepid)".to_owned()),
        (Err(error), _) | (_, Err(error)) => Some(error.to_string()),
    }
}
