//! Who belongs to a session of the group tier, as far as that can be seen: never the whole truth, and said so.

use std::collections::BTreeMap;
use std::ffi::OsString;

use cgleaf_shared::process::files::environ_value;
use cgleaf_shared::process::{
    Autogroup, Pid, PidfdError, Proc, ProcessDir, ProcessId, ReadError, SignalHandle, State,
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

/// Every living process that is seen to be of the session: in its group, of its autogroup, beneath its leader or its
/// monitor, or marked. Not the calling process. One look: a chain of forks keeps out of it.
///
/// # Errors
/// If /proc cannot be read.
pub fn members(proc: &Proc, identity: &GroupIdentity) -> Result<Vec<Member>, ReadError> {
    let beneath = beneath(proc, identity)?;
    let mut found = BTreeMap::new();
    for pid in proc.pids()? {
        if pid == Pid::own() || Some(pid) == identity.monitor.map(|monitor| monitor.pid) {
            continue;
        }
        if let Ok(process) = proc.process(pid)
            && let Some(member) = look(&process, identity, &beneath)
        {
            found.insert(pid, member);
        }
    }
    Ok(found.into_values().collect())
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
    let process = proc.process(pid)?;
    Ok(look(&process, identity, &[]).filter(|member| member.id.pid != Pid::own()))
}

/// The processes beneath the leader and the monitor, each by its identity.
fn beneath(proc: &Proc, identity: &GroupIdentity) -> Result<Vec<ProcessId>, ReadError> {
    let mut all = Vec::new();
    for root in identity.monitor.into_iter().chain(identity.leader()) {
        if liveness::of(proc, root) == liveness::Liveness::Alive {
            tree::walk(proc, root.pid, |found| all.push(found.stat.id))?;
        }
    }
    Ok(all)
}

fn look(process: &ProcessDir, identity: &GroupIdentity, beneath: &[ProcessId]) -> Option<Member> {
    let stat = process.stat().ok()?;
    let running = liveness::running_threads(process, stat.state).ok()?;
    let state = *running.first()?;
    let recorded = identity.autogroup.map(Autogroup::Id);
    let proven = identity.leader() == Some(stat.id)
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
