//! How much of the helper one domain may take.

use cgleaf_shared::wire::Mode;

/// Descriptors kept back for what must work when the rest is used up: a kill opens the leaf and one file, a list a leaf
/// and a few files, each at most this many at once.
pub(crate) const DESCRIPTOR_RESERVE: u64 = 16;
/// What one connection takes: its socket, its peer's pidfd, and the descriptor of a reply that it does not read.
const DESCRIPTORS_PER_CLIENT: u64 = 3;

/// The limits of this helper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quota {
    /// Sessions for each domain.
    pub(crate) sessions: usize,
    /// Connections for each domain.
    pub(crate) clients: usize,
    /// Connections that have not said Hello, for each domain; the oldest makes room.
    pub(crate) half_open: usize,
    /// Connections in all, so that the reserve of descriptors is kept.
    pub(crate) all_clients: usize,
}

impl Quota {
    /// The limits of a mode: in the root modes strangers share the helper, in the user modes a user has it for himself.
    pub(crate) fn new(
        mode: Mode,
        sessions: Option<u32>,
        clients: Option<u32>,
        descriptor_limit: u64,
        descriptors_in_use: u64,
    ) -> Self {
        let or = |asked: Option<u32>, root: usize| {
            let asked = asked.map(|asked| usize::try_from(asked).unwrap_or(usize::MAX));
            asked.unwrap_or(if mode.is_root_mode() {
                root
            } else {
                usize::MAX
            })
        };
        Self {
            sessions: or(sessions, 1000),
            clients: or(clients, 32),
            half_open: if mode.is_root_mode() { 8 } else { 64 },
            all_clients: clients_within(descriptor_limit, descriptors_in_use),
        }
    }
}

/// How many connections a limit of descriptors leaves room for.
pub(crate) fn clients_within(descriptor_limit: u64, descriptors_in_use: u64) -> usize {
    let left = descriptor_limit.saturating_sub(descriptors_in_use + DESCRIPTOR_RESERVE);
    usize::try_from(left / DESCRIPTORS_PER_CLIENT).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_never_given_to_clients() {
        let quota = Quota::new(Mode::Direct, None, None, 64, 10);
        assert_eq!(quota.all_clients, 12);
        assert_eq!(Quota::new(Mode::Direct, None, None, 20, 10).all_clients, 0);
    }

    #[test]
    fn strangers_share_and_a_user_does_not() {
        let root = Quota::new(Mode::NodeService, None, Some(2), 1024, 10);
        assert_eq!((root.sessions, root.clients, root.half_open), (1000, 2, 8));
        let user = Quota::new(Mode::Scope, Some(5), None, 1024, 10);
        assert_eq!((user.sessions, user.clients), (5, usize::MAX));
    }
}
