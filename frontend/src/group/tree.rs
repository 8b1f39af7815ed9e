//! All that is beneath a process, and its end. Beneath a child subreaper (prctl(2)) nothing gets away: what is orphaned
//! becomes the subreaper's own child, whatever it did with groups and POSIX sessions.

use std::collections::HashMap;

use crate::operations;
use cgleaf_shared::process::{Pid, Proc, ProcessId, ReadError, SignalHandle, Stat};

/// A process beneath another one, held by its number's owner.
#[derive(Debug)]
pub(super) struct Descendant {
    pub(super) held: Option<SignalHandle>,
    pub(super) stat: Stat,
}

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

/// Visits what is beneath `root`, parents before their children. A process that is orphaned meanwhile is missed, unless
/// `root` is the subreaper: then the next walk finds it as a child.
pub(super) fn walk(
    proc: &Proc,
    root: Pid,
    mut visit: impl FnMut(Descendant),
) -> Result<(), ReadError> {
    let children = Children::find(proc)?;
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for pid in children.of(proc, parent) {
            let Some(found) = hold_child(proc, pid, parent, root) else {
                continue;
            };
            let below = children.of(proc, pid);
            visit(found);
            if !below.is_empty() {
                parents.push(pid);
            }
        }
    }
    Ok(())
}

/// Holds a listed child: what is held must still say that its parent is this one, or the root, to which it may have come
/// as an orphan. The number may have had another owner before it was held, but not after.
fn hold_child(proc: &Proc, pid: Pid, parent: Pid, root: Pid) -> Option<Descendant> {
    let held = SignalHandle::open(pid).ok();
    let stat = proc.process(pid).and_then(|process| process.stat()).ok()?;
    let is_child = stat.parent == Some(parent) || stat.parent == Some(root);
    is_child.then_some(Descendant { held, stat })
}

/// Sends a signal to everything beneath `root`. Who took it, and who may not be signalled.
///
/// Not a whole: what is forked meanwhile may be missed, so it is repeated until nothing is there.
pub(super) fn signal_all(
    proc: &Proc,
    root: Pid,
    signal: i32,
) -> Result<(Vec<ProcessId>, Vec<ProcessId>), ReadError> {
    let mut reached = Vec::new();
    let mut denied = Vec::new();
    walk(proc, root, |found| {
        if found.stat.state.is_over() && found.stat.threads <= 1 {
            return;
        }
        match signal_one(&found, signal) {
            Ok(true) => reached.push(found.stat.id),
            Ok(false) => {}
            Err(_) => denied.push(found.stat.id),
        }
    })?;
    Ok((reached, denied))
}

/// Where it cannot be held (no descriptor left) the number is used: its owner was read a moment ago.
fn signal_one(found: &Descendant, signal: i32) -> std::io::Result<bool> {
    let pid = found.stat.id.pid;
    if let Some(held) = &found.held {
        operations::tell_signal(pid, signal);
        return held.send_signal(signal);
    }
    let signal = nix::sys::signal::Signal::try_from(signal)?;
    operations::tell(|| format!("kill(2): {signal} to pid {pid}"));
    match nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.get()), signal) {
        Ok(()) => Ok(true),
        Err(nix::Error::ESRCH) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
