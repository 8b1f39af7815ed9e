//! Who belongs to a session of the group tier, as far as that can be seen: never the whole truth, and said so.

use std::collections::BTreeMap;
use std::ffi::OsString;

use cgleaf_shared::process::files::environ_value;
use cgleaf_shared::process::{
    Autogroup, Pid, PidfdError, Proc, ProcessDir, ProcessId, ReadError, SignalHandle, Stat, State,
    liveness,
};

use super::identity::{GroupIdentity, MARK_VARIABLE};
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
    members_and(proc, identity, &[])
}

/// The same, with processes that were proven to be of the session before: what tied them may have ended since.
pub(super) fn members_and(
    proc: &Proc,
    identity: &GroupIdentity,
    known: &[ProcessId],
) -> Result<Vec<Member>, ReadError> {
    let mut beneath = beneath(proc, identity, known)?;
    let mut found = BTreeMap::new();
    let mut marked = Vec::new();
    let mut others = Vec::new();
    for pid in proc.pids()? {
        if pid == Pid::own() || Some(pid) == identity.monitor.map(|monitor| monitor.pid) {
            continue;
        }
        let Ok((process, stat)) = opened(proc, pid) else {
            continue;
        };
        let link = (stat.id, stat.parent);
        match look(&process, &stat, identity, &beneath) {
            Some(member) if member.tie == Tie::Proven => {
                found.insert(pid, member);
            }
            Some(member) => {
                others.push(link);
                marked.push(member);
            }
            None => others.push(link),
        }
    }
    found.extend(marked.into_iter().map(|member| (member.id.pid, member)));
    // Children of who is proven by itself: they may have left the group, and have taken the mark off.
    while let Some(at) = others.iter().position(|link| is_beneath(link, &found)) {
        let (id, _) = others.swap_remove(at);
        beneath.push(id);
        if let Ok((process, stat)) = opened(proc, id.pid)
            && let Some(member) = look(&process, &stat, identity, &beneath)
        {
            found.insert(id.pid, member);
        }
    }
    Ok(found.into_values().collect())
}

fn opened(proc: &Proc, pid: Pid) -> Result<(ProcessDir, Stat), ReadError> {
    let process = proc.process(pid)?;
    let stat = process.stat()?;
    Ok((process, stat))
}

/// Whether a process's parent is a proven member.
fn is_beneath((id, parent): &(ProcessId, Option<Pid>), found: &BTreeMap<Pid, Member>) -> bool {
    let parent = parent.and_then(|parent| found.get(&parent));
    parent.is_some_and(|parent| parent.tie == Tie::Proven && parent.id.start <= id.start)
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
    let (process, stat) = opened(proc, pid)?;
    Ok(look(&process, &stat, identity, &[]).filter(|member| member.id.pid != Pid::own()))
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

fn look(
    process: &ProcessDir,
    stat: &Stat,
    identity: &GroupIdentity,
    beneath: &[ProcessId],
) -> Option<Member> {
    let running = liveness::running_threads(process, stat.state).ok()?;
    let state = *running.first()?;
    let recorded = identity.autogroup.map(Autogroup::Id);
    let proven = (identity.leader() == Some(stat.id)
        && !identity.is_outside_of_its_autogroup(process))
        || (recorded.is_some() && process.autogroup().ok() == recorded)
        || beneath.contains(&stat.id);
    let marked = || {
        let environ = process.environ().unwrap_or_default();
        environ_value(&environ, MARK_VARIABLE).is_some_and(|value| identity.is_marked(value))
    };
    let tie = if proven {
        Tie::Proven
    } else if marked() {
        Tie::Mark
    } else {
        return None;
    };
    Some(Member {
        id: stat.id,
        parent: stat.parent,
        group: stat.group,
        state,
        wait_channel: if state == State::DiskSleep {
            process.wait_channel().unwrap_or_default()
        } else {
            String::new()
        },
        argv: process.cmdline().unwrap_or_default(),
        tie,
    })
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
