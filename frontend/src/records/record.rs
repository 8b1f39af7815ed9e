//! One record.

use std::path::PathBuf;

use cgleaf_shared::attestation::Attestation;
use cgleaf_shared::id::{BootId, BootTime, SessionId, SessionName};
use cgleaf_shared::process::{Pid, ProcessId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::base::machine_id;
use crate::error::Result;

/// The format that this version writes. A record with a higher one is shown and never rewritten.
pub const FORMAT: u32 = 1;

/// How far a session's record has come. Phases only go forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The id is claimed; there may be a leaf.
    Intent,
    /// The program was, or is just being, executed.
    Running,
    /// A destroy has begun. It keeps everything and never expires.
    Destroying,
    /// The program ended by itself and nothing of the session is left.
    Ended,
    /// A destroy proved the end.
    Destroyed,
}

impl Phase {
    /// Whether a record may go from this phase to `next`. A destroy may find that a session has ended, and a
    /// destroy of an ended one says destroyed.
    pub fn may_become(self, next: Self) -> bool {
        next >= self
    }

    /// Whether nothing of the session is left, as far as the record knows.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Ended | Self::Destroyed)
    }
}

/// How a session is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// A leaf.
    Cgroup,
    /// Processes, proven as far as that goes.
    Group,
}

impl Tier {
    /// Its name in JSON and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cgroup => "cgroup",
            Self::Group => "group",
        }
    }
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exit {
    /// It called exit, with this status.
    Code(i32),
    /// It died of this signal.
    Signal(i32),
}

impl Exit {
    /// The status that a shell would show: 128+n for a signal.
    pub fn status(self) -> u8 {
        let number = match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        };
        u8::try_from(number & 0xff).unwrap_or(u8::MAX)
    }
}

/// The process that claimed an id: while it lives, its intent is not gc's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maker {
    /// Its pid.
    pub pid: Pid,
    /// Its start time, in clock ticks since boot.
    pub start: cgleaf_shared::process::StartTicks,
    /// The boot it lives in.
    pub boot_id: BootId,
    /// The inode of its pid namespace: elsewhere its number names another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_namespace: Option<u64>,
}

/// The helper that keeps a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelperRef {
    /// Its socket.
    pub socket: PathBuf,
    /// Its mode's name.
    pub mode: String,
    /// Its scope directory, relative to the attestation's root, for a helper that takes over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ScopeRef>,
}

/// A scope directory, for a helper that takes over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeRef {
    /// Where it is.
    pub path: cgleaf_shared::cgroup::CgroupPath,
    /// Its kernfs id.
    pub id: cgleaf_shared::id::CgroupId,
    /// The kernfs id of the root that the path is relative to.
    pub root_id: cgleaf_shared::id::CgroupId,
}

/// What ties a stray to the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tie {
    /// It carries the session's mark. Marks spread to innocents: this names it and never kills.
    Mark,
    /// It is the session's leader.
    Leader,
    /// A member was its parent, or its ancestor's.
    Parent,
}

impl Tie {
    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mark => "mark",
            Self::Leader => "leader",
            Self::Parent => "parent",
        }
    }

    /// Whether it is proof enough to end a process by.
    pub const fn may_kill(self) -> bool {
        !matches!(self, Self::Mark)
    }
}

/// A process that a destroy named since it had left the leaf: a later destroy still knows what tied it to the session
/// when its parent lived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedStray {
    /// Which.
    pub process: ProcessId,
    /// What ties it.
    pub tie: Tie,
}

/// A frontend's file about one session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`] of who wrote it.
    pub format: u32,
    /// The session.
    pub session: SessionId,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<SessionName>,
    /// How far it has come.
    pub phase: Phase,
    /// How it is kept.
    pub tier: Tier,
    /// Who claimed the id.
    pub maker: Maker,
    /// When the id was claimed.
    pub created: BootTime,
    /// The machine, so that a record in a shared home is told from our own.
    pub machine_id: String,
    /// The leader, as this pid namespace numbers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<ProcessId>,
    /// What the helper states about the leaf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attestation: Option<Attestation>,
    /// The helper that keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helper: Option<HelperRef>,
    /// The identity of the process group, in the group tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Value>,
    /// The random value of the session in its programs' environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// Where the program's output goes (`start`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<PathBuf>,
    /// How the program ended, where whoever ran it could see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// The strays that a destroy named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strays: Vec<RecordedStray>,
    /// Fields of a later version, which survive a rewrite.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl Record {
    /// The claim of an id by this process, before anything else is known.
    ///
    /// # Errors
    /// INTERNAL if /proc does not tell who this process is.
    pub fn intent(session: SessionId, name: Option<SessionName>, tier: Tier) -> Result<Self> {
        Ok(Self {
            format: FORMAT,
            session,
            name,
            phase: Phase::Intent,
            tier,
            maker: Maker::this_process()?,
            created: BootTime::now(),
            machine_id: machine_id().to_owned(),
            leader: None,
            attestation: None,
            helper: None,
            group: None,
            mark: None,
            log: None,
            exit: None,
            strays: Vec::new(),
            unknown: Map::new(),
        })
    }

    /// Whether it is that session's record, in that hand, and no further than it was read before.
    pub fn is_still(&self, read: &Self) -> bool {
        (self.created, self.maker, self.phase) == (read.created, read.maker, read.phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = r#"{"format":1,"session":"s1","phase":"intent","tier":"cgroup",
        "maker":{"pid":5,"start":7,"boot_id":"000102030405060708090a0b0c0d0e0f"},
        "created":9,"machine_id":"unknown","later":{"x":[1]}}"#;

    #[test]
    fn fields_of_a_later_version_survive_a_rewrite() {
        let record: Record = serde_json::from_str(FIRST).unwrap();
        let again: Value = serde_json::to_value(&record).unwrap();
        assert_eq!(again["later"], serde_json::json!({"x": [1]}));
        assert_eq!(again, serde_json::from_str::<Value>(FIRST).unwrap());
    }

    #[test]
    fn phases_only_go_forward() {
        use Phase::{Destroyed, Destroying, Ended, Intent, Running};
        let order = [Intent, Running, Destroying, Ended, Destroyed];
        for (i, from) in order.iter().enumerate() {
            for (j, to) in order.iter().enumerate() {
                assert_eq!(from.may_become(*to), j >= i, "{from:?} to {to:?}");
            }
        }
    }

    #[test]
    fn a_signal_is_shown_as_a_shell_shows_it() {
        assert_eq!(Exit::Signal(15).status(), 143);
        assert_eq!(Exit::Code(7).status(), 7);
        assert_eq!(
            serde_json::to_string(&Exit::Signal(9)).unwrap(),
            r#"{"signal":9}"#
        );
    }
}
