//! The service that this process is in.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cgleaf_shared::cgroup::CgroupPath;
use cgleaf_shared::id::Uid;
use cgleaf_shared::process::{Pid, Proc};

/// A service of systemd's, as its cgroup shows it: asking a manager needs a bus, which a unit's settings may take away.
#[derive(Debug, Clone)]
pub(super) struct Unit {
    pub(super) path: CgroupPath,
    /// Whether it is a user's manager that has it.
    pub(super) is_of_a_user: bool,
    /// Whose its cgroup is: where it is delegated, the user's that it runs as (`Delegate=`, systemd.resource-control(5)).
    pub(super) owner: Option<Uid>,
    /// Whose its first process is.
    pub(super) runs_as: Option<Uid>,
}

impl Unit {
    /// The one around that cgroup. `mount`: where cgroups are to be seen, if they are.
    pub(super) fn around(own: Option<&CgroupPath>, mount: Option<&Path>) -> Option<Self> {
        let path = own?.service()?;
        let directory = mount.map(|mount| mount.join(path.relative()));
        let is_a_manager =
            |path: CgroupPath| path.name().is_some_and(|name| name.starts_with("user@"));
        let is_of_a_user = path.ancestors().any(is_a_manager);
        Some(Self {
            is_of_a_user,
            owner: directory.as_deref().and_then(owner_of),
            runs_as: directory.as_deref().and_then(first_process_of),
            path,
        })
    }
}

fn owner_of(directory: &Path) -> Option<Uid> {
    let stat = std::fs::metadata(directory).ok()?;
    Some(Uid(stat.uid()))
}

/// The oldest process in a cgroup is the service's main one, or stands nearest to it. `None` where none can be seen.
fn first_process_of(directory: &Path) -> Option<Uid> {
    let listed = std::fs::read_to_string(directory.join("cgroup.procs")).ok()?;
    let proc = Proc::system().ok()?;
    let seen = |line: &str| {
        let process = proc.process(Pid::new(line.parse().ok()?)?).ok()?;
        let started = process.stat().ok()?.id.start;
        Some((started, process.status().ok()?.uids.real))
    };
    let (_, uid) = listed
        .lines()
        .filter_map(seen)
        .min_by_key(|(started, _)| *started)?;
    Some(Uid(uid))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A service that runs as uid 1000 and is not delegated.
    pub(in super::super) fn unit(path: &str) -> Unit {
        Unit {
            path: CgroupPath::parse(path).unwrap(),
            is_of_a_user: path.contains("/user@1000.service/"),
            owner: Some(Uid::ROOT),
            runs_as: Some(Uid(1000)),
        }
    }
}
