//! What this machine and this process's surroundings offer to whoever starts a helper or a scope.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use cgleaf_shared::id::Uid;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

use crate::error::{Code, Error, Result};

/// The directories in which the tools of a system lie. PATH is the caller's, and root's helper must not be.
const TOOL_DIRECTORIES: [&str; 5] = [
    "/usr/bin",
    "/bin",
    "/usr/local/bin",
    "/run/current-system/sw/bin",
    "/usr/sbin",
];

/// The path of a tool of the system.
///
/// # Errors
/// UNSUPPORTED: it is not there.
pub(crate) fn tool(name: &str) -> Result<PathBuf> {
    TOOL_DIRECTORIES
        .iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| {
            let searched = TOOL_DIRECTORIES.join(", ");
            Error::new(
                Code::Unsupported,
                format!("there is no {name} in {searched}"),
            )
        })
}

/// Whether PID 1 is systemd, as sd_booted(3) decides it.
pub(super) fn systemd_is_init() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// The runtime directory in which the user's manager has its socket, and answers there.
pub(super) fn user_runtime_directory() -> Option<PathBuf> {
    let usual = PathBuf::from(format!("/run/user/{}", Uid::effective()));
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    named
        .into_iter()
        .chain([usual])
        .find(|directory| takes_connections(&directory.join("systemd/private")))
}

/// Whether somebody listens at a manager's socket: one that was killed leaves its file. It is asked nothing, and not waited for,
/// since one that has a full queue is there.
pub(crate) fn takes_connections(path: &Path) -> bool {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let connected = socket(AddressFamily::Unix, SockType::Stream, flags, None)
        .and_then(|socket| connect(socket.as_raw_fd(), &UnixAddr::new(path)?));
    matches!(connected, Ok(()) | Err(Errno::EAGAIN))
}

/// Whether a system call filter is around this process (`Seccomp: 2`, proc_pid_status(5)).
pub(crate) fn is_filtered() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        let mut lines = status.lines();
        lines.any(|line| line.strip_prefix("Seccomp:").map(str::trim) == Some("2"))
    })
}

/// Whether this process is confined more than PID 1 is: other user ids, a system call filter, or no_new_privs. A helper
/// that is started from here inherits that. What cannot be read counts as the same.
pub(super) fn is_in_a_sandbox() -> bool {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (own, first) = (read("/proc/self/status"), read("/proc/1/status"));
    let number = |status: &str, name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse::<u32>().ok())
    };
    let stricter = |name: &str| match (number(&own, name), number(&first, name)) {
        (Some(here), Some(there)) => here > there,
        _ => false,
    };
    // One that nobody has written is empty, and another than PID 1's all the same.
    let map = |path: &str| std::fs::read_to_string(path).ok();
    let (own_map, first_map) = (map("/proc/self/uid_map"), map("/proc/1/uid_map"));
    let is_mapped_otherwise = match (own_map, first_map) {
        (Some(own), Some(first)) => own != first,
        _ => false,
    };
    stricter("NoNewPrivs:")
        || stricter("Seccomp_filters:")
        || stricter("Seccomp:")
        || is_mapped_otherwise
}
