//! Who belongs to a session of the group tier, as far as that can be seen: never the whole truth, and said so.

use std::collections::BTreeMap;
use std::ffi::OsString;

use cgleaf_shared::process::{
    Pid, PidfdError, Proc, ProcessId, ReadError, SignalHandle, State, liveness,
};

use super::crowd::{Crowd, Person};
use super::identity::GroupIdentity;
use super::tree;
use crate::operations;

/// By what a process was found to be the session's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tie {
    /// It carries the mark. Others may carry it too (`systemctl --user import-environment`): it names, and is never killed for.
    Mark,
    /// It is of the recorded setsid's autogroup, or the recorded leader, or beneath one of these or the monitor.
    Proven,
}

/// A process of a session, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which process.
    pub id: ProcessId,
    /// Its parent.
    pub parent: Option<Pid>,
    /// Its process group.
    pub group: Option<Pid>,
    /// What it does.
    pub state: State,
    /// In which kernel function it waits, where the kernel tells. For a process in `D` state.
    pub wait_channel: String,
    /// Its arguments.
    pub argv: Vec<OsString>,
    /// By what it was found.
    pub tie: Tie,
}

impl Member {
    /// Is it proven to be the session's, and not outside of the group that was recorded?
    #[must_use]
    pub fn is_of_its_group(&self, identity: &GroupIdentity) -> bool {
        self.tie == Tie::Proven && (identity.pgid.is_none() || self.group == identity.pgid)
    }
}

/// Every living process that is seen to be of the session: in its group, of its autogroup, beneath its leader or its
/// monitor, or marked. Not the calling process. One look: a chain of forks keeps out of it.
///
/// # Errors
/// If /proc cannot be read.
pub fn members(proc: &Proc, identity: &GroupIdentity) -> Result<Vec<Member>, ReadError> {
    members_and(&mut Crowd::default(), proc, identity, &[])
}

/// The same, with processes that were proven to be of the session before: what tied them may have ended since. `crowd` is
/// that of the look before.
pub(super) fn members_and(
    crowd: &mut Crowd,
    proc: &Proc,
    identity: &GroupIdentity,
    known: &[ProcessId],
) -> Result<Vec<Member>, ReadError> {
    // Before the look: who is beneath a process now may be an orphan then.
    let beneath = beneath(proc, identity, known)?;
    crowd.renew(proc)?;
    Ok(members_among(crowd, proc, identity, &beneath))
}

/// The same of a look that was taken; `beneath` are those that are proven by their parents.
pub(super) fn members_among(
    crowd: &Crowd,
    proc: &Proc,
    identity: &GroupIdentity,
    beneath: &[ProcessId],
) -> Vec<Member> {
    let monitor = identity.monitor.map(|monitor| monitor.pid);
    let mut found = BTreeMap::new();
    let mut others = Vec::new();
    for person in crowd.living().filter(|it| Some(it.id.pid) != monitor) {
        match person.tie(identity, beneath) {
            Some(Tie::Proven) => {
                found.insert(person.id.pid, (person, Tie::Proven));
            }
            tie => others.push((person, tie)),
        }
    }
    // Children of who is proven by itself: they may have left the group, and have taken the mark off.
    while let Some(at) = others.iter().position(|(it, _)| is_beneath(it, &found)) {
        let (person, _) = others.swap_remove(at);
        found.insert(person.id.pid, (person, Tie::Proven));
    }
    let marked = others
        .into_iter()
        .filter_map(|(person, tie)| Some((person.id.pid, (person, tie?))));
    found.extend(marked);
    let members = found.into_values();
    members.map(|(it, tie)| member(proc, it, tie)).collect()
}

/// Whether a process's parent is a proven member.
fn is_beneath(person: &Person, found: &BTreeMap<Pid, (&Person, Tie)>) -> bool {
    let parent = person.parent.and_then(|parent| found.get(&parent));
    parent.is_some_and(|(parent, _)| parent.id.start <= person.id.start)
}

pub(super) fn member(proc: &Proc, person: &Person, tie: Tie) -> Member {
    let process = proc.process(person.id.pid).ok();
    let waits = process
        .as_ref()
        .filter(|_| person.state == State::DiskSleep)
        .and_then(|process| process.wait_channel().ok());
    Member {
        id: person.id,
        parent: person.parent,
        group: person.group,
        state: person.state,
        wait_channel: waits.unwrap_or_default(),
        argv: process
            .and_then(|process| process.cmdline().ok())
            .unwrap_or_default(),
        tie,
    }
}

/// The process of this number as a living member of the session; `None` where it is none, or is the calling process.
///
/// # Errors
/// There is no process of this number, as far as can be seen.
pub(super) fn see(
    proc: &Proc,
    pid: Pid,
    identity: &GroupIdentity,
) -> Result<Option<Member>, ReadError> {
    let person = Person::read(proc, pid)?.filter(|person| person.id.pid != Pid::own());
    Ok(person.and_then(|person| as_member(proc, &person, identity)))
}

/// A living process as a member of the session, if something of its own ties it to that.
pub(super) fn as_member(proc: &Proc, person: &Person, identity: &GroupIdentity) -> Option<Member> {
    let tie = person.tie(identity, &[])?;
    Some(member(proc, person, tie))
}

/// The processes beneath the leader, the monitor and those that are known, and these themselves, each by its identity.
fn beneath(
    proc: &Proc,
    identity: &GroupIdentity,
    known: &[ProcessId],
) -> Result<Vec<ProcessId>, ReadError> {
    let mut all = known.to_vec();
    let roots = identity.monitor.into_iter().chain(identity.leader());
    for root in roots.chain(known.iter().copied()) {
        if liveness::of(proc, root) == liveness::Liveness::Alive {
            all.extend(tree::beneath(proc, root.pid)?.iter().map(|stat| stat.id));
        }
    }
    Ok(all)
}

/// Sends a signal to a member that is held, if it still is that process. `false` if it is not, or is dead.
///
/// # Errors
/// EPERM; or that it cannot be held: then nothing is sent.
pub(super) fn signal_member(proc: &Proc, member: ProcessId, signal: i32) -> std::io::Result<bool> {
    let held = match SignalHandle::open(member.pid) {
        Ok(held) => held,
        // It was there when all were looked at, and has ended since.
        Err(PidfdError::Gone(_) | PidfdError::NotAProcess(_)) => return Ok(false),
        Err(error) => return Err(std::io::Error::other(error.to_string())),
    };
    if liveness::of(proc, member) != liveness::Liveness::Alive {
        return Ok(false);
    }
    operations::tell_signal(member.pid, signal);
    held.send_signal(signal)
}

/// Signals every proven member that one look shows (`cgleaf signal`). Whom it reached, and who may not be signalled.
///
/// # Errors
/// If /proc cannot be read.
pub fn signal_members(
    proc: &Proc,
    identity: &GroupIdentity,
    signal: i32,
) -> Result<(Vec<ProcessId>, Vec<ProcessId>), ReadError> {
    let mut reached = Vec::new();
    let mut denied = Vec::new();
    for member in members(proc, identity)?
        .into_iter()
        .filter(|member| member.tie == Tie::Proven)
    {
        match signal_member(proc, member.id, signal) {
            Ok(true) => reached.push(member.id),
            Ok(false) => {}
            Err(_) => denied.push(member.id),
        }
    }
    Ok((reached, denied))
}
