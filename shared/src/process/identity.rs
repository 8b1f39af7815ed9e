//! The numbers that name a process, as types of their own.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A process id (or a process group's, or a POSIX session's), as the reader's own pid namespace numbers it.
///
/// Always greater than 0. The kernel shows 0 for a process that the reader's pid namespace cannot see (in
/// `cgroup.procs`, in `SO_PEERCRED`), and `kill(2)` reads 0 and negative numbers as whole groups: such a number never
/// becomes a `Pid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i32", into = "i32")]
pub struct Pid(i32);

impl Pid {
    /// The first process of a pid namespace.
    pub const INIT: Pid = Pid(1);

    /// A pid out of what the kernel or a record says; `None` for 0 and below.
    #[must_use]
    pub const fn new(raw: i32) -> Option<Pid> {
        if raw > 0 { Some(Pid(raw)) } else { None }
    }

    /// The calling process.
    #[must_use]
    pub fn own() -> Pid {
        Pid(nix::unistd::getpid().as_raw())
    }

    /// The number, for a system call.
    #[must_use]
    pub const fn get(self) -> i32 {
        self.0
    }

    /// May cgleaf ever signal this process, or the group of this number?
    ///
    /// Never PID 1, and `kill(-1)` would mean every process there is.
    #[must_use]
    pub const fn may_be_signalled(self) -> bool {
        self.0 > 1
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<i32> for Pid {
    type Error = NotAPid;

    fn try_from(raw: i32) -> Result<Self, NotAPid> {
        Pid::new(raw).ok_or(NotAPid(raw))
    }
}

impl From<Pid> for i32 {
    fn from(pid: Pid) -> i32 {
        pid.0
    }
}

/// A number that names no process: 0, or less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a process id")]
pub struct NotAPid(pub i32);

/// When a process was started: field 22 of `/proc/<pid>/stat`, in clock ticks since the boot (proc_pid_stat(5)).
///
/// It does not move across `execve(2)`. It has a resolution of 10 ms, so that it tells a reused pid from the old one
/// only because a pid comes back no sooner than after a whole round of the pid space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StartTicks(pub u64);

impl fmt::Display for StartTicks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One process of this boot and this pid namespace: its number, and when it was started.
///
/// Neither `comm` nor `exe` is part of a process's identity: `comm` is still the parent's right after a spawn, and a
/// program changes both at will.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its number.
    pub pid: Pid,
    /// When it was started.
    pub start: StartTicks,
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (started at tick {})", self.pid, self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_mean_a_group_or_nobody_are_no_pids() {
        assert_eq!(Pid::new(0), None);
        assert_eq!(Pid::new(-1), None);
        assert_eq!(Pid::new(i32::MIN), None);
        assert!(!Pid::INIT.may_be_signalled());
        assert!(Pid::new(2).is_some_and(Pid::may_be_signalled));
    }
}
