//! The one line that would raise the tier. Each was tried in the environment that it is for (docs/ENVIRONMENTS.md).

use std::path::Path;

use cgleaf_shared::cgroup::{CgroupPath, Layout};
use cgleaf_shared::id::Uid;

use super::super::super::context::Context;
use super::cause::{Cause, open_to_others};
use super::facts::Facts;
use super::place::Place;
use super::service::{in_a_service, in_the_unit};
use super::unit::Unit;
use super::words::{parent_pid, shell};
use crate::base::Base;
use crate::error::{Code, Error};

/// Whoever knows what was asked for, and where.
pub(super) struct Advice<'a> {
    pub(super) context: &'a Context,
}

impl Advice<'_> {
    /// What lets `run` start a program at all, where it does not.
    pub(super) fn to_run(&self, error: &Error) -> String {
        let base = &self.context.base;
        if let Some(directory) = open_to_others(base) {
            return Cause::OpenToOthers(directory).advice();
        }
        let cause = Cause::of_nothing_started(error);
        if error.code() != Code::Storage || cause.is_some() {
            return cause.map_or_else(|| AS_ANSWERED.to_owned(), |cause| cause.advice());
        }
        let mut facts = Facts::of_this_place(self.context, error.message());
        if facts.places.is_empty() {
            let path = error.details().get("path").and_then(|path| path.as_str());
            facts.places.push(Place::around(base, path));
        }
        of_the_places(&facts)
    }

    /// What gives a leaf, where there is none for this reason.
    pub(super) fn to_have_leaves(&self, reason: &str) -> String {
        to_have_leaves(&Facts::of_this_place(self.context, reason))
    }
}

/// What lets `run` start a program at all, where not even a place can be told.
pub(super) fn to_run(error: &Error) -> String {
    match Cause::of_nothing_started(error) {
        Some(cause) => cause.advice(),
        None => AS_ANSWERED.to_owned(),
    }
}

/// Where no more is known than what stands in the reason.
const AS_ANSWERED: &str = "what the kernel or the helper answered stands above; put that right and run `cgleaf doctor` again";

/// What its unit has set is named by what would undo it.
fn of_the_cause(cause: &Cause, facts: &Facts) -> String {
    let line = match (cause, &facts.unit) {
        (Cause::Program(program), Some(unit)) => in_the_unit(
            "let this service execute the helper",
            unit,
            &program.settings(&facts.settings),
        ),
        _ => None,
    };
    line.unwrap_or_else(|| cause.advice())
}

fn of_the_places(facts: &Facts) -> String {
    let settings = |unit: &Unit| {
        let settings = Place::settings_for(&facts.places, unit, &facts.settings);
        in_the_unit(
            "give this service a place that it can write",
            unit,
            &settings,
        )
    };
    let in_a_unit = facts.unit.as_ref().and_then(settings);
    in_a_unit.unwrap_or_else(|| match facts.places.first() {
        Some(place) => place.advice(facts.container),
        None => AS_ANSWERED.to_owned(),
    })
}

/// What gives a leaf, where there is none.
fn to_have_leaves(facts: &Facts) -> String {
    if facts.uid == Uid::OVERFLOW {
        return Cause::Nobody.advice();
    }
    if facts.socket_named {
        return "start a helper at the socket that --socket or CGLEAF_SOCKET names, or name none"
            .to_owned();
    }
    if let Some(cause) = &facts.cause {
        return of_the_cause(cause, facts);
    }
    if facts.unit.is_none() && !facts.places.is_empty() {
        return of_the_places(facts);
    }
    if facts.container {
        return format!(
            "outside, `systemctl enable --now cgleaf-helper-node.socket`, and give this container the directory of its socket: \
             `-v {directory}:{directory}:ro` (kubernetes: a hostPath volume)",
            directory = Base::NODE_DIRECTORY
        );
    }
    if facts.mount.is_none() {
        return to_have_a_mount(facts);
    }
    if let Some(line) = facts
        .unit
        .as_ref()
        .and_then(|unit| in_a_service(facts, unit))
    {
        return line;
    }
    if let Some((directory, named)) = &facts.scope_dir {
        return named
            .advice(facts.uid, directory)
            .unwrap_or_else(|| AS_ANSWERED.to_owned());
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
        // Root makes what it needs: what it was refused is no matter of a cgroup's owner.
        false if facts.uid == Uid::ROOT => AS_ANSWERED.to_owned(),
        false => beside_the_root(facts),
    }
}

