//! All that is beneath a process, and its end. Beneath a child subreaper (prctl(2)) nothing gets away: what is orphaned
//! becomes the subreaper's own child, whatever it did with groups and POSIX sessions.

use std::collections::HashMap;

use crate::operations;
use cgleaf_shared::process::{Pid, PidfdError, Proc, ProcessId, ReadError, SignalHandle, Stat};

/// How one process's children are found.
enum Children {
    /// `/proc/<pid>/task/*/children`.
    Files,
    /// Without `CONFIG_PROC_CHILDREN`: the parents that every process states.
    Parents(HashMap<Pid, Vec<Pid>>),
}

impl Children {
    fn find(proc: &Proc) -> Result<Children, ReadError> {
        if proc.own()?.has_children_file()? {
            return Ok(Children::Files);
        }
        let mut parents: HashMap<Pid, Vec<Pid>> = HashMap::new();
        for pid in proc.pids()? {
            let parent = proc
                .process(pid)
                .and_then(|process| process.stat())
                .ok()
                .and_then(|stat| stat.parent);
            if let Some(parent) = parent {
                parents.entry(parent).or_default().push(pid);
            }
        }
        Ok(Children::Parents(parents))
    }

    fn of(&self, proc: &Proc, pid: Pid) -> Vec<Pid> {
        match self {
            // A process that has gone meanwhile left its children to the subreaper: the next walk finds them there.
            Children::Files => proc
                .process(pid)
                .and_then(|process| process.children())
                .unwrap_or_default(),
            Children::Parents(parents) => parents.get(&pid).cloned().unwrap_or_default(),
        }
    }
}

/// What is beneath `root`, parents before their children, as one look shows it. A process that is orphaned meanwhile is missed,
/// unless `root` is the subreaper: then the next look finds it as a child.
///
/// # Errors
/// If /proc cannot be read.
pub(super) fn beneath(proc: &Proc, root: Pid) -> Result<Vec<Stat>, ReadError> {
    let children = Children::find(proc)?;
    let mut found = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for pid in children.of(proc, parent) {
            if let Some(stat) = child(proc, pid, parent, root) {
                found.push(stat);
                parents.push(pid);
            }
        }
    }
    Ok(found)
}

/// A listed child must still say that its parent is this one, or the root, to which it may have come as an orphan.
fn child(proc: &Proc, pid: Pid, parent: Pid, root: Pid) -> Option<Stat> {
    let stat = proc.process(pid).and_then(|process| process.stat()).ok()?;
    let is_child = stat.parent == Some(parent) || stat.parent == Some(root);
    is_child.then_some(stat)
}

/// Sends a signal to everything beneath `root` that one look shows. Whom it reached.
///
/// Not a whole: what is forked meanwhile may be missed, so it is repeated until nothing is there.
///
/// # Errors
/// If /proc cannot be read.
pub(super) fn signal_all(proc: &Proc, root: Pid, signal: i32) -> Result<Vec<ProcessId>, ReadError> {
    let found = beneath(proc, root)?.into_iter().filter(runs);
    Ok(signal_each(proc, found.map(|stat| stat.id), signal))
}

/// Asks everything beneath `root` to end: SIGTERM, and SIGCONT for what is stopped. Whom it reached.
///
/// Nobody is asked before all have been seen: a process that ends at once leaves its children to others, and one that is made
/// by who was asked tidies up.
///
/// # Errors
/// If /proc cannot be read.
pub(super) fn ask_all(proc: &Proc, root: Pid) -> Result<Vec<ProcessId>, ReadError> {
    let mut all: Vec<ProcessId> = Vec::new();
    for _ in 0..LOOKS {
        let before = all.len();
        let found = beneath(proc, root)?.into_iter().filter(runs);
        for id in found.map(|stat| stat.id) {
            if !all.contains(&id) {
                all.push(id);
            }
        }
        if all.len() == before {
            break;
        }
    }
    let asked = signal_each(proc, all, libc::SIGTERM);
    signal_each(proc, asked.iter().copied(), libc::SIGCONT);
    Ok(asked)
}

/// Looks at what is beneath a process, until one shows nobody new.
const LOOKS: u32 = 10;

fn runs(stat: &Stat) -> bool {
    !stat.state.is_over() || stat.threads > 1
}

fn signal_each(
    proc: &Proc,
    all: impl IntoIterator<Item = ProcessId>,
    signal: i32,
) -> Vec<ProcessId> {
    let reached = |process: &ProcessId| signal_one(proc, *process, signal).unwrap_or(false);
    all.into_iter().filter(reached).collect()
}

/// Held first, then known to be the one that was seen. Where it cannot be held (no descriptor left) the number is used: its
/// owner was read a moment ago.
fn signal_one(proc: &Proc, process: ProcessId, signal: i32) -> std::io::Result<bool> {
    let pid = process.pid;
    let held = SignalHandle::open(pid);
    let now = proc.process(pid).and_then(|process| process.stat());
    if !now.is_ok_and(|stat| stat.id == process) {
        return Ok(false);
    }
    match held {
        Ok(held) => {
            operations::tell_signal(pid, signal);
            held.send_signal(signal)
        }
        Err(PidfdError::Gone(_) | PidfdError::NotAProcess(_)) => Ok(false),
        Err(_) => {
            let signal = nix::sys::signal::Signal::try_from(signal)?;
            operations::tell(|| format!("kill(2): {signal} to pid {pid}"));
            match nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.get()), signal) {
                Ok(()) => Ok(true),
                Err(nix::Error::ESRCH) => Ok(false),
                Err(errno) => Err(errno.into()),
            }
        }
    }
}
