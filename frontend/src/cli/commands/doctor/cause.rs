//! What keeps a leaf away, where that can be told: then the advice goes by it and not by the place.

use std::path::{Path, PathBuf};

use cgleaf_shared::wire::Mode;
use nix::errno::Errno;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};

use super::guard;
use super::restrictions::writable;
use super::words::shell;
use crate::base::Base;
use crate::client::{locking_pid, unanswered_at};
use crate::error::Error;

/// The length of `sun_path` without its final zero (unix(7)).
const LONGEST_SOCKET_PATH: usize = 107;

/// What keeps a leaf away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cause {
    /// The scope directory that was named is no cgroup.
    NoCgroup(PathBuf),
    /// A system call filter that kills.
    Filter,
    /// cgroup.max.descendants or cgroup.max.depth.
    Limit,
    /// No socket can have a path as long as this one.
    LongPath(PathBuf),
    /// Others may use this directory of ours.
    OpenToOthers(PathBuf),
    /// /proc shows processes alone: `ProcSubset=pid` of a unit, `subset=pid` of the mount (proc(5)).
    ProcessesAlone,
    /// This directory of ours is on a file system that cannot be written.
    ReadOnlyPlace(PathBuf),
    /// Nothing can be written to a file (RLIMIT_FSIZE).
    FileSize,
    /// No more processes can be made.
    Processes,
    /// Somebody listens there and does not answer.
    Mute(PathBuf),
}

impl Cause {
    /// The cause by what is there, and by the reason that was given.
    pub(super) fn find(base: &Base, scope_dir: Option<&Path>, reason: &str) -> Option<Self> {
        let socket = base.socket(Mode::Direct);
        if let Some(directory) = scope_dir.filter(|directory| !is_or_would_be_a_cgroup(directory)) {
            Some(Self::NoCgroup(directory.to_path_buf()))
        } else if reason.contains("SIGSYS") {
            Some(Self::Filter)
        } else if reason.contains("cgroup.max.") {
            Some(Self::Limit)
        } else if socket.as_os_str().len() > LONGEST_SOCKET_PATH {
            Some(Self::LongPath(socket))
        } else {
            open_to_others(base).map(Self::OpenToOthers)
        }
    }

    /// The cause by which nothing can be started at all.
    pub(super) fn of_nothing_started(error: &Error) -> Option<Self> {
        let says = |what: &str| error.message().contains(what);
        if let Some(socket) = unanswered_at(error) {
            Some(Self::Mute(socket.to_path_buf()))
        } else if says("SIGSYS") {
            Some(Self::Filter)
        } else if says("/proc/sys/") && !Path::new("/proc/sys").exists() {
            Some(Self::ProcessesAlone)
        } else if says(&os_text(Errno::EFBIG)) {
            Some(Self::FileSize)
        } else if says(&os_text(Errno::EAGAIN)) || says(Errno::EAGAIN.desc()) {
            Some(Self::Processes)
        } else {
            None
        }
    }

    /// What ends it.
    pub(super) fn advice(&self) -> String {
        match self {
            Self::NoCgroup(directory) => format!(
                "unset CGLEAF_SCOPE_DIR, or leave --scope-dir out: {} is no directory of cgroup2; or name one that is",
                directory.display()
            ),
            Self::Filter => guard::REMEDY.to_owned(),
            Self::Limit => "raise that limit: write a greater number, or `max`, into cgroup.max.descendants or cgroup.max.depth of \
                            the cgroup that is named above, or of the one above it that has the limit"
                .to_owned(),
            Self::LongPath(socket) => format!(
                "set XDG_RUNTIME_DIR to a shorter path: {} is longer than a socket's may be ({LONGEST_SOCKET_PATH} bytes, unix(7))",
                socket.display()
            ),
            Self::OpenToOthers(directory) => {
                format!("`chmod 700 {}`: others may use it", shell(directory))
            }
            Self::ProcessesAlone => "let /proc show more than processes here: `ProcSubset=all` of a unit; else mount it without subset=pid"
                .to_owned(),
            Self::ReadOnlyPlace(directory) => format!(
                "let {} be written (of a unit: `{}`), or set XDG_RUNTIME_DIR, or XDG_STATE_HOME, to a directory of yours that can be",
                directory.display(),
                writable(directory)
            ),
            Self::FileSize => {
                "let files be written: raise the limit on their size (`ulimit -f unlimited`; of a unit: `LimitFSIZE=infinity`)".to_owned()
            }
            Self::Processes => "let more processes be made: raise `ulimit -u`, or pids.max of a cgroup around this process (of a unit: \
                                `TasksMax=`)"
                .to_owned(),
            Self::Mute(socket) => unmute(socket),
        }
    }
}

/// As the standard library tells it.
fn os_text(errno: Errno) -> String {
    std::io::Error::from(errno).to_string()
}

/// A helper that ends lets its sessions go on; one that is held still cannot end by SIGTERM.
fn unmute(socket: &Path) -> String {
    match locking_pid(socket) {
        Some(pid) => format!(
            "let that helper go on, by `kill -CONT {pid}` or by a thaw of its cgroup; or `kill -KILL {pid}`: its sessions go on, and \
             the next command starts another helper that takes them over"
        ),
        None => format!(
            "see to the helper that has {}: restart its service, or name no such socket",
            socket.display()
        ),
    }
}

/// One that does not exist is made by the helper in a directory that does.
fn is_or_would_be_a_cgroup(directory: &Path) -> bool {
    let is_cgroup =
        |path: &Path| statfs(path).map(|stat| stat.filesystem_type() == CGROUP2_SUPER_MAGIC);
    match (is_cgroup(directory), directory.parent()) {
        (Err(Errno::ENOENT), Some(parent)) => is_cgroup(parent).unwrap_or(false),
        // Who may not even look at it gets the helper's own answer.
        (answer, _) => answer.unwrap_or(true),
    }
}

/// The directory of ours that is not used since others may.
pub(super) fn open_to_others(base: &Base) -> Option<PathBuf> {
    let error = base.run_dir().err().or_else(|| base.records_dir().err())?;
    let path = error.details().get("path")?.as_str()?;
    error
        .message()
        .contains("must be 0700")
        .then(|| PathBuf::from(path))
}
