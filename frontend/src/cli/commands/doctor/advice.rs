//! The one line that would raise the tier. Each was tried in the environment that it is for (docs/ENVIRONMENTS.md).

use std::path::{Path, PathBuf};

use cgleaf_shared::cgroup::{CgroupPath, Layout, cgroup2_mounts, layout, own_mountinfo, own_path};
use cgleaf_shared::id::Uid;

use super::super::super::context::Context;
use super::cause::{Cause, open_to_others};
use super::checks::all_namespaces_are_the_machines;
use super::restrictions::{Restrictions, read_only};
use super::systemd;
use super::unit::Unit;
use super::words::{shell, unit_value};
use crate::base::Base;
use crate::error::{Code, Error};
use crate::launch::takes_connections;

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
        if error.code() == Code::Storage
            && let Some(directory) = read_only(self.context.base.records_path())
        {
            return Cause::ReadOnlyPlace(directory).advice();
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
            ..Facts::of_this_place(context, reason)
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
    /// The service that this process is in.
    unit: Option<Unit>,
    /// What its unit's settings, or whoever else made its mounts, take away.
    restrictions: Restrictions,
    socket_named: bool,
    /// The scope directory that was named.
    scope_dir: Option<PathBuf>,
    /// What keeps a leaf away, where that is known.
    cause: Option<Cause>,
}

