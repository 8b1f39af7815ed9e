//! What is recorded of a session in the group tier, so that another process can find and prove its group later.

use cgleaf_shared::id::BootId;
use cgleaf_shared::process::{Autogroup, Pid, Proc, ProcessDir, ProcessId, ReadError, StartTicks};
use serde::{Deserialize, Serialize};

/// The environment variable that carries the marks of a process's sessions, `outer:inner`.
pub const MARK_VARIABLE: &str = "CGLEAF_MARK";

/// What a record says of a session in the group tier. Made when the program is about to be executed, by whoever will be
/// its leader or that one's parent; what could not be read then is `None`, and proves nothing later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupIdentity {
    /// The leader.
    pub pid: Pid,
    /// When the leader was started: execve(2) does not change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<StartTicks>,
    /// The session's own process group: recorded only if the leader was its group's and its POSIX session's leader (pid =
    /// pgid = sid). Without one no group is ever signalled: it would be a shell's, with the script or the pipeline in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pgid: Option<Pid>,
    /// The leader's POSIX session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sid: Option<Pid>,
    /// The autogroup that the leader's `setsid` made (sched(7)); recorded only with an own group. Its number is never used
    /// again in a boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autogroup: Option<u64>,
    /// The boot that all of this belongs to.
    pub boot_id: BootId,
    /// The pid namespace of these numbers, by its inode number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_ns: Option<u64>,
    /// A random value in the environment of the session's processes.
    pub mark: String,
    /// The process that is the program's parent and the child subreaper of all that it starts (`run`, `start`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monitor: Option<ProcessId>,
}

/// A leader as its own pid namespace numbers it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leader {
    pub(super) pid: Pid,
    pub(super) pgid: Option<Pid>,
    pub(super) sid: Option<Pid>,
}

impl Leader {
    /// The calling process, by system calls: /proc may number it in another way.
    pub(super) fn own() -> Leader {
        let sid = nix::unistd::getsid(None)
            .ok()
            .and_then(|sid| Pid::new(sid.as_raw()));
        Leader {
            pid: Pid::own(),
            pgid: Pid::new(nix::unistd::getpgrp().as_raw()),
            sid,
        }
    }

    /// A child, by system calls too.
    pub(super) fn child(pid: Pid) -> Leader {
        let raw = nix::unistd::Pid::from_raw(pid.get());
        let pgid = nix::unistd::getpgid(Some(raw))
            .ok()
            .and_then(|pgid| Pid::new(pgid.as_raw()));
        let sid = nix::unistd::getsid(Some(raw))
            .ok()
            .and_then(|sid| Pid::new(sid.as_raw()));
        Leader { pid, pgid, sid }
    }

    pub(super) fn owns_its_group(self) -> bool {
        self.pgid == Some(self.pid) && self.sid == Some(self.pid)
    }
}

/// Why nothing is done by a record that is not of here ([`GroupIdentity::is_of_here`]).
pub(crate) const NOT_OF_HERE: &str =
    "it was recorded in an earlier boot or in another pid namespace";

impl GroupIdentity {
    /// Records a leader. `directory` is where this `/proc` shows it, if it does.
    pub(super) fn record(
        proc: &Proc,
        leader: Leader,
        directory: Option<ProcessDir>,
        mark: &str,
        monitor: Option<ProcessId>,
    ) -> Result<GroupIdentity, ReadError> {
        let own_group = leader.owns_its_group();
        let autogroup = directory
            .as_ref()
            .filter(|_| own_group)
            .and_then(|directory| match directory.autogroup() {
                Ok(Autogroup::Id(id)) => Some(id),
                Ok(Autogroup::Default) | Err(_) => None,
            });
        Ok(GroupIdentity {
            pid: leader.pid,
            start: directory
                .and_then(|directory| directory.stat().ok())
                .map(|stat| stat.id.start),
            pgid: own_group.then_some(leader.pid),
            sid: leader.sid,
            autogroup,
            boot_id: proc.boot_id()?,
            pid_ns: proc.own_pid_namespace().ok(),
            mark: mark.to_owned(),
            monitor,
        })
    }

