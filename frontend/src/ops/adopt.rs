//! Taking a process that runs already, and what it started, into a session of its own.
//!
//! A move takes one process and none of its children. So they are stopped first, moved one by one, and looked for again
//! until nobody is outside: whoever is born in the leaf stays there. A process that leads its group has the whole group
//! stopped at once: a fork that would outrun a listing is begun again by the kernel, and finds the signal. What has left
//! that group *and* lost its parent is nobody's any more, and nothing can tell that it once was this program's.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::time::Duration;

use cgleaf_shared::id::SessionId;
use cgleaf_shared::process::{Pid, Pidfd, Proc, ProcessId, Stat};
use cgleaf_shared::wire::{Reply, Request};
use nix::sys::signal::killpg;

use super::grip::Grip;
use super::reach::Reach;
use super::session::Session;
use crate::client::Deadline;
use crate::error::{Code, Error, Result};
use crate::operations;
use crate::trace::Role;

/// How often processes are looked for; each round that finds one outside is followed by another.
const ROUNDS: usize = 200;
/// A stop takes effect when the kernel next runs the process.
const SETTLE: Duration = Duration::from_millis(1);

/// What an adoption moved, and what it could not prove.
#[derive(Debug, Default)]
pub struct Adopted {
    /// The processes that were moved.
    pub moved: Vec<Pid>,
    /// Whether the process led its process group or its POSIX session, so that also what lost its parent was found.
    pub by_group: bool,
    /// What may be outside of the leaf, in words.
    pub unproven: Vec<String>,
}

/// Moves a process and what it started into the leaf of a session that was just made for it. Whatever was stopped for
/// that goes on afterwards.
///
/// # Errors
/// REFUSED: it has just ended. HELPER_UNREACHABLE, PROTOCOL.
pub(crate) fn gather_into(reach: &Reach, session: &SessionId, root: ProcessId) -> Result<Adopted> {
    let session = Session {
        id: session.clone(),
        found: None,
        listed: None,
    };
    let mut grip = reach.grip(&session, Role::Create)?;
    let proc = Reach::proc()?;
    let mut gathering = Gathering::new(&proc, root)?;
    let result = gathering.run(&mut grip);
    gathering.let_go_on();
    result?;
    if gathering.done.moved.is_empty() && gathering.done.unproven.is_empty() {
        gathering.lost(root);
    }
    Ok(gathering.done)
}

/// The processes of one adoption.
struct Gathering<'a> {
    proc: &'a Proc,
    root: ProcessId,
    /// What the root leads: everything in it belongs to it, also what lost its parent.
    group: Option<Pid>,
    session: Option<Pid>,
    /// Everybody known to belong to it, by number and start.
    known: BTreeMap<Pid, ProcessId>,
    /// The groups that were stopped as a whole.
    groups: BTreeSet<Pid>,
    /// Those that stood still before.
    stood_still: BTreeSet<ProcessId>,
    /// Those that were stopped here.
    stopped: BTreeMap<Pid, Pidfd>,
    refused: BTreeSet<Pid>,
    done: Adopted,
}

impl<'a> Gathering<'a> {
    fn new(proc: &'a Proc, root: ProcessId) -> Result<Self> {
        let stat = proc
            .process(root.pid)
            .and_then(|dir| dir.stat())
            .ok()
            .filter(|stat| stat.id == root)
            .ok_or_else(|| gone(root.pid))?;
        Ok(Self {
            proc,
            group: stat.group.filter(|group| *group == root.pid),
            session: stat.session.filter(|session| *session == root.pid),
            known: BTreeMap::from([(root.pid, root)]),
            groups: BTreeSet::new(),
            stood_still: BTreeSet::new(),
            stopped: BTreeMap::new(),
            refused: BTreeSet::new(),
            done: Adopted {
                by_group: [stat.group, stat.session].contains(&Some(root.pid)),
                ..Adopted::default()
            },
            root,
        })
    }

    fn run(&mut self, grip: &mut Grip) -> Result<()> {
        let mut quiet = 0;
        for _ in 0..ROUNDS {
            self.stop_groups();
            let outside = self.outside(grip);
            if outside.is_empty() {
                quiet += 1;
                // Everybody known is in the leaf, and a second look right after finds nobody else.
                if quiet == 2 {
                    return Ok(());
                }
                continue;
            }
            quiet = 0;
            for process in &outside {
                self.stop(*process);
            }
            std::thread::sleep(SETTLE);
            for process in outside {
                self.take_in(grip, process)?;
            }
        }
        self.done.unproven.push(format!(
            "after {ROUNDS} looks there still was a process outside of the leaf"
        ));
        Ok(())
    }

    /// Those that belong to it and are neither in the leaf nor refused. All of /proc is read: an orphan of a process
    /// group or a POSIX session is told by that alone.
    fn outside(&mut self, grip: &Grip) -> Vec<ProcessId> {
        let stats = self.stats();
        self.forget_former(&stats);
        // Until nothing is added: a child may stand before its parent.
        loop {
            let before = self.known.len();
            for stat in &stats {
                if self.belongs(stat) {
                    self.known.insert(stat.id.pid, stat.id);
                }
            }
            if self.known.len() == before {
                break;
            }
        }
        let mut outside: Vec<ProcessId> = stats
            .iter()
            .map(|stat| stat.id)
            .filter(|id| self.known.get(&id.pid) == Some(id))
            .filter(|id| !self.refused.contains(&id.pid) && !grip.is_member(id.pid))
            .collect();
        // The helper takes the first one to be the session's leader.
        outside.sort_by_key(|id| *id != self.root);
        outside
    }

