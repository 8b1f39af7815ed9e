//! Processes that a session started and that are no longer in its leaf (DESIGN 4, "Strays").

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::time::Duration;

use cgleaf_shared::process::{Pid, Pidfd, Proc, ProcessDir, ProcessId, ReadError, liveness};
use serde_json::{Value, json};

use super::grip::Grip;
use super::inspect::argv_of;
use super::members::cgroup_of;
use super::reach::Reach;
use crate::client::Deadline;
use crate::error::Result;
use crate::group::{Followed, MARK_VARIABLE, Newcomers, carries_mark};
use crate::operations;
use crate::records::{RecordedStray, Tie};

/// How often a stray's subtree is walked again while something new appears in it.
const ROUNDS: usize = 100;
/// Looks for strays, where each shows one that has ended before it can be named: somebody follows him.
pub(super) const LOOKS: usize = 3;
/// How long a killed stray may take to end.
const END: Duration = Duration::from_secs(5);

/// A process outside of the leaf that a session started.
#[derive(Debug, Clone)]
pub struct Stray {
    /// Which.
    pub process: ProcessId,
    /// What ties it to the session.
    pub tie: Tie,
    /// Its real user, where it can be read.
    pub uid: Option<u32>,
    /// Its arguments.
    pub argv: Vec<OsString>,
    /// Where it is, as far as that can be read.
    pub cgroup: Option<String>,
    /// Whether it was ended.
    pub killed: bool,
}

impl Stray {
    fn describe(proc: &Proc, process: ProcessId, tie: Tie) -> Option<Self> {
        if liveness::of(proc, process).is_dead() {
            return None;
        }
        let dir = proc.process(process.pid).ok()?;
        Some(Self::seen(&dir, process, tie))
    }

    /// One that was just seen alive, as far as it can be described now.
    fn seen(dir: &ProcessDir, process: ProcessId, tie: Tie) -> Self {
        Self {
            process,
            tie,
            uid: dir.status().ok().map(|status| status.uids.real),
            argv: argv_of(dir),
            cgroup: cgroup_of(process.pid).map(|path| path.to_string()),
            killed: false,
        }
    }

    /// Whether it lives, or may.
    pub(super) fn lives(&self) -> bool {
        Reach::proc().map_or(true, |proc| !liveness::of(&proc, self.process).is_dead())
    }

    /// As `destroy` answers it.
    pub fn to_json(&self) -> Value {
        json!({
            "pid": self.process.pid,
            "start": self.process.start,
            "uid": self.uid,
            "argv": self.argv.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>(),
            "cgroup": self.cgroup,
            "tie": self.tie.name(),
            "killed": self.killed,
        })
    }

    /// As a message tells it.
    pub fn sentence(&self) -> String {
        let words: Vec<_> = self
            .argv
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        let uid = self.uid.map_or(String::new(), |uid| format!("uid {uid}, "));
        let place = self
            .cgroup
            .as_deref()
            .unwrap_or("a cgroup that cannot be read");
        let tie = match self.tie {
            Tie::Mark => "carries the session's mark and may be innocent",
            Tie::Leader => "the session's leader",
            Tie::Parent => "started by a member",
        };
        format!(
            "pid {} ({uid}{}) in {place}: {tie}",
            self.process.pid,
            words.join(" ")
        )
    }
}

/// Those outside the leaf whose parent is a member, each with its subtree. The members should stand still.
pub(super) fn children_outside(grip: &Grip, members: &[Pid]) -> Result<Vec<Stray>> {
    let proc = Reach::proc()?;
    let children = Children::of(&proc);
    let inside: BTreeSet<Pid> = members.iter().copied().collect();
    let mut found = BTreeMap::new();
    for parent in members {
        for child in children.of_process(*parent) {
            if !inside.contains(&child) && is_outside(grip, child) {
                walk(&children, child, &mut found);
            }
        }
    }
    Ok(describe_all(&proc, found.into_keys(), Tie::Parent))
}

fn is_outside(grip: &Grip, pid: Pid) -> bool {
    cgroup_of(pid).is_some_and(|path| !grip.holds(&path))
}

