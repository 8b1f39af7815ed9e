//! The sessions that this helper has, in memory. It holds no descriptor, and nothing that could not be read from the
//! tree again: `rebuild` does so after a restart.

use std::collections::BTreeMap;
use std::rc::Rc;

use cgleaf_shared::attestation::{Attestation, FORMAT};
use cgleaf_shared::cgroup::CgroupPath;
use cgleaf_shared::id::{BootId, CgroupId, SessionId, SessionName};
use cgleaf_shared::wire::{BUILD, Target};

use crate::attrs::Identity;
use crate::place::Domain;

/// A domain's own directory: what attestations name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DomainDir {
    pub(crate) domain: Domain,
    pub(crate) path: CgroupPath,
    pub(crate) id: CgroupId,
}

/// One session.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) identity: Identity,
    pub(crate) leaf_path: CgroupPath,
    pub(crate) leaf_id: CgroupId,
    pub(crate) domain: Rc<DomainDir>,
}

impl Row {
    /// What names it in the table: ids are unique within a domain.
    pub(crate) fn key(&self) -> Key {
        (self.identity.session.clone(), self.domain.domain.clone())
    }

    /// What the helper states about it.
    pub(crate) fn attestation(&self, boot_id: BootId, root_id: CgroupId) -> Attestation {
        Attestation {
            format: FORMAT,
            session: self.identity.session.clone(),
            nonce: self.identity.nonce,
            boot_id,
            root_id,
            domain_path: self.domain.path.clone(),
            domain_id: self.domain.id,
            leaf_path: self.leaf_path.clone(),
            leaf_id: self.leaf_id,
            owner_uid: self.identity.owner,
            created: self.identity.created,
            helper_build: BUILD.to_owned(),
        }
    }

    /// Whether a client means this very leaf.
    pub(crate) fn is_target(&self, target: &Target) -> bool {
        self.identity.session == target.session
            && self.leaf_id == target.leaf_id
            && self.identity.nonce == target.nonce
    }
}

/// A session's id and its domain.
pub(crate) type Key = (SessionId, Domain);

/// All sessions, in the order of their ids.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: BTreeMap<Key, Row>,
    names: BTreeMap<(Domain, SessionName), SessionId>,
}

impl Table {
    /// How many there are of that domain, those included whose leaf has vanished without this helper.
    pub(crate) fn count(&self, domain: &Domain) -> usize {
        self.rows.keys().filter(|(_, of)| of == domain).count()
    }

    /// How many there are, those included whose leaf has vanished without this helper.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// All of them.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// Those after an id, in order.
    pub(crate) fn after<'a>(&'a self, id: Option<&'a SessionId>) -> impl Iterator<Item = &'a Row> {
        self.rows
            .values()
            .filter(move |row| id.is_none_or(|id| row.identity.session > *id))
    }

    /// The one of that key.
    pub(crate) fn get(&self, key: &Key) -> Option<&Row> {
        self.rows.get(key)
    }

    /// Those of that id, one for each domain that has one.
    pub(crate) fn of_id<'a>(&'a self, id: &'a SessionId) -> impl Iterator<Item = &'a Row> {
        self.rows
            .values()
            .filter(move |row| row.identity.session == *id)
    }

    /// The session that has that name, if one ever had and is still in the table.
    pub(crate) fn named(&self, domain: &Domain, name: &SessionName) -> Option<&Row> {
        let id = self.names.get(&(domain.clone(), name.clone()))?;
        self.rows.get(&(id.clone(), domain.clone()))
    }

    /// Adds one.
    pub(crate) fn insert(&mut self, row: Row) {
        let (id, domain) = row.key();
        if let Some(name) = &row.identity.name {
            self.names
                .insert((domain.clone(), name.clone()), id.clone());
        }
        self.rows.insert((id, domain), row);
    }

    /// Takes one out.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Row> {
        let row = self.rows.remove(key)?;
        if let Some(name) = &row.identity.name {
            let name = (key.1.clone(), name.clone());
            if self.names.get(&name) == Some(&key.0) {
                self.names.remove(&name);
            }
        }
        Some(row)
    }

    /// The keys of everything at or beneath a path.
    pub(crate) fn keys_within(&self, path: &CgroupPath) -> Vec<Key> {
        self.rows
            .values()
            .filter(|row| row.leaf_path.is_within(path))
            .map(Row::key)
            .collect()
    }
}