    fn stats(&self) -> Vec<Stat> {
        let pids = self.proc.pids().unwrap_or_default();
        pids.into_iter()
            .filter_map(|pid| self.proc.process(pid).ok()?.stat().ok())
            .filter(|stat| !stat.state.is_over())
            .collect()
    }

    /// A number that another process has now belongs to nobody of ours.
    fn forget_former(&mut self, stats: &[Stat]) {
        for stat in stats {
            if self
                .known
                .get(&stat.id.pid)
                .is_some_and(|id| *id != stat.id)
            {
                self.known.remove(&stat.id.pid);
            }
        }
    }

    fn belongs(&self, stat: &Stat) -> bool {
        let own = Pid::own();
        stat.id.pid != own
            && (stat
                .parent
                .is_some_and(|parent| parent != own && self.known.contains_key(&parent))
                || self.is_of_own_group(stat))
    }

    /// Stops the groups that are the program's own, each once. Who stood still before is noted.
    fn stop_groups(&mut self) {
        let stats = self.stats();
        let groups: BTreeSet<Pid> = stats
            .iter()
            .filter(|stat| self.is_of_own_group(stat))
            .filter_map(|stat| stat.group)
            .filter(|group| group.may_be_signalled() && !self.groups.contains(group))
            .collect();
        let own = nix::unistd::getpgrp().as_raw();
        for group in groups {
            self.groups.insert(group);
            let still = stats
                .iter()
                .filter(|stat| stat.group == Some(group) && stat.state.is_stopped());
            self.stood_still.extend(still.map(|stat| stat.id));
            if group.get() == own {
                // It would stop this process too: its members are stopped one by one.
                self.done.by_group = false;
                continue;
            }
            // ESRCH: it has ended meanwhile. EPERM: nobody in it may be signalled, and none of them will be adopted.
            operations::tell_group_signal(group, libc::SIGSTOP);
            let _ = killpg(
                nix::unistd::Pid::from_raw(group.get()),
                nix::sys::signal::Signal::SIGSTOP,
            );
        }
        std::thread::sleep(SETTLE);
    }

    fn is_of_own_group(&self, stat: &Stat) -> bool {
        (self.group.is_some() && stat.group == self.group)
            || (self.session.is_some() && stat.session == self.session)
    }

    /// Stops a process, unless it stood still before: then it is to stand still afterwards.
    fn stop(&mut self, process: ProcessId) {
        let Some((held, stat)) = self.pin(process) else {
            return;
        };
        if self.stood_still.contains(&process) {
            return;
        }
        let in_stopped_group = stat.group.is_some_and(|group| self.groups.contains(&group));
        if stat.state.is_stopped() && !in_stopped_group {
            self.stood_still.insert(process);
            return;
        }
        operations::tell_signal(process.pid, libc::SIGSTOP);
        if held.send_signal(libc::SIGSTOP).is_ok() {
            self.stopped.insert(process.pid, held);
        }
    }

    fn pin(&self, process: ProcessId) -> Option<(Pidfd, Stat)> {
        if !process.pid.may_be_signalled() {
            return None;
        }
        let held = Pidfd::open(process.pid).ok()?;
        let stat = self.proc.process(process.pid).ok()?.stat().ok()?;
        (stat.id == process).then_some((held, stat))
    }

    fn take_in(&mut self, grip: &mut Grip, process: ProcessId) -> Result<()> {
        let Some((held, _)) = self.pin(process) else {
            self.lost(process);
            return Ok(());
        };
        let request = Request::Adopt {
            target: grip.target.clone(),
        };
        let deadline = Deadline::after(Deadline::REQUEST);
        let (reply, _) = grip
            .client
            .call_full(&request, Some(held.as_fd()), deadline)?;
        match reply {
            Reply::Adopted => self.done.moved.push(process.pid),
            Reply::Refused(_) if !held.is_alive().unwrap_or(true) => self.lost(process),
            Reply::Refused(refusal) => {
                self.refused.insert(process.pid);
                self.done.unproven.push(refusal.message);
            }
            _ => return Err(grip.unexpected("adopt")),
        }
        Ok(())
    }

    /// It ended before it stood still, and may have left children.
    fn lost(&mut self, process: ProcessId) {
        self.done.unproven.push(format!(
            "process {} ended before it could be moved, and what it may have started is nobody's child any more",
            process.pid
        ));
    }

    /// Everybody who was stopped here goes on, those too of a stopped group that were never adopted.
    fn let_go_on(&mut self) {
        for stat in self.stats() {
            let in_stopped_group = stat.group.is_some_and(|group| self.groups.contains(&group));
            if in_stopped_group
                && !self.stood_still.contains(&stat.id)
                && let Some((held, _)) = self.pin(stat.id)
            {
                self.stopped.entry(stat.id.pid).or_insert(held);
            }
        }
        for (pid, held) in &self.stopped {
            operations::tell_signal(*pid, libc::SIGCONT);
            // One that ended meanwhile needs none.
            let _ = held.send_signal(libc::SIGCONT);
        }
    }
}

fn gone(pid: Pid) -> Error {
    Error::new(
        Code::Refused,
        format!(
            "nothing was adopted: process {pid} has just ended, and what it may have started is nobody's child any more"
        ),
    )
}
