//! What of systemd is there.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use cgleaf_shared::cgroup::CgroupPath;
use cgleaf_shared::id::Uid;

use nix::fcntl::OFlag;
use nix::unistd::pipe2;

use super::checks::{Check, unknown};
use super::spawn;
use crate::error::{Code, OrCode};
use crate::launch::{lingers, takes_connections, who_logs_out};

/// Whether PID 1 is systemd, as sd_booted(3) decides it.
pub(super) fn is_init() -> bool {
    Path::new("/run/systemd/system").is_dir()
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

/// An absolute path and no environment: this may be root.
fn version() -> Check {
    const PATH: &str = "/usr/bin/systemctl";
    let told = || {
        let (ours, theirs) = pipe2(OFlag::O_CLOEXEC).or_code(Code::Internal)?;
        let words = [PATH, "--version"].map(OsString::from).to_vec();
        let child = spawn::start(words, Vec::new(), Some(theirs.as_fd()))?;
        drop(theirs);
        let mut line = String::new();
        let read = BufReader::new(File::from(ours)).read_line(&mut line);
        spawn::end_of(child);
        read.or_code(Code::Internal).map(|_| line)
    };
    match told() {
        Ok(line) if line.is_empty() => unknown("systemd", &format!("{PATH} says nothing")),
        Ok(line) => Check::new("systemd", None, line.trim_end()),
        Err(error) => unknown("systemd", &format!("execute {PATH}: {}", error.message())),
    }
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
    let Some(uid) = leaf.and_then(who_logs_out) else {
        let detail = "what is started here does not lie beneath a user manager, which ends with the last logout";
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
