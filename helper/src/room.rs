//! Who gets a connection, and who loses one for it: the shares of those who ask, over what was found out. Nothing is read here.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Instant;

use cgleaf_shared::id::Uid;
use cgleaf_shared::wire::{Refusal, RefusalCode};

use crate::connection::ConnectionId;
use crate::place::Domain;
use crate::quota::Quota;
use crate::refuse;

/// Whose connections are counted together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Share {
    /// Everybody's: a user has the helper for himself.
    Everybody,
    /// Those of one domain.
    Domain(Domain),
    /// Those of one uid in no domain of this helper's: root on the host, and whoever is refused.
    Outside(Uid),
}

/// What ends with a connection. What is worth more is taken later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Worth {
    /// Nothing.
    Nothing,
    /// A hold, or a leaf that nobody was born in yet.
    Hold,
    /// A lease.
    Lease,
}

/// A connection that there is.
#[derive(Debug)]
pub(crate) struct Seat<'a> {
    pub(crate) id: ConnectionId,
    pub(crate) share: &'a Share,
    /// Since when it has been silent, if it never said Hello.
    pub(crate) half_open_since: Option<Instant>,
    /// When it last said anything.
    pub(crate) heard: Instant,
    pub(crate) worth: Worth,
}

/// Makes room for a newcomer: who has to go for it, if anybody has to.
///
/// Its own share's quota binds it first. Where all connections are taken, the share that has most of them loses its idlest one, as
/// long as the newcomer's has fewer even then; one that has none at all is always let in.
pub(crate) fn for_one_of(
    newcomer: &Share,
    seats: &[Seat<'_>],
    quota: &Quota,
) -> Result<Option<ConnectionId>, Refusal> {
    let own: Vec<&Seat<'_>> = seats.iter().filter(|seat| seat.share == newcomer).collect();
    if own.len() >= quota.clients {
        return refuse::because(
            RefusalCode::QuotaClients,
            format!(
                "{} clients of this domain are connected, {} are allowed",
                own.len(),
                quota.clients
            ),
        );
    }
    if let Some(oldest) = superfluous_half_open(&own, quota) {
        return Ok(Some(oldest));
    }
    if seats.len() < quota.all_clients {
        return Ok(None);
    }
    match idlest_of_the_largest(seats, own.len()) {
        Some(idlest) => Ok(Some(idlest)),
        None => refuse::because(
            RefusalCode::Exhausted,
            format!(
                "{} clients are connected, and there are no descriptors for more",
                seats.len()
            ),
        ),
    }
}

fn superfluous_half_open(own: &[&Seat<'_>], quota: &Quota) -> Option<ConnectionId> {
    let half_open: Vec<(Instant, ConnectionId)> = own
        .iter()
        .filter_map(|seat| Some((seat.half_open_since?, seat.id)))
        .collect();
    let oldest = half_open.iter().min().map(|(_, id)| *id);
    oldest.filter(|_| half_open.len() >= quota.half_open)
}

fn idlest_of_the_largest(seats: &[Seat<'_>], own: usize) -> Option<ConnectionId> {
    let mut counts: BTreeMap<&Share, usize> = BTreeMap::new();
    for seat in seats {
        *counts.entry(seat.share).or_default() += 1;
    }
    let largest = counts.values().copied().max()?;
    // Of two that would only change places neither goes.
    if own > 0 && largest <= own + 1 {
        return None;
    }
    let of_largest = seats.iter().filter(|seat| counts[seat.share] == largest);
    let idlest = of_largest.min_by_key(|seat| {
        let greeted = Reverse(seat.half_open_since.is_some());
        (seat.worth, greeted, seat.heard, seat.id)
    });
    idlest.map(|seat| seat.id)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cgleaf_shared::cgroup::CgroupPath;

    use super::*;

    fn container(number: usize) -> Share {
        let path = CgroupPath::parse(&format!("/docker/{number}")).unwrap();
        Share::Domain(Domain::Container(path))
    }

    fn quota(clients: usize, all_clients: usize) -> Quota {
        Quota {
            sessions: 1,
            clients,
            half_open: 8,
            all_clients,
        }
    }

    /// Those of `shares`, in the order in which they were last heard of.
    fn seats(shares: &[Share]) -> Vec<Seat<'_>> {
        let start = Instant::now();
        (0..)
            .zip(shares)
            .map(|(number, share)| Seat {
                id: ConnectionId(number),
                share,
                half_open_since: None,
                heard: start + Duration::from_secs(number),
                worth: Worth::Nothing,
            })
            .collect()
    }

    fn code(answer: Result<Option<ConnectionId>, Refusal>) -> RefusalCode {
        answer.unwrap_err().kind()
    }

    #[test]
    fn many_domains_together_do_not_keep_another_out() {
        let crowd: Vec<Share> = (0..12).map(|number| container(number / 4)).collect();
        let full = seats(&crowd);
        let quota = quota(4, 12);
        // One with none, and then one with some: until it has as many as the others.
        for own in 0..3 {
            let newcomer = container(9);
            let mut shares = crowd.clone();
            shares[..own].fill(newcomer.clone());
            let seats = seats(&shares);
            let goes = for_one_of(&newcomer, &seats, &quota).unwrap().unwrap();
            assert!(seats[usize::try_from(goes.0).unwrap()].share != &newcomer);
        }
        // Those who have their share already gain nothing by asking.
        assert_eq!(
            code(for_one_of(&container(1), &full, &quota)),
            RefusalCode::QuotaClients
        );
        let generous = Quota {
            clients: 32,
            ..quota
        };
        assert_eq!(
            code(for_one_of(&container(1), &full, &generous)),
            RefusalCode::Exhausted
        );
    }

    #[test]
    fn it_is_the_largest_share_that_loses_its_idlest_one() {
        let shares = [1, 0, 2, 0, 0, 2].map(container);
        let mut all = seats(&shares);
        let asked = |all: &[Seat<'_>]| {
            let newcomer = container(3);
            let goes = for_one_of(&newcomer, all, &quota(32, 6)).unwrap();
            goes.map(|id| id.0)
        };
        assert_eq!(asked(&all), Some(1));
        all[1].heard += Duration::from_secs(100);
        assert_eq!(asked(&all), Some(3));
        all[3].worth = Worth::Lease;
        all[1].worth = Worth::Hold;
        assert_eq!(asked(&all), Some(4));
        all[4].worth = Worth::Lease;
        assert_eq!(asked(&all), Some(1));
        all[1].worth = Worth::Lease;
        assert_eq!(asked(&all), Some(3), "a lease, where there is nothing else");
    }

    #[test]
    fn where_each_has_one_a_newcomer_with_none_is_let_in_and_no_second_one_is() {
        let shares: Vec<Share> = (0..6).map(container).collect();
        let all = seats(&shares);
        let quota = quota(32, 6);
        assert_eq!(
            for_one_of(&container(9), &all, &quota).unwrap(),
            Some(ConnectionId(0))
        );
        assert_eq!(
            code(for_one_of(&container(3), &all, &quota)),
            RefusalCode::Exhausted
        );
        let root = Share::Outside(Uid::ROOT);
        assert!(for_one_of(&root, &all, &quota).unwrap().is_some());
    }

    #[test]
    fn a_user_alone_is_told_that_there_is_no_more() {
        let shares = [Share::Everybody, Share::Everybody];
        let all = seats(&shares);
        let answer = for_one_of(&Share::Everybody, &all, &quota(usize::MAX, 2));
        assert_eq!(code(answer), RefusalCode::Exhausted);
        let answer = for_one_of(&Share::Everybody, &all, &quota(usize::MAX, 3));
        assert_eq!(answer.unwrap(), None);
    }

    #[test]
    fn the_silent_make_room_for_those_of_their_own_domain() {
        let shares = vec![container(1); 8];
        let mut all = seats(&shares);
        for seat in &mut all {
            seat.half_open_since = Some(seat.heard);
        }
        let quota = quota(32, 100);
        assert_eq!(
            for_one_of(&container(1), &all, &quota).unwrap(),
            Some(ConnectionId(0))
        );
        assert_eq!(for_one_of(&container(2), &all, &quota).unwrap(), None);
        all[3].half_open_since = None;
        assert_eq!(for_one_of(&container(1), &all, &quota).unwrap(), None);
    }
}
