//! The cgroup2 tree, read-only: where it is mounted, its directories and what their files say.

mod dir;
mod events;
mod mount;
mod path;
mod root;

pub use dir::{CgroupDir, ControlFile};
pub use events::Events;
pub use mount::{Layout, Mount, cgroup2_mounts, layout, own_mountinfo, parse_mountinfo};
pub use path::{CgroupPath, PathError, own_path, parse_proc_cgroup, path_of};
pub use root::{CgroupRoot, RootError};

/// The extended attributes of a leaf: the helper's database, and what an attestation is checked against.
pub mod attributes {
    use std::ffi::CStr;

    /// The session's id. Its presence is what makes a directory a leaf.
    pub const SESSION: &CStr = c"user.cgleaf.session";
    /// The session's name, where it has one.
    pub const NAME: &CStr = c"user.cgleaf.name";
    /// The nonce of the attestation, 32 hex digits.
    pub const NONCE: &CStr = c"user.cgleaf.nonce";
    /// The owner's user id, decimal.
    pub const OWNER: &CStr = c"user.cgleaf.owner";
    /// The leader: pid and start ticks, as the helper's pid namespace numbers it.
    pub const LEADER: &CStr = c"user.cgleaf.leader";
    /// When the leaf was made, CLOCK_BOOTTIME in nanoseconds, decimal.
    pub const CREATED: &CStr = c"user.cgleaf.created";
    /// The socket of the helper that made the leaf.
    pub const SOCKET: &CStr = c"user.cgleaf.socket";
    /// The freeze flags that are set: any of `user`, `hold`.
    pub const FREEZE: &CStr = c"user.cgleaf.freeze";
    /// Present while the leaf ends with a connection.
    pub const LEASE: &CStr = c"user.cgleaf.lease";
    /// Present on a leaf that may hold a stranger: never killed, refused, removed when empty.
    pub const POISONED: &CStr = c"user.cgleaf.poisoned";
    /// Present on a leaf that was killed: no process is adopted into it any more.
    pub const KILLED: &CStr = c"user.cgleaf.killed";
    /// Present on a scope directory that a helper made itself: it goes when it is empty and no helper serves it. One that
    /// systemd or an administrator gave is theirs.
    pub const MADE: &CStr = c"user.cgleaf.made";
}

/// `CGROUP2_SUPER_MAGIC` of include/uapi/linux/magic.h, what fstatfs(2) says of a cgroup2 directory.
pub const CGROUP2_SUPER_MAGIC: i64 = 0x6367_7270;

/// What the cgroup is called that a helper moves itself into, beneath its scope directory: a sibling of every leaf.
pub const HELPER_DIR: &str = "helper";

/// What a leaf's directory is called: `cgleaf-<id>.leaf`. No id can collide with a control file, a unit or `helper`.
pub fn leaf_name(session: &crate::id::SessionId) -> String {
    format!("{LEAF_PREFIX}{session}{LEAF_SUFFIX}")
}

/// The session that a directory's name is for, if it is a leaf's name.
pub fn session_of_leaf_name(name: &str) -> Option<crate::id::SessionId> {
    name.strip_prefix(LEAF_PREFIX)?
        .strip_suffix(LEAF_SUFFIX)?
        .parse()
        .ok()
}

const LEAF_PREFIX: &str = "cgleaf-";
const LEAF_SUFFIX: &str = ".leaf";
