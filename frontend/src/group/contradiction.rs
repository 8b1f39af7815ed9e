//! Whether the processes that a record names are what it says of them. Each part of a record may be true by itself; what the
//! kernel shows of the processes, the record cannot make up. Nothing is done by a record that does not fit.

use std::thread::sleep;
use std::time::Duration;

use cgleaf_shared::process::liveness::running_threads;
use cgleaf_shared::process::{Proc, ProcessId, Stat};

use super::identity::GroupIdentity;
use super::monitor::NAME;

/// What the kernel says against a record of this boot and this pid namespace, if it says something. Processes that have ended
/// say nothing, and a /proc that numbers them in another way says it of others.
pub(crate) fn contradiction(proc: &Proc, identity: &GroupIdentity) -> Option<String> {
    if !proc.is_own() {
        return None;
    }
    another_setsids_leader(proc, identity)
        .or_else(|| no_monitor(proc, identity))
        .or_else(|| another_monitors_leader(proc, identity))
}

/// The leader of a POSIX session stays in the autogroup that its setsid(2) made: it cannot call that again.
fn another_setsids_leader(proc: &Proc, identity: &GroupIdentity) -> Option<String> {
    let leader = identity.leader()?;
    let directory = proc.process(leader.pid).ok()?;
    let is_it = directory.stat().is_ok_and(|stat| stat.id == leader);
    (is_it && identity.is_outside_of_its_autogroup(&directory)).then(|| {
        format!(
            "process {}, its leader, is in another autogroup than was recorded",
            leader.pid
        )
    })
}

/// A monitor has its name before it is recorded, and keeps it.
fn no_monitor(proc: &Proc, identity: &GroupIdentity) -> Option<String> {
    let monitor = identity.monitor?;
    let stat = running(proc, monitor)?;
    (stat.comm != NAME.to_bytes())
        .then(|| format!("process {}, its monitor, is no monitor", monitor.pid))
}

/// While both live, the leader is the monitor's child.
fn another_monitors_leader(proc: &Proc, identity: &GroupIdentity) -> Option<String> {
    let (leader, monitor) = (identity.leader()?, identity.monitor?);
    // The children of a process that ends are another's a moment before it is seen to have ended.
    for _ in 0..LOOKS {
        let parent = running(proc, leader)?.parent;
        running(proc, monitor)?;
        if parent == Some(monitor.pid) {
            return None;
        }
        sleep(Duration::from_millis(1));
    }
    Some(format!(
        "process {}, its leader, is no child of process {}, its monitor",
        leader.pid, monitor.pid
    ))
}

const LOOKS: u32 = 5;

/// What the kernel tells of a process that runs; nothing if it has ended, or cannot be read.
fn running(proc: &Proc, process: ProcessId) -> Option<Stat> {
    let directory = proc.process(process.pid).ok()?;
    let stat = directory.stat().ok()?;
    let runs = running_threads(&directory, stat.state).is_ok_and(|states| !states.is_empty());
    (runs && stat.id == process).then_some(stat)
}
