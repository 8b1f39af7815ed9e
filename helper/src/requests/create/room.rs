//! Whether a domain may have another session (DESIGN 3.2, quotas).

use cgleaf_shared::wire::{Refusal, RefusalCode};

use crate::attrs;
use crate::context::State;
use crate::place::Domain;
use crate::refuse;
use crate::requests::removal;
use crate::table::{Key, Row};

/// How many sessions that are over give up their leaves at once: others wait to be served.
const AT_ONCE: usize = 64;

/// Makes sure that there is room. What is over, and was not removed by anybody, makes room: an `exec` leaves its empty leaf, and in a
/// container there may be no records to tell of it.
pub(super) fn require(state: &mut State, domain: &Domain) -> Result<(), Refusal> {
    let allowed = state.context.quota.sessions;
    if allowed == usize::MAX || state.table.count(domain) < allowed {
        return Ok(());
    }
    remove_ended(state, domain);
    let have = state.table.count(domain);
    if have < allowed {
        return Ok(());
    }
    refuse::because(
        RefusalCode::QuotaSessions,
        format!("there are {have} living sessions here, {allowed} are allowed: destroy some"),
    )
}

fn remove_ended(state: &mut State, domain: &Domain) {
    let of_domain = |row: &&Row| row.domain.domain == *domain;
    let rows: Vec<Row> = state.table.rows().filter(of_domain).cloned().collect();
    let mut removed = 0;
    for row in rows {
        if removed == AT_ONCE {
            return;
        }
        removed +=
            usize::from(is_over(state, &row) && removal::remove_all_of(state, &row.leaf_path));
    }
}

/// Whether it has begun and ended. One that is waited in for its first process has no leader yet.
fn is_over(state: &State, row: &Row) -> bool {
    let key: Key = row.key();
    if state.unborn.iter().any(|(_, unborn)| *unborn == key) {
        return false;
    }
    match state.context.root.open_path(&row.leaf_path) {
        Ok(dir) => {
            dir.events().is_ok_and(|events| !events.populated)
                && attrs::leader(&dir).is_ok_and(|leader| leader.is_some())
        }
        Err(error) => error.is_gone(),
    }
}
