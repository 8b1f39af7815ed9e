//! Whether a domain may have another session (DESIGN 3.2, quotas).

use cgleaf_shared::wire::{Refusal, RefusalCode};

use crate::attrs;
use crate::authorise;
use crate::context::State;
use crate::place::Domain;
use crate::refuse;
use crate::requests::removal;
use crate::table::Row;
use crate::trace;

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
    let ended: Vec<Row> = state
        .table
        .rows()
        .filter(|row| row.domain.domain == *domain && is_over(state, row))
        .take(AT_ONCE)
        .cloned()
        .collect();
    for row in ended {
        // One that is gone is forgotten by that; a namesake is not touched.
        let is_it = authorise::open_verified(state, &row).is_ok();
        if is_it && removal::remove_all_of(state, &row.leaf_path) {
            trace::event!(&row.identity.session, "RemoveLeaf", "\"gone\":true");
        }
    }
}

/// Whether it has begun and ended. One that waits for its first process has no leader yet.
fn is_over(state: &State, row: &Row) -> bool {
    match state.context.root.open_path(&row.leaf_path) {
        Ok(dir) => {
            dir.events().is_ok_and(|events| !events.populated)
                && attrs::leader(&dir).is_ok_and(|leader| leader.is_some())
        }
        Err(error) => error.is_gone(),
    }
}