    /// The leader as a process of this boot, where its start is known.
    #[must_use]
    pub fn leader(&self) -> Option<ProcessId> {
        self.start.map(|start| ProcessId {
            pid: self.pid,
            start,
        })
    }

    /// Do this record's numbers mean anything to the calling process: same boot, same pid namespace?
    ///
    /// Namespace inode numbers are used again; a stranger that this lets through still has another autogroup, mark and
    /// start. Where the record knows its namespace and the caller cannot tell its own (or the other way round), the answer
    /// is no.
    ///
    /// # Errors
    /// If the boot id cannot be read.
    pub fn is_of_here(&self, proc: &Proc) -> Result<bool, ReadError> {
        Ok(proc.boot_id()? == self.boot_id && proc.own_pid_namespace().ok() == self.pid_ns)
    }

    /// Is this process readably of another setsid than the recorded one?
    pub(super) fn is_outside_of_its_autogroup(&self, process: &ProcessDir) -> bool {
        matches!((self.autogroup, process.autogroup()), (Some(recorded), Ok(Autogroup::Id(id))) if id != recorded)
    }

    /// Does this value of [`MARK_VARIABLE`] carry the session's mark, alone or with those of outer and inner sessions?
    #[must_use]
    pub fn is_marked(&self, value: &[u8]) -> bool {
        carries_mark(value, &self.mark)
    }
}

/// Does this value of [`MARK_VARIABLE`] carry that mark? No mark is carried by nobody.
#[must_use]
pub fn carries_mark(value: &[u8], mark: &str) -> bool {
    let mut marks = value.split(|&byte| byte == b':');
    !mark.is_empty() && marks.any(|one| one == mark.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> GroupIdentity {
        let proc = Proc::system().expect("/proc");
        GroupIdentity::record(&proc, Leader::own(), proc.own().ok(), "m1", None).expect("a boot id")
    }

    #[test]
    fn it_survives_json_and_leaves_out_what_it_does_not_know() {
        let mut own = identity();
        let text = serde_json::to_string(&own).expect("JSON");
        assert_eq!(
            serde_json::from_str::<GroupIdentity>(&text).expect("itself"),
            own
        );
        (own.autogroup, own.pgid, own.start) = (None, None, None);
        let text = serde_json::to_string(&own).expect("JSON");
        assert!(
            !text.contains("autogroup") && !text.contains("pgid") && !text.contains("start"),
            "{text}"
        );
        assert_eq!(
            serde_json::from_str::<GroupIdentity>(&text).expect("itself"),
            own
        );
    }

    #[test]
    fn a_mark_is_one_whole_component() {
        let own = identity();
        for value in ["m1", "outer:m1", "m1:inner", "a:m1:b"] {
            assert!(own.is_marked(value.as_bytes()), "{value}");
        }
        for value in ["", "m", "m11", "xm1", "m1x:y", ":"] {
            assert!(!own.is_marked(value.as_bytes()), "{value}");
        }
        let unmarked = GroupIdentity {
            mark: String::new(),
            ..own
        };
        assert!(!unmarked.is_marked(b"") && !unmarked.is_marked(b":"));
    }

    #[test]
    fn another_boot_or_namespace_is_not_here() {
        let proc = Proc::system().expect("/proc");
        let own = identity();
        assert!(own.is_of_here(&proc).expect("a boot id"));
        let boot_id = BootId::from_bytes([1; 16]);
        assert!(
            !GroupIdentity {
                boot_id,
                ..own.clone()
            }
            .is_of_here(&proc)
            .expect("a boot id")
        );
        assert!(
            !GroupIdentity {
                pid_ns: Some(1),
                ..own.clone()
            }
            .is_of_here(&proc)
            .expect("a boot id")
        );
        assert!(
            !GroupIdentity {
                pid_ns: None,
                ..own
            }
            .is_of_here(&proc)
            .expect("a boot id")
        );
    }
}