/// Everything beneath a process, itself included.
fn walk(children: &Children<'_>, root: Pid, found: &mut BTreeMap<Pid, ()>) {
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        if found.insert(pid, ()).is_none() {
            next.extend(children.of_process(pid));
        }
    }
}

fn describe_all(proc: &Proc, pids: impl Iterator<Item = Pid>, tie: Tie) -> Vec<Stray> {
    pids.filter_map(|pid| {
        let stat = proc.process(pid).and_then(|dir| dir.stat()).ok()?;
        Stray::describe(proc, stat.id, tie)
    })
    .collect()
}

/// The parents of processes: `task/*/children`, or where the kernel was built without it one reading of every `stat`.
struct Children<'a> {
    proc: &'a Proc,
    by_parent: Option<BTreeMap<Pid, Vec<Pid>>>,
}

impl<'a> Children<'a> {
    fn of(proc: &'a Proc) -> Self {
        let has_files = std::path::Path::new("/proc/thread-self/children").exists();
        Self {
            proc,
            by_parent: (!has_files).then(|| by_parent(proc)),
        }
    }

    fn of_process(&self, pid: Pid) -> Vec<Pid> {
        match &self.by_parent {
            Some(map) => map.get(&pid).cloned().unwrap_or_default(),
            None => self
                .proc
                .process(pid)
                .and_then(|dir| dir.children())
                .unwrap_or_default(),
        }
    }
}

fn by_parent(proc: &Proc) -> BTreeMap<Pid, Vec<Pid>> {
    let mut map: BTreeMap<Pid, Vec<Pid>> = BTreeMap::new();
    for pid in proc.pids().unwrap_or_default() {
        let stat = proc.process(pid).and_then(|dir| dir.stat());
        if let Some(parent) = stat.ok().and_then(|stat| stat.parent) {
            map.entry(parent).or_default().push(pid);
        }
    }
    map
}

/// After the end: the leader, if it lives outside, and whoever carries the mark, though they may have ended since they were
/// seen. `leader` is the helper's word, `recorded` the record's.
pub(super) fn after_the_end(
    leader: Option<ProcessId>,
    recorded: Option<ProcessId>,
    mark: Option<&str>,
    is_member: impl Fn(Pid) -> bool,
) -> Result<Vec<Stray>> {
    let proc = Reach::proc()?;
    let mut found = Vec::new();
    if let Some(leader) = leader {
        found.extend(Stray::describe(&proc, leader, Tie::Leader));
    }
    if let Some(mark) = mark {
        found.extend(marked(&proc, mark));
    }
    for stray in &mut found {
        // What only the record says could be anybody, and so could who only carries the mark; this one is both.
        if Some(stray.process) == recorded && stray.tie == Tie::Mark {
            stray.tie = Tie::Leader;
        }
    }
    found.retain(|stray| !is_member(stray.process.pid));
    Ok(found)
}

/// Whoever carries the mark: everybody is looked at, and where that shows nobody, whoever was made meanwhile, since a chain of
/// forks keeps out of any look.
fn marked(proc: &Proc, mark: &str) -> Vec<Stray> {
    let mut newcomers = Newcomers::new();
    let begun = newcomers.begin(proc);
    let pids = proc.pids().unwrap_or_default().into_iter();
    let mut found: Vec<Stray> = pids
        .filter_map(|pid| carrier(proc, pid, mark).ok().flatten())
        .collect();
    if found.is_empty() && begun.is_ok() {
        let followed = newcomers.follow(proc, |pid| carrier(proc, pid, mark));
        if let Ok(Followed::Found(stray)) = followed {
            found.push(stray);
        }
    }
    found
}

/// The process of this number, if it carries the mark; never the calling process.
fn carrier(proc: &Proc, pid: Pid, mark: &str) -> std::result::Result<Option<Stray>, ReadError> {
    if pid == Pid::own() {
        return Ok(None);
    }
    let marks = proc.environ_value_of(pid, MARK_VARIABLE)?;
    if !marks.is_some_and(|marks| carries_mark(&marks, mark)) {
        return Ok(None);
    }
    let dir = proc.process(pid)?;
    Ok(Some(Stray::seen(&dir, dir.stat()?.id, Tie::Mark)))
}

