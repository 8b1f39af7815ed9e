//! What of systemd is there.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cgleaf_shared::cgroup::CgroupPath;
use cgleaf_shared::id::Uid;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::pipe2;

use super::checks::{Check, unknown};
use super::spawn;
use crate::client::Deadline;
use crate::error::{Code, Error, OrCode, Result};
use crate::launch::{lingers, system_tool, takes_connections, who_logs_out};

/// Whether PID 1 is systemd, as sd_booted(3) decides it.
pub(super) fn is_init() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// The same where a unit's settings hide /run: its cgroup and PID 1 show that it is one.
pub(super) fn is_around(own: Option<&CgroupPath>) -> bool {
    is_init()
        || (own.and_then(CgroupPath::service).is_some()
            && std::fs::read_to_string("/proc/1/comm").is_ok_and(|name| name.trim() == "systemd"))
}

/// By which the user's manager is talked to without a bus.
pub(super) fn user_manager_socket(uid: Uid) -> PathBuf {
    PathBuf::from(format!("/run/user/{uid}/systemd/private"))
}

/// `leaf`: where one was made, if it could be.
pub(super) fn checks(leaf: Option<&CgroupPath>) -> Vec<Check> {
    let mut found = vec![init()];
    if is_init() {
        found.push(version());
        found.push(user_manager());
        found.push(lingering(leaf));
    }
    found
}

fn init() -> Check {
    const PATH: &str = "/proc/1/comm";
    let detail = match (is_init(), std::fs::read_to_string(PATH)) {
        (true, Ok(name)) => format!("PID 1 is systemd ({})", name.trim()),
        (true, Err(_)) => "PID 1 is systemd".to_owned(),
        (false, Ok(name)) => format!(
            "PID 1 is {}, not systemd: a helper is started directly",
            name.trim()
        ),
        (false, Err(error)) => format!(
            "PID 1 is not systemd (what it is cannot be told: read {PATH}: {error}): a helper is started directly"
        ),
    };
    Check::new("init", None, detail)
}

fn version() -> Check {
    match told_by_systemctl(vec!["--version".into()]) {
        Ok(text) => Check::new("systemd", None, text.lines().next().unwrap_or_default()),
        Err(error) => unknown("systemd", error.message()),
    }
}

/// How long a manager may take for an answer, and how much of one is read.
const PATIENCE: Duration = Duration::from_secs(2);
const MOST: usize = 64 * 1024;

/// What systemctl says. It is taken from where a system has its tools, and of the environment it has what leads to a user's manager
/// alone: this may be root.
///
/// # Errors
/// UNSUPPORTED: it is not there, or says nothing. INTERNAL: it cannot be started.
pub(super) fn told_by_systemctl(arguments: Vec<OsString>) -> Result<String> {
    let path = system_tool("systemctl")?;
    let (ours, theirs) = pipe2(OFlag::O_CLOEXEC)
        .or_code(Code::Internal)
        .map_err(|error| error.while_doing("make a pipe for systemctl"))?;
    let words = std::iter::once(path.clone().into())
        .chain(arguments)
        .collect();
    let variables = ["XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"];
    let mut environment = spawn::own_environment();
    environment.retain(|entry| {
        let entry = entry.to_string_lossy();
        variables
            .iter()
            .any(|name| entry.starts_with(&format!("{name}=")))
    });
    let child = spawn::start(words, environment, Some(theirs.as_fd()))?;
    drop(theirs);
    let text = read_in_time(ours);
    // One that has said all has ended; one that has not is not waited for.
    let _ = kill(nix::unistd::Pid::from_raw(child.get()), Signal::SIGKILL);
    spawn::end_of(child);
    if text.is_empty() {
        let path = path.display();
        return Err(Error::new(
            Code::Unsupported,
            format!("{path} says nothing"),
        ));
    }
    Ok(text)
}

fn read_in_time(pipe: OwnedFd) -> String {
    let deadline = Deadline::after(PATIENCE);
    let mut pipe = File::from(pipe);
    let mut read = Vec::new();
    while let Some(left) = deadline.left().filter(|_| read.len() < MOST) {
        let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
        let wait = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        if !matches!(poll(&mut fds, wait), Ok(count) if count > 0) {
            break;
        }
        let mut chunk = [0; 4096];
        match pipe.read(&mut chunk) {
            Ok(count) if count > 0 => read.extend_from_slice(&chunk[..count]),
            _ => break,
        }
    }
    String::from_utf8_lossy(&read).into_owned()
}

fn user_manager() -> Check {
    let uid = Uid::effective();
    let socket = user_manager_socket(uid);
    if uid == Uid::ROOT {
        return Check::new(
            "manager",
            None,
            "root's sessions are kept by the system manager",
        );
    }
    let there = takes_connections(&socket);
    let detail = if there {
        format!("the user manager is there ({})", socket.display())
    } else {
        format!(
            "there is no user manager (none answers at {})",
            socket.display()
        )
    };
    Check::new("manager", Some(there), detail)
}

/// Ten seconds after the last login without it, the user manager and every scope of it end.
fn lingering(leaf: Option<&CgroupPath>) -> Check {
    let Some(leaf) = leaf else {
        let detail = "what is started here has no leaf beneath a user manager, which ends with the last logout";
        return Check::new("lingering", None, detail);
    };
    let Some(uid) = who_logs_out(leaf) else {
        let detail = "sessions survive every logout: their leaves lie beneath no user manager and in no login's scope";
        return Check::new("lingering", None, detail);
    };
    let Some(lingers) = lingers(uid) else {
        return Check::new("lingering", None, "this user has no name");
    };
    let detail = if lingers {
        "sessions survive the last logout"
    } else {
        "sessions end with the last logout; `loginctl enable-linger` changes that"
    };
    Check::new("lingering", Some(lingers), detail)
}
