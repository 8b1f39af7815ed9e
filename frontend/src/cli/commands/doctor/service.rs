//! What to change where a service's settings keep a leaf away.

use std::path::Path;

use cgleaf_shared::id::Uid;

use super::facts::Facts;
use super::named::Named;
use super::place::Place;
use super::unit::Unit;
use super::words::{shell, unit_value};

/// A service that is not delegated, as a CI runner is: its cgroup is root's, and no user's manager may move anybody out. `None` where
/// nothing of its settings is in the way.
pub(super) fn in_a_service(facts: &Facts, unit: &Unit) -> Option<String> {
    let name = unit.path.name().unwrap_or("UNIT");
    let (mut settings, mut what) = (Vec::new(), "change this service's settings".to_owned());
    if facts.uid != Uid::ROOT && !unit.is_of_a_user {
        if let Some(other) = unit.runs_as.filter(|uid| *uid != facts.uid) {
            return Some(beneath_the_own_manager(facts, name, other));
        }
        let place = facts.in_the_mount(&unit.path);
        let named = named_well(facts);
        if facts.settings.are_known() && is_roots(facts.settings.value("User")) {
            what = format!(
                "{name} has no User=, so that what is delegated is root's: let systemd change the user, and no program of its ExecStart="
            );
            settings.push(format!("User={}", facts.uid));
        }
        if unit.owner != Some(facts.uid) && named.is_none_or(|named| named == Path::new(&place)) {
            if settings.is_empty() {
                "delegate its cgroup to this service".clone_into(&mut what);
            }
            settings.push("Delegate=yes".to_owned());
        }
        if named.is_none() {
            settings.push(format!(
                "Environment=CGLEAF_SCOPE_DIR={}",
                unit_value(&place)
            ));
        }
    }
    let mount = facts
        .mount
        .as_deref()
        .unwrap_or(Path::new("/sys/fs/cgroup"));
    settings.extend(facts.restrictions.settings(mount, &facts.settings));
    settings.extend(Place::settings_for(&facts.places, unit, &facts.settings));
    in_the_unit(&what, unit, &settings)
}

/// The settings of a unit, as they are put into a file beside its own.
pub(super) fn in_the_unit(what: &str, unit: &Unit, settings: &[String]) -> Option<String> {
    let (last, others) = settings.split_last()?;
    let others: Vec<String> = others.iter().map(|one| format!("`{one}`")).collect();
    let and = if others.is_empty() { "" } else { " and " };
    Some(format!(
        "{what}: `systemctl {}edit {}`, and there, under [Service], {}{and}`{last}`",
        if unit.is_of_a_user { "--user " } else { "" },
        shell(unit.path.name().unwrap_or("UNIT")),
        others.join(", "),
    ))
}

/// The scope directory that was named, where it could be this service's to have.
fn named_well(facts: &Facts) -> Option<&Path> {
    match &facts.scope_dir {
        Some((directory, named)) if !matches!(named, Named::Root | Named::Absent) => {
            let is_own = |unit: &Unit| directory == Path::new(&facts.in_the_mount(&unit.path));
            let is_of_another =
                *named == Named::OfAUnit && !facts.unit.as_ref().is_some_and(is_own);
            (!is_of_another).then_some(directory)
        }
        _ => None,
    }
}

fn is_roots(user: &str) -> bool {
    matches!(user, "" | "root" | "0")
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