/// Those that an earlier destroy named and that still live.
pub(super) fn recorded(strays: &[RecordedStray]) -> Vec<Stray> {
    let Ok(proc) = Reach::proc() else {
        return Vec::new();
    };
    strays
        .iter()
        .filter_map(|stray| Stray::describe(&proc, stray.process, stray.tie))
        .collect()
}

/// One of each process, with the strongest tie.
pub(super) fn merged(strays: Vec<Stray>) -> Vec<Stray> {
    let mut by_pid: BTreeMap<Pid, Stray> = BTreeMap::new();
    for stray in strays {
        match by_pid.get(&stray.process.pid) {
            Some(known) if known.tie >= stray.tie => {}
            _ => {
                by_pid.insert(stray.process.pid, stray);
            }
        }
    }
    by_pid.into_values().collect()
}

/// Ends those that are tied to the session by more than a mark, with everything beneath them: all are stopped first, so
/// that none forks away from the walk.
pub(super) fn end(strays: &mut Vec<Stray>, is_member: impl Fn(Pid) -> bool) -> Result<()> {
    let proc = Reach::proc()?;
    let mut pinned: BTreeMap<Pid, (Pidfd, ProcessId)> = BTreeMap::new();
    let mut seen: BTreeSet<Pid> = BTreeSet::new();
    let mut next: Vec<ProcessId> = strays
        .iter()
        .filter(|stray| stray.tie.may_kill())
        .map(|stray| stray.process)
        .collect();
    for _ in 0..ROUNDS {
        for process in std::mem::take(&mut next) {
            seen.insert(process.pid);
            if let Some(held) = pin(&proc, process)
                && !is_member(process.pid)
            {
                // One that may not be signalled shows by living on.
                operations::tell_signal(process.pid, libc::SIGSTOP);
                let _ = held.send_signal(libc::SIGSTOP);
                pinned.insert(process.pid, (held, process));
            }
        }
        next = beneath(&proc, &pinned, &seen);
        if next.is_empty() {
            break;
        }
    }
    let deadline = Deadline::after(END);
    for (held, process) in pinned.values() {
        operations::tell_signal(process.pid, libc::SIGKILL);
        let _ = held.send_signal(libc::SIGKILL);
    }
    let mut ended = BTreeSet::new();
    for (pid, (held, _)) in &pinned {
        if held
            .wait(deadline.left().or(Some(Duration::ZERO)))
            .unwrap_or(false)
        {
            ended.insert(*pid);
        } else {
            operations::tell_signal(*pid, libc::SIGCONT);
            let _ = held.send_signal(libc::SIGCONT);
        }
    }
    let known: BTreeSet<Pid> = strays.iter().map(|stray| stray.process.pid).collect();
    let later = pinned.values().map(|(_, process)| *process);
    let unnamed =
        later.filter(|process| !known.contains(&process.pid) && !ended.contains(&process.pid));
    strays.extend(unnamed.filter_map(|process| Stray::describe(&proc, process, Tie::Parent)));
    for stray in strays.iter_mut() {
        stray.killed = ended.contains(&stray.process.pid);
    }
    Ok(())
}

/// Holds exactly that process, or nobody.
fn pin(proc: &Proc, process: ProcessId) -> Option<Pidfd> {
    if !process.pid.may_be_signalled() || process.pid == Pid::own() {
        return None;
    }
    let held = Pidfd::open(process.pid).ok()?;
    let stat = proc.process(process.pid).and_then(|dir| dir.stat()).ok()?;
    (stat.id == process && held.is_alive().unwrap_or(false)).then_some(held)
}

/// The children of the pinned processes that were not looked at yet.
fn beneath(
    proc: &Proc,
    pinned: &BTreeMap<Pid, (Pidfd, ProcessId)>,
    seen: &BTreeSet<Pid>,
) -> Vec<ProcessId> {
    let children = Children::of(proc);
    pinned
        .keys()
        .flat_map(|pid| children.of_process(*pid))
        .filter(|pid| !seen.contains(pid))
        .filter_map(|pid| Some(proc.process(pid).ok()?.stat().ok()?.id))
        .collect()
}
