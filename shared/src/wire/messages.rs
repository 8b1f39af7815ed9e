//! The messages. New variants are only ever appended, and those marked *frozen* never change, so that an old
//! frontend and a new helper, and the other way round, can always list and end sessions.

use serde::{Deserialize, Serialize};

use super::{BUILD, MAGIC, PROTOCOL, Refusal};
use crate::attestation::Attestation;
use crate::cgroup::CgroupPath;
use crate::id::{CgroupId, Nonce, SessionId, SessionName, Uid};
use crate::process::{Pid, ProcessId};

/// A client's first message. *Frozen.*
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: u32,
    /// The protocol version that the client speaks.
    pub protocol: u16,
    /// The client's build.
    pub build: String,
}

impl Hello {
    /// This version's.
    pub fn ours() -> Self {
        Self {
            magic: MAGIC,
            protocol: PROTOCOL,
            build: BUILD.to_owned(),
        }
    }
}

/// A helper's first message. *Frozen.*
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`MAGIC`].
    pub magic: u32,
    /// The protocol version that the helper speaks.
    pub protocol: u16,
    /// The helper's build.
    pub build: String,
    /// How it was started, as [`Mode::name`] writes it.
    pub mode: String,
    /// What of its lock-down is enforced, and what is not and why.
    pub enforced: Vec<Enforcement>,
}

/// One part of the helper's lock-down. *Frozen.*
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforcement {
    /// Which part: `capabilities`, `no_new_privs`, `seccomp`, `landlock` …
    pub part: String,
    /// Whether it is in force.
    pub enforced: bool,
    /// How far, or why not.
    pub detail: String,
}

/// How a helper was started (DESIGN 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// In a transient scope of the user's or, for root, the system's manager.
    Scope,
    /// As a unit of the user manager.
    UserService,
    /// As root without capabilities, one for a uid, in that user's slice.
    SystemService,
    /// As root without capabilities, one for the machine, for containers.
    NodeService,
    /// In a directory that it was given or made beneath its own cgroup, without systemd.
    Direct,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Scope,
        Self::UserService,
        Self::SystemService,
        Self::NodeService,
        Self::Direct,
    ];

    /// Its name on command lines, in messages and in Welcome.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scope => "scope",
            Self::UserService => "user-service",
            Self::SystemService => "system-service",
            Self::NodeService => "node-service",
            Self::Direct => "direct",
        }
    }

    /// The mode of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// The system and the node service: root serves others there, so that the sandbox is required.
    pub const fn is_root_mode(self) -> bool {
        matches!(self, Self::SystemService | Self::NodeService)
    }
}

/// Names one leaf beyond doubt. The helper verifies it on the directory that it opens, before each write. *Frozen.*
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The session.
    pub session: SessionId,
    /// Its leaf's kernfs id.
    pub leaf_id: CgroupId,
    /// Its leaf's nonce.
    pub nonce: Nonce,
}

impl From<&Attestation> for Target {
    fn from(attestation: &Attestation) -> Self {
        Self {
            session: attestation.session.clone(),
            leaf_id: attestation.leaf_id,
            nonce: attestation.nonce,
        }
    }
}

/// A session that is to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewSession {
    /// Its id.
    pub session: SessionId,
    /// Its name, unique among the domain's living sessions.
    pub name: Option<SessionName>,
    /// The session beneath whose leaf it is to lie. It only narrows where the caller's own place puts it.
    pub parent: Option<SessionId>,
}

/// Which of a leaf's two freeze flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FreezeFlag {
    /// Set by a user, until somebody thaws.
    User,
    /// A hold: it belongs to this connection and ends with it.
    Hold,
}

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The caller's sessions in the order of their ids, those after `after`. *Frozen.*
    List {
        /// The last id of the page before.
        after: Option<SessionId>,
    },
    /// A session's attestation anew, and its leaf's `cgroup.events`. *Frozen.*
    Open {
        /// Which session.
        session: SessionId,
    },
    /// SIGKILL for everything in the leaf and beneath it, by `cgroup.kill`. *Frozen.*
    Kill {
        /// Which leaf.
        target: Target,
    },
    /// One pass of depth-first removal. *Frozen.*
    Remove {
        /// Which leaf.
        target: Target,
    },
    /// Make a leaf and move the caller into it.
    CreateAndEnrol {
        /// What to make.
        new: NewSession,
    },
    /// Make an empty leaf, for the caller to start a child in.
    Create {
        /// What to make.
        new: NewSession,
    },
    /// State that `leader`, which must be a member, leads the session.
    Attest {
        /// Which leaf.
        target: Target,
        /// The leader's pid, as the caller's pid namespace numbers it.
        leader: Pid,
    },
    /// Set a freeze flag and write 1 to `cgroup.freeze`. The answer comes before the fact does.
    Freeze {
        /// Which leaf.
        target: Target,
        /// Which flag.
        flag: FreezeFlag,
    },
    /// Clear a freeze flag, and write 0 where no flag is left.
    Thaw {
        /// Which leaf.
        target: Target,
        /// Which flag.
        flag: FreezeFlag,
    },
    /// Does every cgroup of the subtree say `frozen 1`?
    IsFrozen {
        /// Which leaf.
        target: Target,
    },
    /// The processes of the leaf and of everything beneath it, in the order of their pids, those after `after`.
    Members {
        /// Which leaf.
        target: Target,
        /// The last pid of the page before, as the helper numbers it.
        after: Option<Pid>,
    },
    /// Move one process, whose pidfd comes with this packet, into the leaf (user modes).
    Adopt {
        /// Which leaf.
        target: Target,
    },
    /// Kill the leaf when this connection ends.
    Lease {
        /// Which leaf.
        target: Target,
    },
    /// Verify an attestation where the caller cannot see the paths itself.
    Verify {
        /// What to verify.
        attestation: Attestation,
    },
    /// About the helper itself.
    Status,
    /// End the helper if it has no session (user modes).
    Stop,
}

