//! What a session uses: processor time and memory.

use std::time::Duration;

use cgleaf_shared::cgroup::{CgroupDir, ControlFile};

use super::members::from_tree;
use super::reach::Reach;
use super::state::{LeafSeen, Look};

/// What a session used up to now, as far as it can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Processor time of all its processes, those too that have ended (`cpu.stat`, which every cgroup has).
    pub cpu: Option<Duration>,
    /// Memory now.
    pub memory: Option<Memory>,
}

/// Memory, and who counted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Bytes as the memory controller counts them (`memory.current`).
    Charged(u64),
    /// Where that controller is not enabled: the sum of the members' resident sets. Pages that they share count several times.
    Resident(u64),
}

impl Memory {
    /// The number.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Charged(bytes) | Self::Resident(bytes) => bytes,
        }
    }
}

impl Reach {
    /// What a session that was looked at uses. Nothing is held for that.
    pub fn usage(&self, look: &Look) -> Usage {
        match &look.leaf {
            LeafSeen::Here(dir) => Usage {
                cpu: cpu(dir),
                memory: memory(dir),
            },
            _ => Usage::default(),
        }
    }
}

fn cpu(leaf: &CgroupDir) -> Option<Duration> {
    let content = leaf.read(ControlFile::CpuStat).ok()?;
    flat_value(&content, "usage_usec").map(Duration::from_micros)
}

fn memory(leaf: &CgroupDir) -> Option<Memory> {
    if let Ok(content) = leaf.read(ControlFile::MemoryCurrent) {
        let text = std::str::from_utf8(&content).ok()?;
        return text.trim().parse().ok().map(Memory::Charged);
    }
    let members = from_tree(leaf).ok()?.members;
    let pages: u64 = members
        .iter()
        .filter_map(|seat| std::fs::read(format!("/proc/{}/statm", seat.pid)).ok())
        .filter_map(|statm| resident_pages(&statm))
        .sum();
    Some(Memory::Resident(pages * page_size()))
}

/// The value of a key in a flat keyed file (cgroup-v2.rst).
fn flat_value(content: &[u8], key: &str) -> Option<u64> {
    std::str::from_utf8(content).ok()?.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == key).then(|| value.trim().parse().ok())?
    })
}

/// The second number of statm (proc_pid_statm(5)).
fn resident_pages(statm: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(statm).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn page_size() -> u64 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)
        .ok()
        .flatten()
        .and_then(|size| u64::try_from(size).ok())
        .unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_read_as_it_writes_them() {
        let stat = b"usage_usec 85762\nuser_usec 38983\nsystem_usec 46779\n";
        assert_eq!(flat_value(stat, "usage_usec"), Some(85762));
        assert_eq!(flat_value(stat, "nr_periods"), None);
        assert_eq!(flat_value(b"usage_usec x\n", "usage_usec"), None);
        assert_eq!(resident_pages(b"2170 1169 890 5 0 230 0\n"), Some(1169));
        assert_eq!(resident_pages(b""), None);
    }
}
