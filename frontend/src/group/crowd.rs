//! Everybody whom `/proc` shows, read once for as many sessions as are looked at.

use std::collections::BTreeMap;

use cgleaf_shared::process::{Autogroup, Pid, Proc, ProcessId, ReadError, State, liveness};

use super::identity::{GroupIdentity, MARK_VARIABLE};
use super::members::Tie;

/// A living process, as far as it can tie it to a session.
#[derive(Debug)]
pub(super) struct Person {
    pub(super) id: ProcessId,
    pub(super) parent: Option<Pid>,
    pub(super) group: Option<Pid>,
    pub(super) state: State,
    autogroup: Option<Autogroup>,
    /// The marks of its sessions; none where its environment cannot be read.
    marks: Option<Vec<u8>>,
}

impl Person {
    /// The process of this number; `None` if it has ended.
    ///
    /// # Errors
    /// There is none, as far as can be seen.
    pub(super) fn read(proc: &Proc, pid: Pid) -> Result<Option<Person>, ReadError> {
        let process = proc.process(pid)?;
        let stat = process.stat()?;
        let running = liveness::running_threads(&process, stat.state)?;
        let Some(state) = running.first().copied() else {
            return Ok(None);
        };
        Ok(Some(Person {
            id: stat.id,
            parent: stat.parent,
            group: stat.group,
            state,
            autogroup: process.autogroup().ok(),
            marks: process.environ_value(MARK_VARIABLE).ok().flatten(),
        }))
    }

    /// What ties it to a session by itself, or since it is one of these.
    pub(super) fn tie(&self, identity: &GroupIdentity, beneath: &[ProcessId]) -> Option<Tie> {
        let same_setsid = match (identity.autogroup, &self.autogroup) {
            (Some(recorded), Some(Autogroup::Id(id))) => Some(recorded == *id),
            _ => None,
        };
        let is_leader = identity.leader() == Some(self.id) && same_setsid != Some(false);
        if is_leader || same_setsid == Some(true) || beneath.contains(&self.id) {
            return Some(Tie::Proven);
        }
        let marks = self.marks.as_deref()?;
        identity.is_marked(marks).then_some(Tie::Mark)
    }
}

/// Everybody but the calling process.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    people: BTreeMap<Pid, Face>,
}

/// What was seen behind a number.
#[derive(Debug)]
enum Face {
    Living(Person),
    /// Dead, and not reaped. Whoever gets the number after it is somebody new, and looked for as such.
    Dead,
    /// Nothing that could be read.
    Unread,
}

impl Face {
    fn of(proc: &Proc, pid: Pid) -> Face {
        match Person::read(proc, pid) {
            Ok(Some(person)) => Face::Living(person),
            Ok(None) => Face::Dead,
            Err(_) => Face::Unread,
        }
    }

    /// Whether another reading would tell no more.
    fn is_known(&self) -> bool {
        match self {
            Face::Living(person) => person.marks.is_some(),
            Face::Dead => true,
            Face::Unread => false,
        }
    }
}

impl Crowd {
    /// A look at everybody, which reads whoever came since the last one, and whom that one could not read.
    ///
    /// # Errors
    /// If /proc cannot be listed.
    pub(super) fn look_again(&mut self, proc: &Proc) -> Result<(), ReadError> {
        let mut before = std::mem::take(&mut self.people);
        for pid in proc.pids()? {
            if pid == Pid::own() {
                continue;
            }
            let known = before.remove(&pid).filter(Face::is_known);
            let now = known.unwrap_or_else(|| Face::of(proc, pid));
            self.people.insert(pid, now);
        }
        Ok(())
    }

    /// The same, which reads everybody but those who were dead.
    ///
    /// # Errors
    /// If /proc cannot be listed.
    pub(super) fn renew(&mut self, proc: &Proc) -> Result<(), ReadError> {
        self.people.retain(|_, face| matches!(face, Face::Dead));
        self.look_again(proc)
    }

    /// Those that live.
    pub(super) fn living(&self) -> impl Iterator<Item = &Person> {
        self.people.values().filter_map(|face| match face {
            Face::Living(person) => Some(person),
            Face::Dead | Face::Unread => None,
        })
    }
}
