//! Which connections hold which leaves frozen. A hold belongs to a connection and ends with it; what is recorded in the
//! leaf is only that there is one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::connection::ConnectionId;
use crate::table::Key;

/// All holds.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    held: BTreeMap<Key, BTreeSet<ConnectionId>>,
    /// What nobody holds any more and the machine had no descriptor or memory left to thaw, and when that is tried again.
    overdue: Vec<(Instant, Key)>,
}

impl Holds {
    /// A connection holds a leaf, once however often it says so.
    pub(crate) fn add(&mut self, key: &Key, connection: ConnectionId) {
        self.held.entry(key.clone()).or_default().insert(connection);
    }

    /// A connection holds a leaf no longer. Whether it was the last one: nobody holds it now.
    pub(crate) fn release(&mut self, key: &Key, connection: ConnectionId) -> bool {
        let Some(holders) = self.held.get_mut(key) else {
            return true;
        };
        holders.remove(&connection);
        let last = holders.is_empty();
        if last {
            self.held.remove(key);
        }
        last
    }

    /// What a connection holds.
    pub(crate) fn of(&self, connection: ConnectionId) -> Vec<Key> {
        self.held
            .iter()
            .filter(|(_, holders)| holders.contains(&connection))
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Who holds anything, once for each leaf.
    pub(crate) fn holders(&self) -> impl Iterator<Item = ConnectionId> {
        self.held.values().flatten().copied()
    }

    /// A leaf's hold, which nobody has any more, is to be dropped then.
    pub(crate) fn drop_at(&mut self, at: Instant, key: Key) {
        self.overdue.push((at, key));
    }

    /// The next such time.
    pub(crate) fn next_drop(&self) -> Option<Instant> {
        self.overdue.iter().map(|(at, _)| *at).min()
    }

    /// Takes what is to be dropped by now. Whoever took hold of it meanwhile drops it himself.
    pub(crate) fn overdue(&mut self, now: Instant) -> Vec<Key> {
        let (due, later) = std::mem::take(&mut self.overdue)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.overdue = later;
        let due: Vec<(Instant, Key)> = due;
        due.into_iter()
            .map(|(_, key)| key)
            .filter(|key| !self.held.contains_key(key))
            .collect()
    }

    /// The session is over.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.held.remove(key);
        self.overdue.retain(|(_, overdue)| overdue != key);
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