impl Facts {
    fn of_this_place(context: &Context, reason: &str) -> Self {
        let mounts = own_mountinfo().unwrap_or_default();
        let first = cgroup2_mounts(&mounts).into_iter().next();
        let systemd = systemd::is_init();
        let uid = Uid::effective();
        let own = own_path().ok();
        let mount = first.as_ref().map(|mount| mount.point.clone());
        let mut restrictions = Restrictions::here(&mounts, &context.base);
        // Whoever is in the group that may see all, as root is, is not kept from it.
        restrictions.hidden_processes &= uid != Uid::ROOT || reason.contains("hidepid");
        let variable = std::env::var_os("CGLEAF_SOCKET").is_some_and(|value| !value.is_empty());
        Self {
            uid,
            layout: layout(&mounts),
            container: !systemd && is_container(first.as_ref().is_some_and(|m| m.read_only)),
            unit: Unit::around(own.as_ref(), mount.as_deref()).filter(|_| systemd),
            mount,
            own,
            restrictions,
            systemd,
            user_manager: uid != Uid::ROOT && takes_connections(&systemd::user_manager_socket(uid)),
            socket_named: context.socket.is_some() || variable,
            scope_dir: None,
            cause: None,
        }
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
pub(super) fn to_run(error: &Error) -> String {
    if let Some(cause) = Cause::of_nothing_started(error) {
        return cause.advice();
    }
    match error.code() {
        Code::Storage => {
            "set XDG_RUNTIME_DIR, or XDG_STATE_HOME, to a directory of yours that can be written"
        }
        _ => AS_ANSWERED,
    }
    .to_owned()
}

/// Where no more is known than what stands in the reason.
const AS_ANSWERED: &str = "what the kernel or the helper answered stands above; put that right and run `cgleaf doctor` again";

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
    if let Some(line) = facts
        .unit
        .as_ref()
        .and_then(|unit| in_a_service(facts, unit))
    {
        return line;
    }
    if let Some(directory) = &facts.scope_dir {
        return in_the_named_one(facts.uid, directory);
    }
    if facts.restrictions.hidden_processes {
        return "mount /proc without hidepid, as root: `mount -o remount,hidepid=0 /proc`"
            .to_owned();
    }
    match facts.systemd {
        true if !facts.user_manager && facts.uid != Uid::ROOT => format!(
            "log in through PAM, or have root run `loginctl enable-linger {}`, so that this user has a manager",
            facts.uid
        ),
        true => AS_ANSWERED.to_owned(),
        false => beside_the_root(facts),
    }
}

/// It was named, so that nothing need be said of how to name one.
fn in_the_named_one(uid: Uid, directory: &Path) -> String {
    let files = ["", "/cgroup.procs", "/cgroup.subtree_control"];
    let files = files.map(|file| shell(format!("{}{file}", directory.display())));
    format!(
        "what the helper answered of {} stands above; it must be this user's: `chown {uid} {}`, as root; or unset CGLEAF_SCOPE_DIR",
        directory.display(),
        files.join(" ")
    )
}

/// A service that is not delegated, as a CI runner is: its cgroup is root's, and no user's manager may move anybody out. `None` where
/// nothing of its settings is in the way.
fn in_a_service(facts: &Facts, unit: &Unit) -> Option<String> {
    let name = unit.path.name().unwrap_or("UNIT");
    let (mut settings, mut what) = (Vec::new(), "change this service's settings");
    if facts.uid != Uid::ROOT && !unit.is_of_a_user {
        if let Some(other) = unit.runs_as.filter(|uid| *uid != facts.uid) {
            return Some(beneath_the_own_manager(facts, name, other));
        }
        let place = in_the_mount(facts, &unit.path);
        let named = facts.scope_dir.as_deref();
        if unit.owner != Some(facts.uid) && named.is_none_or(|named| named == Path::new(&place)) {
            what = "delegate its cgroup to this service";
            settings.push("Delegate=yes".to_owned());
        }
        if named.is_none() {
            settings.push(format!(
                "Environment=CGLEAF_SCOPE_DIR={}",
                unit_value(&place)
            ));
        }
    }
    settings.extend(facts.restrictions.settings());
    let (last, others) = settings.split_last()?;
    let others: Vec<String> = others.iter().map(|one| format!("`{one}`")).collect();
    let and = if others.is_empty() { "" } else { " and " };
    Some(format!(
        "{what}: `systemctl {}edit {}`, and there, under [Service], {}{and}`{last}`",
        if unit.is_of_a_user { "--user " } else { "" },
        shell(name),
        others.join(", "),
    ))
}

/// A job of somebody else's service, such as cron's: what is delegated goes to the service's own user, and what is set for it need not
/// come to the job.
fn beneath_the_own_manager(facts: &Facts, name: &str, other: Uid) -> String {
    let uid = facts.uid;
    let first = if facts.user_manager {
        String::new()
    } else {
        format!(
            "have root run `loginctl enable-linger {uid}`, so that this user has a manager, and "
        )
    };
    format!(
        "{name} runs as uid {other}, so that its cgroup is not this user's to have: {first}start the job beneath this user's own manager: \
         `XDG_RUNTIME_DIR=/run/user/{uid} systemd-run --user --scope --quiet -- COMMAND`"
    )
}

/// No systemd: somebody with the right to do so has to hand a cgroup over, with this user's shell in it.
fn beside_the_root(facts: &Facts) -> String {
    let own = facts.own.clone().unwrap_or_else(CgroupPath::root);
    let place = in_the_mount(facts, &own);
    let place = shell(format!(
        "{}/cgleaf-{}",
        place.trim_end_matches('/'),
        facts.uid
    ));
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
            unit: None,
            restrictions: Restrictions::default(),
            socket_named: false,
            scope_dir: None,
            cause: None,
        }
    }

    fn service(text: &str) -> Option<Unit> {
        Some(Unit {
            path: CgroupPath::parse(text).unwrap(),
            is_of_a_user: text.contains("/user@1000.service/"),
            owner: Some(Uid::ROOT),
            runs_as: Some(Uid(1000)),
        })
    }

    #[test]
    fn each_place_gets_its_own_line() {
        let runner = service("/system.slice/runner.service");
        let cases = [
            (facts(), "enable-linger"),
            (
                Facts {
                    unit: runner.clone(),
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
                    unit: runner.clone(),
                    user_manager: true,
                    scope_dir: Some("/sys/fs/cgroup/x".into()),
                    ..facts()
                },
                "chown 1000 /sys/fs/cgroup/x ",
            ),
            (
                Facts {
                    unit: service(r"/system.slice/a\x2db.service"),
                    ..facts()
                },
                r"`systemctl edit 'a\x2db.service'`, and there, under [Service], `Delegate=yes` and `Environment=CGLEAF_SCOPE_DIR=/sys/fs/cgroup/system.slice/a\\x2db.service`",
            ),
            (
                Facts {
                    unit: service(
                        "/user.slice/user-1000.slice/user@1000.service/app.slice/a.service",
                    ),
                    restrictions: Restrictions {
                        read_only_cgroups: true,
                        ..Restrictions::default()
                    },
                    user_manager: true,
                    ..facts()
                },
                "`systemctl --user edit a.service`, and there, under [Service], `ProtectControlGroups=no`",
            ),
            (
                Facts {
                    unit: runner.clone().map(|unit| Unit {
                        runs_as: Some(Uid::ROOT),
                        ..unit
                    }),
                    ..facts()
                },
                "runs as uid 0, so that its cgroup is not this user's to have: have root run `loginctl enable-linger 1000`",
            ),
            (
                Facts {
                    unit: runner.clone().map(|unit| Unit {
                        owner: Some(Uid(1000)),
                        ..unit
                    }),
                    scope_dir: Some("/sys/fs/cgroup/system.slice/runner.service".into()),
                    restrictions: Restrictions {
                        hidden_processes: true,
                        no_unix_sockets: true,
                        ..Restrictions::default()
                    },
                    ..facts()
                },
                "under [Service], `ProtectProc=default` and `RestrictAddressFamilies=AF_UNIX`",
            ),
            (
                Facts {
                    unit: runner.clone(),
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
