//! The single checks of `doctor`. Each tries the thing itself; none goes by a version.

use std::fmt;
use std::path::Path;

use cgleaf_shared::cgroup::{CgroupRoot, Layout, cgroup2_mounts, layout, own_mountinfo, own_path};
use cgleaf_shared::process::{Pid, Pidfd, Proc};
use serde_json::{Value, json};

use crate::base::Base;
use crate::error::{Error, Result};
use crate::ops::Probe;

/// One check.
#[derive(Debug)]
pub(super) struct Check {
    name: &'static str,
    /// `None` where it is neither good nor bad, or cannot be told.
    good: Option<bool>,
    detail: String,
}

impl Check {
    pub(super) fn new(name: &'static str, good: Option<bool>, detail: impl Into<String>) -> Self {
        Self {
            name,
            good,
            detail: detail.into(),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({"name": self.name, "ok": self.good, "detail": self.detail})
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.good {
            Some(true) => "ok",
            Some(false) => "NO",
            None => "--",
        };
        write!(f, "{sign:<7} {}: {}", self.name, self.detail)
    }
}

/// What the kernel has, and how it is set up.
pub(super) fn of_the_kernel() -> Vec<Check> {
    vec![
        layout_check(),
        root_check(),
        moves(),
        pidfd(),
        children(),
        seccomp(),
        landlock(),
        autogroup(),
    ]
}

fn layout_check() -> Check {
    let mounts = match own_mountinfo() {
        Ok(mounts) => mounts,
        Err(error) => return Check::new("layout", None, error.to_string()),
    };
    let name = match layout(&mounts) {
        Layout::Pure => "cgroup2 alone",
        Layout::Hybrid => "cgroup2 beside v1 hierarchies",
        Layout::V1Only => "v1 hierarchies alone",
        Layout::None => "no cgroup file system",
    };
    match cgroup2_mounts(&mounts).first() {
        None => Check::new("layout", Some(false), name),
        Some(mount) => {
            let how = if mount.read_only {
                "read-only"
            } else {
                "writable"
            };
            let detail = format!("{name}; cgroup2 at {}, {how}", mount.point.display());
            Check::new("layout", Some(!mount.read_only), detail)
        }
    }
}

fn root_check() -> Check {
    match (CgroupRoot::open(), own_path()) {
        (Ok(root), Ok(own)) => Check::new(
            "cgroup",
            Some(true),
            format!(
                "this process is in {own}, beneath a root of id {}",
                root.id()
            ),
        ),
        (Err(error), _) => Check::new("cgroup", Some(false), error.to_string()),
        (_, Err(error)) => Check::new("cgroup", Some(false), error.to_string()),
    }
}

/// A move waits for a grace period of the kernel unless the mount favours moves.
fn moves() -> Check {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let favoured = mounts
        .lines()
        .any(|line| line.contains(" cgroup2 ") && line.contains("favordynmods"));
    let detail = if favoured {
        "cgroup2 is mounted with favordynmods: a move into a leaf is cheap"
    } else {
        "a move into a leaf may take some 10 ms; `mount -o remount,favordynmods` of the cgroup2 mount makes it cheap"
    };
    Check::new("moves", favoured.then_some(true), detail)
}

fn pidfd() -> Check {
    match Pidfd::open(Pid::own()) {
        Ok(_) => Check::new("pidfd", Some(true), "processes can be held by descriptor"),
        Err(error) => Check::new("pidfd", Some(false), error.to_string()),
    }
}

fn children() -> Check {
    let there = Path::new("/proc/thread-self/children").exists();
    let detail = if there {
        "/proc tells the children of a thread"
    } else {
        "/proc does not tell the children of a thread (CONFIG_PROC_CHILDREN): strays are found by a slower scan"
    };
    Check::new("children", Some(there), detail)
}

fn seccomp() -> Check {
    match std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail") {
        Ok(actions) => Check::new(
            "seccomp",
            Some(actions.contains("kill_process")),
            format!("actions: {}", actions.trim()),
        ),
        Err(error) => Check::new("seccomp", Some(false), error.to_string()),
    }
}

fn landlock() -> Check {
    match cgleaf_helper::sandbox::landlock::kernel_abi() {
        Ok(abi) => Check::new("landlock", Some(abi >= 3), format!("ABI {abi}")),
        Err(error) => Check::new("landlock", Some(false), format!("not to be had: {error}")),
    }
}

/// The group tier proves a process group by it.
fn autogroup() -> Check {
    let own = Proc::system()
        .and_then(|proc| proc.process(Pid::own()))
        .and_then(|dir| dir.autogroup());
    match own {
        Ok(found) => Check::new("autogroup", Some(true), format!("{found:?}")),
        Err(error) => Check::new("autogroup", Some(false), error.to_string()),
    }
}

/// What was seen on a leaf that was made for this.
pub(super) fn of_the_leaf(probe: &Result<Probe>) -> Vec<Check> {
    let probe = match probe {
        Ok(probe) => probe,
        Err(error) => return vec![Check::new("leaf", Some(false), error.message())],
    };
    let kill = match probe.kill {
        Some(true) => "it has cgroup.kill",
        Some(false) => "there is no cgroup.kill (5.14 has it)",
        None => "not to be seen from here",
    };
    let freezer = match &probe.freezer {
        Ok(()) => Check::new("freezer", Some(true), "an empty leaf was frozen and thawed"),
        Err(why) => Check::new("freezer", Some(false), why.clone()),
    };
    let removed = match &probe.leftover {
        None => Check::new(
            "leaf",
            Some(true),
            format!("{} was made and removed", probe.leaf),
        ),
        Some(why) => Check::new("leaf", Some(false), why.clone()),
    };
    vec![
        removed,
        Check::new("cgroup.kill", probe.kill, kill),
        freezer,
    ]
}

/// Where sockets and records lie.
pub(super) fn of_our_places(base: &Base, trouble: Option<Error>) -> Vec<Check> {
    let place = base.root().display();
    let base_check = match base.passed_over() {
        None => Check::new("base", Some(true), place.to_string()),
        Some(why) => Check::new("base", None, format!("{place}, since {why}")),
    };
    let records = match trouble {
        None => Check::new(
            "records",
            Some(true),
            base.records_path().display().to_string(),
        ),
        Some(error) => Check::new("records", Some(false), error.message()),
    };
    vec![base_check, records]
}

/// What of the helper's lock-down is enforced.
pub(super) fn of_the_sandbox(helper: &Value) -> Check {
    let parts = helper["enforced"].as_array().cloned().unwrap_or_default();
    let missing: Vec<String> = parts
        .iter()
        .filter(|part| part["enforced"] == false)
        .map(|part| {
            let told = |name: &str| part[name].as_str().unwrap_or("?").to_owned();
            format!("{} ({})", told("part"), told("detail"))
        })
        .collect();
    if missing.is_empty() && !parts.is_empty() {
        return Check::new(
            "sandbox",
            Some(true),
            "all of the helper's lock-down is in force",
        );
    }
    let detail = format!("not in force: {}", missing.join(", "));
    Check::new("sandbox", Some(false), detail)
}
