//! What keeps a leaf away, where that can be told: then the advice goes by it and not by the place.

use std::path::{Path, PathBuf};

use cgleaf_shared::wire::Mode;
use nix::errno::Errno;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};

use super::guard;
use super::limit::Limit;
use super::proc;
use super::program::Program;
use super::words::{os_text, shell};
use crate::base::Base;
use crate::client::{locking_pid, unanswered_at};
use crate::error::Error;
use crate::launch::is_filtered;

/// The length of `sun_path` without its final zero (unix(7)).
const LONGEST_SOCKET_PATH: usize = 107;

/// What keeps a leaf away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cause {
    /// The scope directory that was named is no cgroup.
    NoCgroup(PathBuf),
    /// A system call filter that kills.
    Filter,
    /// A system call filter that refuses.
    FilterRefuses,
    /// cgroup.max.descendants or cgroup.max.depth.
    Limit(Limit),
    /// No socket can have a path as long as this one.
    LongPath(PathBuf),
    /// Others may use this directory of ours.
    OpenToOthers(PathBuf),
    /// /proc shows processes alone: `ProcSubset=pid` of a unit, `subset=pid` of the mount (proc(5)).
    ProcessesAlone,
    /// There is no /proc.
    NoProc,
    /// /proc is another pid namespace's.
    ProcOfAnother,
    /// Nothing can be written to a file (RLIMIT_FSIZE).
    FileSize,
    /// No more processes can be made.
    Processes,
    /// No more descriptors can be had (RLIMIT_NOFILE).
    Descriptors,
    /// The helper's program does not start.
    Program(Program),
    /// Somebody listens there and does not answer.
    Mute(PathBuf),
    /// No helper can tell who asks: this uid is what it sees of everybody whose own has no number there.
    Nobody,
}

impl Cause {
    /// The cause by what is there, and by the reason that was given.
    pub(super) fn find(
        base: &Base,
        scope_dir: Option<&Path>,
        reason: &str,
        is_container: bool,
    ) -> Option<Self> {
        let socket = base.socket(Mode::Direct);
        if let Some(directory) = scope_dir.filter(|directory| !is_or_would_be_a_cgroup(directory)) {
            return Some(Self::NoCgroup(directory.to_path_buf()));
        }
        if let Some(cause) = Self::told_by(reason) {
            return Some(cause);
        }
        if reason.contains(&os_text(Errno::EPERM)) && is_filtered() && !is_container {
            Some(Self::FilterRefuses)
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
            return Some(Self::Mute(socket.to_path_buf()));
        }
        if let Some(cause) = Self::told_by(error.message()) {
            return Some(cause);
        }
        if says("/proc/sys/") && proc::shows_processes_alone() {
            Some(Self::ProcessesAlone)
        } else if says(&os_text(Errno::EFBIG)) {
            Some(Self::FileSize)
        } else if says(&os_text(Errno::EAGAIN)) || says(Errno::EAGAIN.desc()) {
            Some(Self::Processes)
        } else if says(&os_text(Errno::EPERM)) && is_filtered() {
            Some(Self::FilterRefuses)
        } else {
            None
        }
    }

    /// The cause that makes no difference between a leaf and nothing at all.
    fn told_by(reason: &str) -> Option<Self> {
        if reason.contains("SIGSYS") {
            Some(Self::Filter)
        } else if let Some(limit) = Limit::named_in(reason) {
            // The kernel has the same answer for it as for a lack of processes.
            Some(Self::Limit(limit))
        } else if reason.contains("RLIMIT_NOFILE") || reason.contains(Errno::EMFILE.desc()) {
            Some(Self::Descriptors)
        } else if proc::is_missing() {
            Some(Self::NoProc)
        } else if proc::is_of_another_namespace() {
            Some(Self::ProcOfAnother)
        } else {
            Program::that_does_not_start(reason).map(Self::Program)
        }
    }

    /// What ends it.
    pub(super) fn advice(&self) -> String {
        match self {
            Self::NoCgroup(directory) => format!(
                "unset CGLEAF_SCOPE_DIR, or leave --scope-dir out: {} is no directory of cgroup2; or name one that is",
                directory.display()
            ),
            Self::Limit(limit) => limit.advice(),
            Self::LongPath(socket) => format!(
                "set XDG_RUNTIME_DIR to a shorter path: {} is longer than a socket's may be ({LONGEST_SOCKET_PATH} bytes, unix(7))",
                socket.display()
            ),
            Self::OpenToOthers(directory) => {
                format!("`chmod 700 {}`: others may use it", shell(directory))
            }
            Self::Program(program) => program.advice(),
            Self::Mute(socket) => unmute(socket),
            Self::Filter => guard::REMEDY.to_owned(),
            Self::FilterRefuses => FILTER_REFUSES.to_owned(),
            Self::ProcessesAlone => PROCESSES_ALONE.to_owned(),
            Self::NoProc => NO_PROC.to_owned(),
            Self::ProcOfAnother => PROC_OF_ANOTHER.to_owned(),
            Self::FileSize => FILE_SIZE.to_owned(),
            Self::Processes => PROCESSES.to_owned(),
            Self::Descriptors => DESCRIPTORS.to_owned(),
            Self::Nobody => NOBODY.to_owned(),
        }
    }
}

/// What is named behind a list that begins with `~` is taken out of it (systemd.exec(5)).
const FILTER_REFUSES: &str = "have the system call filter around this process let the call through that is refused above (of a unit: \
    `SystemCallFilter=@system-service` behind its own list)";
const PROCESSES_ALONE: &str = "let /proc show more than processes here: `ProcSubset=all` of a unit; else mount it without subset=pid";
const NO_PROC: &str = "mount /proc, as root: `mount -t proc proc /proc` (of a unit with a root of its own: `MountAPIVFS=yes`)";
const PROC_OF_ANOTHER: &str = "mount the /proc of this pid namespace, as its root: `mount -t proc proc /proc` (`unshare --mount-proc` \
    does so): what is mounted there is another's, in which nobody here has his number";
const FILE_SIZE: &str = "let files be written: raise the limit on their size (`ulimit -f unlimited`; of a unit: `LimitFSIZE=infinity`)";
const PROCESSES: &str = "let more processes be made: raise `ulimit -u`, or pids.max of a cgroup around this process (of a unit: `TasksMax=`)";
const DESCRIPTORS: &str = "let more files be open: raise that limit (`ulimit -Hn 1024 && ulimit -n 1024`, as root where it is lower; of a unit: `LimitNOFILE=1024`)";
const NOBODY: &str = "call cgleaf as another uid (of a unit: another `User=`; docker: another `--user`; in a user namespace: \
    `unshare --map-current-user`): 65534 is what a helper sees of \
    everybody whose uid has no number in its user namespace, so that none serves it";

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
