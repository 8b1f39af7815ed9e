//! How a session of the group tier looks, without stopping anybody: for lists, and for waiting.

use std::time::Duration;

use cgleaf_shared::process::liveness::{self, GroupProbe, Liveness};
use cgleaf_shared::process::{Proc, ReadError};

use super::gc::GC_LOOKS;
use super::identity::GroupIdentity;
use super::members::{Member, members};

/// What looks show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Somebody of it lives: its monitor, or these.
    Alive(Vec<Member>),
    /// Nobody was seen, in as many looks as gc takes: a chain of forks may have kept out of them. Only [`super::destroy`] and
    /// [`super::gc_judges_over`], which stop a group to look at it, prove more.
    Nobody,
    /// Nobody has its group's number: it has ended.
    Gone,
    /// It was recorded in another boot or pid namespace.
    Elsewhere,
}

/// Looks at a session.
///
/// # Errors
/// If /proc cannot be read.
pub fn look(proc: &Proc, identity: &GroupIdentity) -> Result<Seen, ReadError> {
    if !identity.is_of_here(proc)? {
        return Ok(Seen::Elsewhere);
    }
    let seen = members(proc, identity)?;
    let watched = identity
        .monitor
        .is_some_and(|monitor| liveness::of(proc, monitor) == Liveness::Alive);
    if watched || !seen.is_empty() {
        return Ok(Seen::Alive(seen));
    }
    let group = identity.pgid.map(liveness::probe_group);
    if matches!(group, Some(Ok(GroupProbe::Gone))) {
        return Ok(Seen::Gone);
    }
    for _ in 0..GC_LOOKS {
        let seen = members(proc, identity)?;
        if !seen.is_empty() {
            return Ok(Seen::Alive(seen));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(Seen::Nobody)
}
