//! The scope directories of helpers that are gone, as records name them: a new helper takes them over (DESIGN 3.2).

use std::collections::BTreeSet;
use std::path::Path;

use cgleaf_shared::attestation::{Attestation, Verdict, verify};
use cgleaf_shared::cgroup::CgroupRoot;
use cgleaf_shared::id::BootId;

use crate::base::Base;
use crate::client::Client;
use crate::records::{Found, Record, Store};

/// What `--take-over` is given for a helper that will bind `socket`. What cannot be read is left out: it takes nothing
/// away that the helper could be given later.
pub(super) fn scopes(base: &Base, socket: &Path) -> Vec<String> {
    let Ok(store) = Store::open(base) else {
        return Vec::new();
    };
    let sessions = store.sessions().unwrap_or_default();
    let boot = BootId::current().ok();
    let found: BTreeSet<String> = sessions
        .iter()
        .filter_map(|session| match store.read(session) {
            Ok(Some(Found::Record(record))) => old_scope(&record, boot, socket),
            _ => None,
        })
        .collect();
    found.into_iter().collect()
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
    Some(format!(
        "{}:{}:{}:{}",
        attestation.boot_id, scope.root_id, scope.id, scope.path
    ))
}

/// Whether nothing is left of a session that is over: a frontend or helper that was killed at the end may have left the
/// empty leaf, and only its helper can remove that.
fn is_gone(attestation: &Attestation) -> bool {
    CgroupRoot::open().is_ok_and(|root| matches!(verify(attestation, &root), Verdict::Gone))
}
