//! The sessions that this helper has, in memory. It holds no descriptor, and nothing that could not be read from the
//! tree again: `rebuild` does so after a restart.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;

use cgleaf_shared::attestation::{Attestation, FORMAT};
use cgleaf_shared::cgroup::{CgroupPath, session_of_leaf_name};
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

/// All sessions, in the order of their ids. What one request asks of it takes no longer where there are ten thousand.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: BTreeMap<Key, Row>,
    names: BTreeMap<(Domain, SessionName), SessionId>,
    domains: BTreeMap<Domain, Population>,
}

/// How many sessions a domain has, and the directory of the last one that was made.
#[derive(Debug)]
struct Population {
    count: usize,
    dir: Rc<DomainDir>,
}

impl Table {
    /// How many there are of that domain, those included whose leaf has vanished without this helper.
    pub(crate) fn count(&self, domain: &Domain) -> usize {
        self.domains.get(domain).map_or(0, |of| of.count)
    }

    /// How many there are, those included whose leaf has vanished without this helper.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The directory that a domain's sessions name, where it has any.
    pub(crate) fn domain_dir(&self, domain: &Domain) -> Option<&Rc<DomainDir>> {
        self.domains.get(domain).map(|of| &of.dir)
    }

    /// All of them.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// Those after an id, in order.
    pub(crate) fn after<'a>(&'a self, id: Option<&'a SessionId>) -> impl Iterator<Item = &'a Row> {
        let from = match id {
            Some(id) => Bound::Included((id.clone(), Domain::Scope)),
            None => Bound::Unbounded,
        };
        self.rows
            .range((from, Bound::Unbounded))
            .map(|(_, row)| row)
            .skip_while(move |row| id == Some(&row.identity.session))
    }

    /// The one of that key.
    pub(crate) fn get(&self, key: &Key) -> Option<&Row> {
        self.rows.get(key)
    }

    /// Those of that id, one for each domain that has one.
    pub(crate) fn of_id<'a>(&'a self, id: &'a SessionId) -> impl Iterator<Item = &'a Row> {
        // `Scope` is the first of the domains.
        self.rows
            .range((id.clone(), Domain::Scope)..)
            .map(|(_, row)| row)
            .take_while(move |row| row.identity.session == *id)
    }

    /// The session that has that name, if one ever had and is still in the table.
    pub(crate) fn named(&self, domain: &Domain, name: &SessionName) -> Option<&Row> {
        let id = self.names.get(&(domain.clone(), name.clone()))?;
        self.rows.get(&(id.clone(), domain.clone()))
    }

    /// The session whose leaf lies there: a leaf's name tells its session.
    pub(crate) fn at(&self, path: &CgroupPath) -> Option<&Row> {
        let id = session_of_leaf_name(path.name()?)?;
        self.rows
            .range((id.clone(), Domain::Scope)..)
            .map(|(_, row)| row)
            .take_while(|row| row.identity.session == id)
            .find(|row| row.leaf_path == *path)
    }

    /// Adds one.
    pub(crate) fn insert(&mut self, row: Row) {
        let key = row.key();
        self.remove(&key);
        if let Some(name) = &row.identity.name {
            self.names
                .insert((key.1.clone(), name.clone()), key.0.clone());
        }
        let of = self
            .domains
            .entry(key.1.clone())
            .or_insert_with(|| Population {
                count: 0,
                dir: row.domain.clone(),
            });
        of.count += 1;
        of.dir = row.domain.clone();
        self.rows.insert(key, row);
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
        if let Some(of) = self.domains.get_mut(&key.1) {
            of.count -= 1;
            if of.count == 0 {
                self.domains.remove(&key.1);
            }
        }
        Some(row)
    }
}

#[cfg(test)]
mod tests {
    use cgleaf_shared::id::{BootTime, Nonce, Uid};

    use super::*;

    fn row(id: &str, path: &str, domain: Domain, name: Option<&str>) -> Row {
        Row {
            identity: Identity {
                session: id.parse().unwrap(),
                nonce: Nonce::from_bytes([7; 16]),
                owner: Uid(0),
                created: BootTime(1),
                name: name.map(|name| name.parse().unwrap()),
            },
            leaf_path: CgroupPath::parse(path).unwrap(),
            leaf_id: CgroupId(1),
            domain: Rc::new(DomainDir {
                domain,
                path: CgroupPath::root(),
                id: CgroupId(1),
            }),
        }
    }

    fn container(path: &str) -> Domain {
        Domain::Container(CgroupPath::parse(path).unwrap())
    }

    fn ids<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<String> {
        rows.map(|row| row.identity.session.to_string()).collect()
    }

    #[test]
    fn one_id_may_be_in_several_domains_and_stays_together() {
        let mut table = Table::default();
        table.insert(row("b", "/c/b", container("/c"), None));
        table.insert(row("a", "/s/a", Domain::Scope, None));
        table.insert(row("b", "/s/b", Domain::Scope, None));
        table.insert(row("c", "/s/c", Domain::Scope, None));
        let b = "b".parse().unwrap();
        assert_eq!(ids(table.of_id(&b)), ["b", "b"]);
        assert_eq!(ids(table.after(Some(&b))), ["c"]);
        assert_eq!(
            ids(table.after(Some(&"aa".parse().unwrap()))),
            ["b", "b", "c"]
        );
        assert_eq!(ids(table.after(None)).len(), 4);
        assert_eq!(
            (table.count(&Domain::Scope), table.count(&container("/c"))),
            (3, 1)
        );
        table.remove(&(b.clone(), Domain::Scope));
        assert_eq!((table.count(&Domain::Scope), table.len()), (2, 3));
        table.remove(&(b, container("/c")));
        assert!(table.domain_dir(&container("/c")).is_none());
    }

    #[test]
    fn a_session_is_found_by_where_its_leaf_lies() {
        let mut table = Table::default();
        table.insert(row("a", "/s/cgleaf-a.leaf", Domain::Scope, None));
        table.insert(row("a", "/c/cgleaf-a.leaf", container("/c"), None));
        let at = |path: &str| {
            let found = table.at(&CgroupPath::parse(path).unwrap());
            found.map(|row| row.domain.domain.clone())
        };
        assert_eq!(at("/s/cgleaf-a.leaf"), Some(Domain::Scope));
        assert_eq!(at("/c/cgleaf-a.leaf"), Some(container("/c")));
        for nobody in ["/d/cgleaf-a.leaf", "/s/cgleaf-b.leaf", "/s/a", "/"] {
            assert_eq!(at(nobody), None, "{nobody}");
        }
    }

    #[test]
    fn a_name_is_its_last_owners() {
        let mut table = Table::default();
        table.insert(row("a", "/s/a", Domain::Scope, Some("n")));
        table.insert(row("b", "/s/b", Domain::Scope, Some("n")));
        let name = "n".parse().unwrap();
        table.remove(&("a".parse().unwrap(), Domain::Scope));
        assert_eq!(
            table
                .named(&Domain::Scope, &name)
                .unwrap()
                .leaf_path
                .as_str(),
            "/s/b"
        );
        table.remove(&("b".parse().unwrap(), Domain::Scope));
        assert!(table.named(&Domain::Scope, &name).is_none());
    }
}
