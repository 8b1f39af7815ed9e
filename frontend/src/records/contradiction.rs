//! What no version of ours writes: a record whose parts do not speak of the same session. Whoever edits a record can make each
//! part true by itself; one whose parts do not fit is damaged, and is never acted on.

use cgleaf_shared::attestation::Attestation;
use cgleaf_shared::cgroup::leaf_name;

use super::record::{Phase, Record, Tier};
use crate::group::GroupIdentity;

/// What does not fit, if something does not.
pub(super) fn contradiction(record: &Record) -> Option<String> {
    let told = between_the_tiers(record).or_else(|| {
        record
            .attestation
            .as_ref()
            .and_then(|it| of_leaf(record, it))
    });
    if let Some(why) = told {
        return Some(why.to_owned());
    }
    let group = record.group.clone()?;
    match serde_json::from_value::<GroupIdentity>(group) {
        Ok(identity) => of_group(record, &identity).map(str::to_owned),
        Err(why) => Some(format!("its group cannot be read: {why}")),
    }
}

fn between_the_tiers(record: &Record) -> Option<&'static str> {
    let (leaf, group) = (record.attestation.is_some(), record.group.is_some());
    let runs = record.phase == Phase::Running;
    match record.tier {
        Tier::Group if leaf => Some("it speaks of the group tier, and of a leaf"),
        Tier::Group if (runs || record.leader.is_some()) && !group => {
            Some("it speaks of the group tier, and of no process")
        }
        Tier::Cgroup if group => Some("it speaks of the cgroup tier, and of a process group"),
        Tier::Cgroup if runs && !leaf => Some("its program was started, and it speaks of no leaf"),
        _ => None,
    }
}

/// What is stated about a leaf.
fn of_leaf(record: &Record, stated: &Attestation) -> Option<&'static str> {
    if stated.session != record.session {
        return Some("what it states is about the leaf of another session");
    }
    if stated.boot_id != record.maker.boot_id {
        return Some(TWO_BOOTS);
    }
    if stated.leaf_path.name() != Some(&leaf_name(&record.session)) {
        return Some("the path that it states is not one of the session's leaf");
    }
    if !stated.leaf_path.is_within(&stated.domain_path) {
        return Some("the leaf that it states lies outside of the directory that it states");
    }
    let Some(helper) = &record.helper else {
        return Some("it speaks of a leaf, and of no helper");
    };
    let elsewhere = helper.scope.as_ref().is_some_and(|scope| {
        (&scope.path, scope.id, scope.root_id)
            != (&stated.domain_path, stated.domain_id, stated.root_id)
    });
    elsewhere.then_some("its helper is said to serve another directory than its leaf lies in")
}

/// What is recorded of a process group, as it is written when the program is about to be executed.
fn of_group(record: &Record, identity: &GroupIdentity) -> Option<&'static str> {
    let maker = &record.maker;
    if identity.boot_id != maker.boot_id {
        return Some(TWO_BOOTS);
    }
    if maker.pid_namespace.is_some() && identity.pid_ns != maker.pid_namespace {
        return Some("it speaks of two pid namespaces");
    }
    if record.leader != identity.leader() {
        return Some("it speaks of two leaders");
    }
    if record.mark.as_deref().unwrap_or_default() != identity.mark {
        return Some("it speaks of two marks");
    }
    let own = Some(identity.pid);
    if identity.pgid.is_some() && (identity.pgid, identity.sid) != (own, own) {
        return Some("its process group is not one that its leader leads");
    }
    if identity.autogroup.is_some() && identity.pgid.is_none() {
        return Some("it speaks of an autogroup, and of no process group");
    }
    match identity.monitor {
        Some(monitor) if identity.start.is_some_and(|start| start < monitor.start) => {
            Some("its leader is said to be older than its monitor, which has started it")
        }
        Some(_) => None,
        // `exec`: who claims the id becomes the program. Where a /proc shows nobody of ours, neither start nor monitor is known.
        None if identity
            .start
            .is_some_and(|start| (identity.pid, start) != (maker.pid, maker.start)) =>
        {
            Some("its leader is said not to be who made it, and it speaks of no monitor")
        }
        None => None,
    }
}

const TWO_BOOTS: &str = "it speaks of two boots";
