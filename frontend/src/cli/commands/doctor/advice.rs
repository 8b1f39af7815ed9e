//! The one line that would raise the tier. Each was tried in the environment that it is for (docs/ENVIRONMENTS.md).

use std::path::{Path, PathBuf};

use cgleaf_shared::cgroup::{CgroupPath, Layout, cgroup2_mounts, layout, own_mountinfo, own_path};
use cgleaf_shared::id::Uid;

use super::super::super::context::Context;
use super::cause::{Cause, open_to_others};
use super::checks::all_namespaces_are_the_machines;
use super::{guard, systemd};
use crate::base::Base;
use crate::error::{Code, Error};

/// Whoever knows what was asked for, and where.
pub(super) struct Advice<'a> {
    pub(super) context: &'a Context,
}

impl Advice<'_> {
    /// What lets `run` start a program at all, where it does not.
    pub(super) fn to_run(&self, error: &Error) -> String {
        if let Some(directory) = open_to_others(&self.context.base) {
            return Cause::OpenToOthers(directory).advice();
        }
        to_run(error)
    }

    /// What gives a leaf, where there is none for this reason.
    pub(super) fn to_have_leaves(&self, reason: &str) -> String {
        let context = self.context;
        let scope_dir = context.scope_dir.as_deref();
        to_have_leaves(&Facts {
            scope_dir: context.scope_dir.clone(),
            cause: Cause::find(&context.base, scope_dir, reason),
            ..Facts::of_this_place(context.socket.as_deref())
        })
    }
}

/// What of the surroundings decides how a leaf could be had.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    uid: Uid,
    layout: Layout,
    /// Where cgroup2 is mounted.
    mount: Option<PathBuf>,
    /// The cgroup of this process.
    own: Option<CgroupPath>,
    container: bool,
    systemd: bool,
    user_manager: bool,
    socket_named: bool,
    /// The scope directory that was named.
    scope_dir: Option<PathBuf>,
    /// What keeps a leaf away, where that is known.
    cause: Option<Cause>,
}

impl Facts {
    fn of_this_place(named: Option<&Path>) -> Self {
        let mounts = own_mountinfo().unwrap_or_default();
        let first = cgroup2_mounts(&mounts).into_iter().next();
        let systemd = systemd::is_init();
        let uid = Uid::effective();
        let variable = std::env::var_os("CGLEAF_SOCKET").is_some_and(|value| !value.is_empty());
        Self {
            uid,
            layout: layout(&mounts),
            container: !systemd && is_container(first.as_ref().is_some_and(|m| m.read_only)),
            mount: first.map(|mount| mount.point),
            own: own_path().ok(),
            systemd,
            user_manager: uid != Uid::ROOT && systemd::user_manager_socket(uid).exists(),
            socket_named: named.is_some() || variable,
            scope_dir: None,
            cause: None,
        }
    }

    /// The service that this process is in, if that is why no leaf can be had.
    fn service(&self) -> Option<&CgroupPath> {
        self.own.as_ref().filter(|own| own.service().is_some())
    }
}

/// No kernel says so: a read-only cgroup2 is what container managers give, and the files and the variable are theirs. What an image
/// has left behind on a machine makes none of it: no container has all of the machine's namespaces.
fn is_container(read_only: bool) -> bool {
    let marks = [
        "/.dockerenv",
        "/run/.containerenv",
        "/run/systemd/container",
    ];
    let variables = ["container", "KUBERNETES_SERVICE_HOST"];
    let is_marked = marks.iter().any(|mark| Path::new(mark).exists())
        || variables
            .iter()
            .any(|name| std::env::var_os(name).is_some());
    read_only || (is_marked && !all_namespaces_are_the_machines())
}

/// What lets `run` start a program at all, where it does not.
fn to_run(error: &Error) -> String {
    match error.code() {
        Code::Storage => {
            "set XDG_RUNTIME_DIR, or XDG_STATE_HOME, to a directory of yours that can be written"
        }
        _ if error.message().contains("SIGSYS") => guard::REMEDY,
        _ => {
            "what the kernel or the helper answered stands above; put that right and run `cgleaf doctor` again"
        }
    }
    .to_owned()
}

