//! The scope directories of helpers that are gone: a new helper takes them over (DESIGN 3.2). Records name them; one whose
//! records are lost or damaged is found where the service manager puts our scopes.

use std::collections::BTreeSet;
use std::path::Path;

use cgleaf_shared::attestation::{Attestation, Verdict, verify};
use cgleaf_shared::cgroup::{
    CgroupDir, CgroupPath, CgroupRoot, HELPER_DIR, attributes, leaf_name, own_path,
    session_of_leaf_name,
};
use cgleaf_shared::id::{BootId, CgroupId, SessionId, Uid};
use cgleaf_shared::wire::Mode;

use super::start_helper::is_scope_unit;
use crate::base::Base;
use crate::client::Client;
use crate::records::{Found, Record, Store};

/// What `--take-over` is given for a helper that will bind `socket`, in a directory if it is given one: a directory that was
/// given is served by a helper that was given it and by no other, so that two never have the same leaves (docs/adr/0006). What cannot be
/// read is left out: it takes nothing away that the helper could be given later.
pub(super) fn scopes(base: &Base, socket: &Path, directory: Option<&Path>) -> Vec<String> {
    let Ok(store) = Store::open(base) else {
        return Vec::new();
    };
    let sessions = store.sessions().unwrap_or_default();
    let boot = BootId::current().ok();
    let root = CgroupRoot::open().ok();
    let found: BTreeSet<String> = sessions
        .iter()
        .filter_map(|session| match store.read(session) {
            Ok(Some(Found::Record(record))) if is_its(&record, root.as_ref(), directory) => {
                old_scope(&record, boot, socket)
            }
            _ => None,
        })
        .collect();
    found.into_iter().collect()
}

/// Whether a helper that is given that directory, or none, may have the leaves of this record's.
fn is_its(record: &Record, root: Option<&CgroupRoot>, directory: Option<&Path>) -> bool {
    let scope = record.helper.as_ref().and_then(|helper| {
        let is_direct = helper.mode == Mode::Direct.name();
        helper.scope.as_ref().map(|scope| (scope, is_direct))
    });
    let (Some((scope, is_direct)), Some(root)) = (scope, root) else {
        return false;
    };
    match directory {
        Some(directory) => root.mount().point.join(scope.path.relative()) == directory,
        None => !is_direct || is_made(root, &scope.path),
    }
}

/// Whether a helper made that directory itself. One that is gone harms nobody.
fn is_made(root: &CgroupRoot, path: &CgroupPath) -> bool {
    root.open_path(path)
        .and_then(|dir| dir.attribute(attributes::MADE))
        .is_ok_and(|made| made.is_some())
}

fn old_scope(record: &Record, boot: Option<BootId>, socket: &Path) -> Option<String> {
    let attestation = record.attestation.as_ref()?;
    if Some(attestation.boot_id) != boot || (record.phase.is_over() && is_gone(attestation)) {
        return None;
    }
    let helper = record.helper.as_ref()?;
    let scope = helper.scope.as_ref()?;
    // A helper that still answers at a socket of its own keeps what it has.
    if helper.socket != socket && Client::connect(&helper.socket).is_ok() {
        return None;
    }
    Some(written(
        attestation.boot_id,
        scope.root_id,
        scope.id,
        &scope.path,
    ))
}

fn written(boot: BootId, root: CgroupId, id: CgroupId, path: &CgroupPath) -> String {
    format!("{boot}:{root}:{id}:{path}")
}

/// The same for the scopes in which a helper of this user's manager has left sessions and lives no more, whatever the records
/// say. Nobody but this user can have made a cgroup there, and the helper looks at each leaf's owner for itself.
pub(super) fn stranded() -> Vec<String> {
    let (Ok(root), Ok(boot)) = (CgroupRoot::open(), BootId::current()) else {
        return Vec::new();
    };
    let scopes = stranded_scopes(&root);
    scopes
        .iter()
        .filter_map(|dir| Some(written(boot, root.id(), dir.id().ok()?, dir.path())))
        .collect()
}

/// Whether such a scope has a directory with the name of that session's leaf.
pub(crate) fn is_stranded(session: &SessionId, root: &CgroupRoot) -> bool {
    let name = leaf_name(session);
    let scopes = stranded_scopes(root);
    scopes.iter().any(|scope| scope.open_child(&name).is_ok())
}

fn stranded_scopes(root: &CgroupRoot) -> Vec<CgroupDir> {
    let parents = parents_of_scopes().into_iter();
    parents
        .filter_map(|path| scopes_beneath(root, &path))
        .flatten()
        .collect()
}

/// Where the manager that [`super::start_helper::Way::Scope`] asks makes scopes.
fn parents_of_scopes() -> Vec<CgroupPath> {
    let uid = Uid::effective();
    if uid == Uid::ROOT {
        return CgroupPath::parse("/system.slice").into_iter().collect();
    }
    let slice = format!("user-{uid}.slice");
    // A manager in a container has its slices beneath a cgroup of the container's.
    let own = own_path().ok();
    let ours = own.and_then(|own| own.ancestors().find(|path| path.name() == Some(&slice)));
    let usual = CgroupPath::parse(&format!("/user.slice/{slice}")).ok();
    let manager = format!("user@{uid}.service");
    let Some(manager) = ours.or(usual).and_then(|slice| slice.child(&manager).ok()) else {
        return Vec::new();
    };
    let apps = manager.child("app.slice").ok();
    apps.into_iter().chain([manager]).collect()
}

fn scopes_beneath(root: &CgroupRoot, parent: &CgroupPath) -> Option<Vec<CgroupDir>> {
    let parent = root.open_path(parent).ok()?;
    let names = parent.children().ok()?;
    let ours = names.iter().filter(|name| is_scope_unit(name));
    let dirs = ours.filter_map(|name| parent.open_child(name).ok());
    Some(dirs.filter(has_lost_its_helper).collect())
}

fn has_lost_its_helper(scope: &CgroupDir) -> bool {
    let serves = scope
        .open_child(HELPER_DIR)
        .and_then(|helper| helper.events())
        .is_ok_and(|events| events.populated);
    let names = scope.children().unwrap_or_default();
    !serves
        && names
            .iter()
            .any(|name| session_of_leaf_name(name).is_some())
}

/// Whether nothing is left of a session that is over: a frontend or helper that was killed at the end may have left the
/// empty leaf, and only its helper can remove that.
fn is_gone(attestation: &Attestation) -> bool {
    CgroupRoot::open().is_ok_and(|root| matches!(verify(attestation, &root), Verdict::Gone))
}
