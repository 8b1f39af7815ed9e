//! Threads of a leaf whose process is not listed there: its main thread has ended, and stayed where it was when the others were
//! moved. cgroup.procs and cgroup.kill go by main threads (cgroups(7)); cgroup.threads does not.

use cgleaf_shared::cgroup::{CgroupDir, ControlFile};
use cgleaf_shared::process::Pid;
use serde_json::{Value, json};

use super::grip::Grip;
use super::inspect::MOST_NAMED;
use super::reach::Reach;

/// The most cgroups that are read for that.
const MOST_CGROUPS: usize = 1000;

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Thread {
    thread: Pid,
    /// The process that it belongs to, as far as /proc tells.
    process: Option<Pid>,
}

impl Thread {
    /// What a message says of it.
    pub(super) fn sentence(&self) -> String {
        match self.process {
            Some(process) => format!("thread {} of process {process}", self.thread),
            None => format!("thread {}", self.thread),
        }
    }

    /// The same for JSON.
    pub(super) fn to_json(&self) -> Value {
        json!({"tid": self.thread, "pid": self.process})
    }
}

impl Grip {
    /// The threads in the leaf and beneath it, where its paths can be read from here.
    pub(super) fn unlisted_threads(&self) -> Vec<Thread> {
        let Some(leaf) = &self.dir else {
            return Vec::new();
        };
        let proc = Reach::proc().ok();
        let process_of = |thread| {
            let status = proc.as_ref()?.process(thread).ok()?.status().ok()?;
            Some(status.tgid)
        };
        let subtree = leaf.subtree(MOST_CGROUPS).unwrap_or_default();
        subtree
            .iter()
            .filter_map(|cgroup| leaf.open_descendant(cgroup).ok())
            .flat_map(|dir| threads(&dir))
            .take(MOST_NAMED)
            .map(|thread| Thread {
                thread,
                process: process_of(thread),
            })
            .collect()
    }
}

fn threads(dir: &CgroupDir) -> Vec<Pid> {
    let content = dir.read(ControlFile::Threads).unwrap_or_default();
    let text = String::from_utf8_lossy(&content);
    text.lines()
        .filter_map(|line| line.parse().ok().and_then(Pid::new))
        .collect()
}
