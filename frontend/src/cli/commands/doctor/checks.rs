//! The single checks of `doctor`. Each tries the thing itself; none goes by a version.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cgleaf_shared::cgroup::{CgroupRoot, Layout, cgroup2_mounts, layout, own_mountinfo, own_path};
use nix::sys::utsname::uname;
use serde_json::{Value, json};

use super::guard::guarded;
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

/// A check that gave no answer, and why.
pub(super) fn unknown(name: &'static str, why: &str) -> Check {
    Check::new(name, None, format!("cannot be told: {why}"))
}

/// What the kernel has, and how it is set up.
pub(super) fn of_the_kernel() -> Vec<Check> {
    vec![
        kernel(),
        layout_check(),
        guarded("cgroup", root_check),
        namespaces(),
        moves(),
        seccomp(),
        guarded("landlock", landlock),
    ]
}

fn kernel() -> Check {
    match uname() {
        Ok(told) => {
            let release = told.release().to_string_lossy();
            Check::new("kernel", None, format!("Linux {release}"))
        }
        Err(errno) => Check::new("kernel", None, format!("uname(2): {errno}")),
    }
}

/// The machine's own namespaces have numbers that the kernel fixes (linux/proc_ns.h).
const OF_THE_MACHINE: [(&str, u64); 5] = [
    ("cgroup", 0xEFFF_FFFB),
    ("pid", 0xEFFF_FFFC),
    ("user", 0xEFFF_FFFD),
    ("uts", 0xEFFF_FFFE),
    ("ipc", 0xEFFF_FFFF),
];

/// Whether this process is in another one than the machine's. What cannot be read is not known to be the machine's.
pub(super) fn is_another_namespace(name: &str) -> bool {
    let of_the_machine = OF_THE_MACHINE.iter().find(|(other, _)| *other == name);
    let own = std::fs::metadata(format!("/proc/self/ns/{name}")).map(|stat| stat.ino());
    own.ok() != of_the_machine.map(|(_, number)| *number)
}

/// Which namespaces are not the machine's own.
fn namespaces() -> Check {
    let told: Vec<String> = OF_THE_MACHINE
        .iter()
        .map(
            |(name, number)| match std::fs::metadata(format!("/proc/self/ns/{name}")) {
                Ok(stat) if stat.ino() == *number => format!("{name}: the machine's"),
                Ok(_) => format!("{name}: another"),
                Err(error) => format!("{name}: {error}"),
            },
        )
        .collect();
    Check::new("namespaces", None, told.join(", "))
}

fn layout_check() -> Check {
    let mounts = match own_mountinfo() {
        Ok(mounts) => mounts,
        Err(error) => return unknown("layout", &error.to_string()),
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
            // That it is read-only is no fault: so it is in containers, and a helper outside writes.
            let how = if mount.read_only {
                "read-only, as in most containers: only a helper outside can make leaves"
            } else {
                "writable as a mount"
            };
            let detail = format!("{name}; cgroup2 at {}, {how}", mount.point.display());
            Check::new("layout", (!mount.read_only).then_some(true), detail)
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
    const PATH: &str = "/proc/self/mounts";
    let mounts = match std::fs::read_to_string(PATH) {
        Ok(mounts) => mounts,
        Err(error) => return unknown("moves", &format!("read {PATH}: {error}")),
    };
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

fn seccomp() -> Check {
    const PATH: &str = "/proc/sys/kernel/seccomp/actions_avail";
    match std::fs::read_to_string(PATH) {
        Ok(actions) => Check::new(
            "seccomp",
            Some(actions.contains("kill_process")),
            format!("actions: {}", actions.trim()),
        ),
        // Without /proc/sys nothing is said of it (ProcSubset=pid).
        Err(error) if !Path::new("/proc/sys/kernel").exists() => {
            unknown("seccomp", &format!("read {PATH}: {error}"))
        }
        Err(error) => Check::new("seccomp", Some(false), format!("read {PATH}: {error}")),
    }
}

fn landlock() -> Check {
    match cgleaf_helper::sandbox::landlock::kernel_abi() {
        Ok(abi) => Check::new("landlock", Some(abi >= 3), format!("ABI {abi}")),
        Err(error) => Check::new("landlock", Some(false), format!("not to be had: {error}")),
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

/// Whether what is started here leaves a service, whose limits and `systemctl stop` then no longer cover it.
pub(super) fn of_the_service(probe: &Result<Probe>) -> Check {
    let own = match own_path() {
        Ok(own) => own,
        Err(error) => return unknown("service", &error.to_string()),
    };
    let detail = match (own.service(), probe) {
        (None, _) => "this process is in no service".to_owned(),
        (Some(service), Ok(probe)) if !probe.leaf.is_within(&service) => format!(
            "a program that is started here leaves {service}: that unit's limits, filters and `stop` no longer cover it"
        ),
        (Some(service), _) => format!("what is started here stays in {service}"),
    };
    Check::new("service", None, detail)
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
            match base.home_passed_over() {
                None => base.records_path().display().to_string(),
                Some(why) => format!(
                    "{}, since HOME is no place for them: {why}",
                    base.records_path().display()
                ),
            },
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