impl Request {
    /// Whether it is answered across versions.
    pub const fn is_frozen(&self) -> bool {
        matches!(
            self,
            Self::List { .. } | Self::Open { .. } | Self::Kill { .. } | Self::Remove { .. }
        )
    }
}

/// One session in a list. *Frozen.*
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEntry {
    /// The attestation, as it is given to the owner anew.
    pub attestation: Attestation,
    /// The session's name.
    pub name: Option<SessionName>,
    /// The leader, as the *helper's* pid namespace numbers it.
    pub leader: Option<ProcessId>,
    /// The leader, as the innermost pid namespace of its own numbers it.
    pub leader_inner: Option<Pid>,
    /// What the kernel says of the leaf.
    pub state: LeafState,
}

/// What the kernel and the leaf's attributes say. *Frozen.*
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafState {
    /// A live process is in it or beneath it.
    pub populated: bool,
    /// `cgroup.events` says frozen.
    pub frozen: bool,
    /// A user froze it.
    pub user_frozen: bool,
    /// A connection holds it frozen.
    pub held: bool,
    /// It ends with a connection.
    pub leased: bool,
    /// It may hold a stranger: it is never killed.
    pub poisoned: bool,
    /// An ancestor is frozen, which no thaw of this leaf changes.
    pub ancestor_frozen: bool,
}

/// A leaf that was opened, or one just made. The packet carries a read-only descriptor of its `cgroup.events`,
/// unless too many descriptors were in flight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// The session. *Frozen.*
    pub entry: SessionEntry,
}

/// A leaf that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Created {
    /// What the helper states about it.
    pub attestation: Attestation,
    /// Where the caller came from, if it was the main process of another service whose limits, filters and
    /// `stop` no longer cover it.
    pub left_service: Option<String>,
}

/// What one pass of removal came to. *Frozen.*
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    /// Whether the leaf itself is gone.
    pub removed: bool,
    /// What could not be removed, and why; the deepest first, bounded.
    pub leftover: Vec<(CgroupPath, i32)>,
}

/// What a thaw came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thawed {
    /// The flags that are still set.
    pub still_flagged: Vec<FreezeFlag>,
    /// The nearest ancestor that is frozen itself, which keeps the leaf frozen.
    pub frozen_ancestor: Option<CgroupPath>,
    /// Cgroups beneath the leaf that the program froze itself.
    pub frozen_beneath: Vec<CgroupPath>,
}

/// One member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its pid as the helper numbers it; `None` for a process that the helper's pid namespace cannot see.
    pub pid: Option<Pid>,
    /// Its pid in every pid namespace that it is in, the outermost first (`NSpid`): a hint, checked by whoever
    /// acts on it.
    pub ns_pids: Vec<i32>,
    /// The cgroup that holds it, relative to the leaf: empty for the leaf itself.
    pub cgroup: String,
}

/// A page of members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembersPage {
    /// The members of this page.
    pub members: Vec<Member>,
    /// How many there are in all, in this reading.
    pub total: u32,
    /// Whether another page follows the last pid of this one.
    pub more: bool,
}

/// About the helper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its pid as it numbers itself.
    pub pid: Pid,
    /// Its scope directories.
    pub scope_paths: Vec<CgroupPath>,
    /// The kernfs id of the first one.
    pub scope_id: CgroupId,
    /// The kernfs id of the root that its paths are relative to.
    pub root_id: CgroupId,
    /// How many leaves it has.
    pub sessions: u32,
    /// How many clients are connected, this one among them.
    pub clients: u32,
    /// Whose sessions it serves.
    pub uid: Uid,
}

/// What the helper found when it verified an attestation for a caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VerdictReport {
    /// It is that leaf, and this is its state.
    Proven(LeafState),
    /// The leaf was removed, so it was empty.
    Gone,
    /// It is another's; why.
    Foreign(String),
    /// It cannot be told; why.
    Unreadable(String),
}

/// What a helper answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// No, and why. *Frozen.*
    Refused(Refusal),
    /// A page of sessions. *Frozen.*
    Sessions {
        /// The sessions of this page.
        sessions: Vec<SessionEntry>,
        /// Whether another page follows.
        more: bool,
    },
    /// The session. *Frozen.*
    Opened(Opened),
    /// 1 was written to `cgroup.kill`. *Frozen.*
    Killed,
    /// One pass of removal. *Frozen.*
    Removed(Removal),
    /// A leaf was made.
    Created(Created),
    /// The leader is recorded.
    Attested(Attestation),
    /// 1 was written to `cgroup.freeze`, or the leaf was frozen already.
    FreezeRequested,
    /// The flag is cleared.
    Thawed(Thawed),
    /// Whether the whole subtree is frozen; if not, one cgroup, relative to the leaf, that is not.
    Frozen {
        /// The first that is not frozen.
        not_yet: Option<String>,
    },
    /// A page of members.
    Members(MembersPage),
    /// The process is in the leaf.
    Adopted,
    /// The leaf ends with this connection.
    Leased,
    /// The verdict on an attestation.
    Verified(VerdictReport),
    /// About the helper.
    Status(Status),
    /// The helper ends when its clients are served.
    Stopping,
}