fn to_have_a_mount(facts: &Facts) -> String {
    let usual = Path::new("/sys/fs/cgroup");
    let hiding = |unit: &Unit| {
        ["InaccessiblePaths", "TemporaryFileSystem"]
            .iter()
            .find_map(|list| {
                let entry = facts.settings.entry_around(list, usual)?;
                in_the_unit(
                    "show this service the cgroups",
                    unit,
                    &facts.settings.without(list, &entry),
                )
            })
    };
    if let Some(line) = facts.unit.as_ref().and_then(hiding) {
        return line;
    }
    match facts.layout {
        Layout::V1Only => {
            "mount cgroup2 beside v1, as root: `mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none \
             /sys/fs/cgroup/unified`; for good: boot with systemd.unified_cgroup_hierarchy=1"
        }
        _ => {
            "mount cgroup2, as root: `mkdir -p /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup` (of a unit: neither InaccessiblePaths= \
             nor TemporaryFileSystem= may hide it)"
        }
    }
    .to_owned()
}

/// No systemd: somebody with the right to do so has to hand a cgroup over, with this user's shell in it.
fn beside_the_root(facts: &Facts) -> String {
    let own = facts.own.clone().unwrap_or_else(CgroupPath::root);
    // Beneath a threaded one there is none that takes a process.
    let above = own.ancestors().find(|path| is_no_threads_one(facts, path));
    let place = facts.in_the_mount(&above.unwrap_or_else(CgroupPath::root));
    let place = shell(format!(
        "{}/cgleaf-{}",
        place.trim_end_matches('/'),
        facts.uid
    ));
    format!(
        "have root make a cgroup of this user's, and put the shell into it: `mkdir {place} && chown -R {} {place} && \
         echo {} >{place}/cgroup.procs`",
        facts.uid,
        parent_pid()
    )
}

/// The root has no such file (cgroup-v2.rst), and is none.
fn is_no_threads_one(facts: &Facts, path: &CgroupPath) -> bool {
    let file = Path::new(&facts.in_the_mount(path)).join("cgroup.type");
    std::fs::read_to_string(file).map_or(true, |kind| kind.trim() == "domain")
}

#[cfg(test)]
mod tests {
    use super::super::limit::Limit;
    use super::super::named::Named;
    use super::super::restrictions::Restrictions;
    use super::super::settings::Settings;
    use super::super::settings::tests::settings;
    use super::super::unit::tests::unit;
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
            settings: Settings::default(),
            places: Vec::new(),
        }
    }

    fn service(text: &str) -> Option<Unit> {
        Some(unit(text))
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
                    scope_dir: Some((
                        "/sys/fs/cgroup/x".into(),
                        Named::OfOthers(vec!["/sys/fs/cgroup/x".into()]),
                    )),
                    ..facts()
                },
                "`chown 1000 /sys/fs/cgroup/x`",
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
                    scope_dir: Some((
                        "/sys/fs/cgroup/system.slice/runner.service".into(),
                        Named::Own,
                    )),
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
                    scope_dir: Some(("/sys/fs/cgroup/system.slice".into(), Named::OfAUnit)),
                    ..facts()
                },
                "CGLEAF_SCOPE_DIR=/sys/fs/cgroup/system.slice/runner.service`",
            ),
            (
                Facts {
                    unit: runner.clone(),
                    settings: settings("User=\nDelegate=yes\n"),
                    ..facts()
                },
                "under [Service], `User=1000`, `Delegate=yes` and",
            ),
            (
                Facts {
                    uid: Uid::ROOT,
                    systemd: false,
                    ..facts()
                },
                "stands above",
            ),
            (
                Facts {
                    uid: Uid::OVERFLOW,
                    unit: runner.clone(),
                    ..facts()
                },
                "another uid",
            ),
            (
                Facts {
                    unit: runner.clone(),
                    container: true,
                    cause: Limit::named_in("/x/cgroup.max.depth = 1 leaves no room")
                        .map(Cause::Limit),
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