/// What gives a leaf, where there is none.
fn to_have_leaves(facts: &Facts) -> String {
    if facts.socket_named {
        return "start a helper at the socket that --socket or CGLEAF_SOCKET names, or name none"
            .to_owned();
    }
    if let Some(cause) = &facts.cause {
        return cause.advice();
    }
    if facts.container {
        return format!(
            "outside, `systemctl enable --now cgleaf-helper-node.socket`, and give this container the directory of its socket: \
             `-v {directory}:{directory}:ro` (kubernetes: a hostPath volume)",
            directory = Base::NODE_DIRECTORY
        );
    }
    if facts.mount.is_none() {
        return match facts.layout {
            Layout::V1Only => {
                "mount cgroup2 beside v1, as root: `mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none \
                 /sys/fs/cgroup/unified`; for good: boot with systemd.unified_cgroup_hierarchy=1"
            }
            _ => "mount cgroup2, as root: `mount -t cgroup2 none /sys/fs/cgroup`",
        }
        .to_owned();
    }
    if let Some(directory) = &facts.scope_dir {
        return in_the_named_one(facts.uid, directory);
    }
    match (facts.systemd, facts.service()) {
        (true, Some(own)) => in_a_service(facts, own),
        (true, None) if !facts.user_manager && facts.uid != Uid::ROOT => {
            "log in through PAM, or have root run `loginctl enable-linger USER`, so that this user has a manager".to_owned()
        }
        (true, _) => {
            "what the kernel or the helper answered stands above; put that right and run `cgleaf doctor` again".to_owned()
        }
        (false, _) => beside_the_root(facts),
    }
}

/// It was named, so that nothing need be said of how to name one.
fn in_the_named_one(uid: Uid, directory: &Path) -> String {
    let directory = directory.display();
    format!(
        "what the helper answered of {directory} stands above; it must be this user's: `chown {uid} {directory} \
         {directory}/cgroup.procs {directory}/cgroup.subtree_control`, as root; or unset CGLEAF_SCOPE_DIR"
    )
}

/// A service that is not delegated, as a CI runner is: its cgroup is root's, and no user's manager may move anybody out.
fn in_a_service(facts: &Facts, own: &CgroupPath) -> String {
    let unit = own.service().unwrap_or_else(|| own.clone());
    format!(
        "delegate its cgroup to this service: `systemctl edit {}`, and there, under [Service], `Delegate=yes` and \
         `Environment=CGLEAF_SCOPE_DIR={}`",
        unit.name().unwrap_or("UNIT"),
        in_the_mount(facts, &unit)
    )
}

/// No systemd: somebody with the right to do so has to hand a cgroup over, with this user's shell in it.
fn beside_the_root(facts: &Facts) -> String {
    let own = facts.own.clone().unwrap_or_else(CgroupPath::root);
    let place = in_the_mount(facts, &own);
    let place = format!("{}/cgleaf-{}", place.trim_end_matches('/'), facts.uid);
    format!(
        "have root make a cgroup of this user's, and put the shell into it: `mkdir {place} && chown -R {} {place} && \
         echo PID >{place}/cgroup.procs`",
        facts.uid
    )
}

fn in_the_mount(facts: &Facts, path: &CgroupPath) -> String {
    let mount = facts
        .mount
        .as_deref()
        .unwrap_or(Path::new("/sys/fs/cgroup"));
    if path.is_root() {
        return mount.display().to_string();
    }
    mount.join(path.relative()).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            uid: Uid(1000),
            layout: Layout::Pure,
            mount: Some("/sys/fs/cgroup".into()),
            own: Some(CgroupPath::root()),
            container: false,
            systemd: true,
            user_manager: false,
            socket_named: false,
            scope_dir: None,
            cause: None,
        }
    }

    #[test]
    fn each_place_gets_its_own_line() {
        let service = Some(CgroupPath::parse("/system.slice/runner.service/x").unwrap());
        let cases = [
            (facts(), "enable-linger"),
            (
                Facts {
                    own: service.clone(),
                    user_manager: true,
                    ..facts()
                },
                "CGLEAF_SCOPE_DIR=/sys/fs/cgroup/system.slice/runner.service`",
            ),
            (
                Facts {
                    container: true,
                    systemd: false,
                    ..facts()
                },
                "/run/cgleaf/node",
            ),
            (
                Facts {
                    systemd: false,
                    ..facts()
                },
                "mkdir /sys/fs/cgroup/cgleaf-1000 ",
            ),
            (
                Facts {
                    layout: Layout::V1Only,
                    mount: None,
                    ..facts()
                },
                "beside v1",
            ),
            (
                Facts {
                    layout: Layout::None,
                    mount: None,
                    ..facts()
                },
                "mount -t cgroup2 none /sys/fs/cgroup`",
            ),
            (
                Facts {
                    socket_named: true,
                    ..facts()
                },
                "--socket",
            ),
            (
                Facts {
                    own: service.clone(),
                    user_manager: true,
                    scope_dir: Some("/sys/fs/cgroup/x".into()),
                    ..facts()
                },
                "chown 1000 /sys/fs/cgroup/x ",
            ),
            (
                Facts {
                    own: service,
                    container: true,
                    cause: Some(Cause::Limit),
                    ..facts()
                },
                "raise that limit",
            ),
        ];
        for (facts, words) in cases {
            let line = to_have_leaves(&facts);
            assert!(line.contains(words), "{facts:?}: {line}");
        }
    }
}
