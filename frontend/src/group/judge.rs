//! Whether gc may forget a session of the group tier.

use std::time::Duration;

use cgleaf_shared::process::liveness::{self, Liveness};
use cgleaf_shared::process::{Proc, ReadError};

use super::contradiction::contradiction;
use super::gc::{Gc, Judgement, Keep};
use super::guards::AllGuards;
use super::identity::{GroupIdentity, NOT_OF_HERE};
use super::look::{Seen, hidden, look};
use super::procfs::ProcfsKernel;

/// What gc is to do with a record, and why it keeps one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GcVerdict {
    /// Proven over: the record may go.
    Over,
    /// It stays.
    Kept(String),
}

/// Judges whether a session is over. `destroy_began` is asked before each freeze: a destroy owns its record.
/// `end_recorded` is as in [`super::destroy::DestroyOptions`].
///
/// # Errors
/// If /proc cannot be read at all.
pub fn gc_judges_over(
    identity: &GroupIdentity,
    destroy_began: &dyn Fn() -> bool,
    end_recorded: &dyn Fn() -> bool,
) -> Result<GcVerdict, ReadError> {
    let proc = Proc::system()?;
    let kept = |why: &str| Ok(GcVerdict::Kept(why.to_owned()));
    if proc.boot_id()? != identity.boot_id {
        return Ok(GcVerdict::Over);
    }
    if !identity.is_of_here(&proc)? {
        return kept("recorded in another pid namespace");
    }
    if let Some(why) = contradiction(&proc, identity) {
        return Ok(GcVerdict::Kept(format!("its record does not fit: {why}")));
    }
    if let Some(monitor) = identity.monitor {
        match liveness::of(&proc, monitor) {
            Liveness::Alive => return kept("running"),
            Liveness::Unknown(why) => return Ok(GcVerdict::Kept(why)),
            Liveness::Dead if end_recorded() => return Ok(GcVerdict::Over),
            Liveness::Dead => {}
        }
    }
    if destroy_began() {
        return kept("being destroyed");
    }
    match look(&proc, identity)? {
        Seen::Alive | Seen::Strays => return kept("running"),
        Seen::Elsewhere => return kept(NOT_OF_HERE),
        Seen::Contradicted(why) | Seen::Untold(why) => return Ok(GcVerdict::Kept(why)),
        Seen::Nobody | Seen::Gone => {}
    }
    match ProcfsKernel::new(&proc, identity, Duration::ZERO) {
        Some(kernel) => Ok(judge_group(&mut kernel.for_gc(destroy_began))),
        None => judge_without_group(&proc, identity),
    }
}

fn judge_group(kernel: &mut ProcfsKernel<'_>) -> GcVerdict {
    let why = match Gc::<AllGuards>::default().run(kernel) {
        Judgement::Over => return GcVerdict::Over,
        Judgement::Kept(Keep::Seen) => {
            "somebody has its process group: it runs, or the number was used again"
        }
        Judgement::Kept(Keep::BeingDestroyed) => "being destroyed",
        Judgement::Kept(Keep::ForeignProc) => "/proc is that of another pid namespace",
        Judgement::Kept(Keep::NotProven) => {
            "its process group is there, and nobody of it can be seen"
        }
        Judgement::Kept(Keep::NotPermitted) => "this user may not signal its process group",
    };
    GcVerdict::Kept(why.to_owned())
}

/// There is no group to be frozen: the leader is dead by its start, and as many looks as a group gets have shown nobody who
/// carries the mark. docs/LIMITS.md says what that does not prove.
fn judge_without_group(proc: &Proc, identity: &GroupIdentity) -> Result<GcVerdict, ReadError> {
    match identity.leader().map(|leader| liveness::of(proc, leader)) {
        Some(Liveness::Dead) => {}
        Some(Liveness::Alive) => return Ok(GcVerdict::Kept("running".to_owned())),
        Some(Liveness::Unknown(why)) => return Ok(GcVerdict::Kept(why)),
        None => {
            return Ok(GcVerdict::Kept(
                "its leader's start was not recorded".to_owned(),
            ));
        }
    }
    Ok(match hidden(proc) {
        Some(why) => GcVerdict::Kept(why),
        None => GcVerdict::Over,
    })
}
