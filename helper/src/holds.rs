//! Which connections hold which leaves frozen. A hold belongs to a connection and ends with it; what is recorded in the
//! leaf is only that there is one.

use std::collections::{BTreeMap, BTreeSet};

use crate::connection::ConnectionId;
use crate::table::Key;

/// All holds.
#[derive(Debug, Default)]
pub(crate) struct Holds(BTreeMap<Key, BTreeSet<ConnectionId>>);

impl Holds {
    /// A connection holds a leaf, once however often it says so.
    pub(crate) fn add(&mut self, key: &Key, connection: ConnectionId) {
        self.0.entry(key.clone()).or_default().insert(connection);
    }

    /// A connection holds a leaf no longer. Whether it was the last one: nobody holds it now.
    pub(crate) fn release(&mut self, key: &Key, connection: ConnectionId) -> bool {
        let Some(holders) = self.0.get_mut(key) else {
            return true;
        };
        holders.remove(&connection);
        let last = holders.is_empty();
        if last {
            self.0.remove(key);
        }
        last
    }

    /// What a connection holds.
    pub(crate) fn of(&self, connection: ConnectionId) -> Vec<Key> {
        self.0
            .iter()
            .filter(|(_, holders)| holders.contains(&connection))
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Who holds anything, once for each leaf.
    pub(crate) fn holders(&self) -> impl Iterator<Item = ConnectionId> {
        self.0.values().flatten().copied()
    }

    /// The session is over.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Domain;

    #[test]
    fn the_last_of_several_holders_releases() {
        let key: Key = ("s".parse().unwrap(), Domain::Scope);
        let (one, two) = (ConnectionId(1), ConnectionId(2));
        let mut holds = Holds::default();
        holds.add(&key, one);
        holds.add(&key, one);
        holds.add(&key, two);
        assert_eq!(holds.of(one), std::slice::from_ref(&key));
        assert_eq!(holds.holders().collect::<Vec<_>>(), [one, two]);
        assert!(!holds.release(&key, one));
        assert!(holds.of(one).is_empty());
        assert!(holds.release(&key, two));
        assert!(holds.release(&key, two), "nobody holds it");
    }
}
