//! Freeze, thaw, and whether it is done. The helper writes; who asked waits.

use std::time::Instant;

use cgleaf_shared::cgroup::CgroupDir;
use cgleaf_shared::wire::{FreezeFlag, Refusal, RefusalCode, Reply, Target, Thawed};

use super::Answer;
use crate::attrs;
use crate::authorise::{self, Caller};
use crate::connection::ConnectionId;
use crate::context::State;
use crate::leaf::{self, MOST_CGROUPS};
use crate::refuse;
use crate::table::{Key, Row};
use crate::trace;

/// How many cgroups that the program froze itself are named.
const MOST_NAMED: usize = 64;

/// Sets a flag and asks the kernel to freeze.
pub(super) fn freeze(
    state: &mut State,
    caller: &Caller<'_>,
    target: &Target,
    flag: FreezeFlag,
) -> Result<Answer, Refusal> {
    let (row, dir) = authorise::target(state, caller, target)?;
    not_around(caller, &row)?;
    let key = row.key();
    if flag == FreezeFlag::Hold {
        state.holds.add(&key, caller.connection);
    }
    let frozen = attrs::flags(&dir).and_then(|flags| {
        let flags = flags.unwrap_or_default().with(flag, true);
        leaf::apply_flags(&row.identity.session, &dir, flags)
    });
    if let Err(error) = frozen {
        if flag == FreezeFlag::Hold {
            release_hold(state, caller.connection, &key);
        }
        return Err(refuse::failed(&error));
    }
    Ok(Reply::FreezeRequested.into())
}

/// Clears a flag, and thaws where none is left. Another connection's hold is not the caller's to clear.
pub(super) fn thaw(
    state: &mut State,
    caller: &Caller<'_>,
    target: &Target,
    flag: FreezeFlag,
) -> Result<Answer, Refusal> {
    let (row, dir) = authorise::target(state, caller, target)?;
    not_around(caller, &row)?;
    let cleared = match flag {
        FreezeFlag::User => true,
        FreezeFlag::Hold => state.holds.release(&row.key(), caller.connection),
    };
    let session = &row.identity.session;
    let left = attrs::flags(&dir)
        .and_then(|recorded| {
            let now = recorded.unwrap_or_default();
            let wanted = if cleared { now.with(flag, false) } else { now };
            // Nothing was recorded and the leaf is frozen all the same: a user asks, a user gets it thawed.
            if recorded.is_some() || leaf::is_asked_to_freeze(&dir) {
                leaf::apply_flags(session, &dir, wanted)?;
            }
            Ok(wanted)
        })
        .map_err(|error| refuse::failed(&error))?;
    Ok(Reply::Thawed(Thawed {
        still_flagged: left.set(),
        frozen_ancestor: dir
            .path()
            .parent()
            .and_then(|above| leaf::frozen_at_or_above(&state.context.root, &above)),
        frozen_beneath: frozen_beneath(&dir),
    })
    .into())
}

/// A session's program must not freeze itself or thaw what it is in: nobody could take the first back, and the second
/// would undo what its owner did.
fn not_around(caller: &Caller<'_>, row: &Row) -> Result<(), Refusal> {
    if caller.is_within(&row.leaf_path) {
        return refuse::because(
            RefusalCode::AncestorOfCaller,
            format!(
                "the caller is inside session {}: a session is not frozen or thawed from within",
                row.identity.session
            ),
        );
    }
    Ok(())
}

/// Cgroups that the program made and froze itself: they are its own business, and are named only.
fn frozen_beneath(dir: &CgroupDir) -> Vec<cgleaf_shared::cgroup::CgroupPath> {
    let beneath = dir.subtree(MOST_CGROUPS).unwrap_or_default();
    beneath
        .iter()
        .filter(|relative| !relative.is_empty())
        .filter_map(|relative| dir.open_descendant(relative).ok())
        .filter(leaf::is_asked_to_freeze)
        .map(|sub| sub.path().clone())
        .take(MOST_NAMED)
        .collect()
}

/// Whether every cgroup of the subtree says `frozen 1`. The top's own word can be early where it has processes and
/// children, and then it never signals again.
pub(super) fn is_frozen(
    state: &mut State,
    caller: &Caller<'_>,
    target: &Target,
) -> Result<Answer, Refusal> {
    let (_, dir) = authorise::target(state, caller, target)?;
    let not_yet = not_frozen(&dir).map_err(|error| refuse::failed(&error))?;
    Ok(Reply::Frozen { not_yet }.into())
}

/// The cgroups are read one after the other, and a member that is just moving itself from one that was not read yet to
/// one that was is in neither: both said frozen. It stops at the end of the system call that it is in, so that it moves
/// once at most, and a second reading right after the first finds it.
fn not_frozen(dir: &CgroupDir) -> Result<Option<String>, cgleaf_shared::IoError> {
    let subtree = dir.subtree(MOST_CGROUPS)?;
    match first_not_frozen(dir, &subtree)? {
        None if subtree.len() > 1 => first_not_frozen(dir, &dir.subtree(MOST_CGROUPS)?),
        answer => Ok(answer),
    }
}

fn first_not_frozen(
    dir: &CgroupDir,
    subtree: &[String],
) -> Result<Option<String>, cgleaf_shared::IoError> {
    for relative in subtree {
        match dir.open_descendant(relative).and_then(|sub| sub.events()) {
            Ok(events) if events.frozen => {}
            Err(error) if error.is_gone() && !relative.is_empty() => {}
            Ok(_) => return Ok(Some(relative.clone())),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// A connection holds a leaf no longer: with the last of them the leaf thaws, unless a user froze it.
pub(crate) fn release_hold(state: &mut State, connection: ConnectionId, key: &Key) {
    if !state.holds.release(key, connection) {
        return;
    }
    let Some(row) = state.table.get(key).cloned() else {
        return;
    };
    trace::event!(&row.identity.session, "ConnEnd");
    drop_released(state, &row);
}

/// Thaws what could not be thawed when its last holder let go of it.
pub(crate) fn drop_overdue_holds(state: &mut State, now: Instant) {
    for key in state.holds.overdue(now) {
        if let Some(row) = state.table.get(&key).cloned() {
            drop_released(state, &row);
        }
    }
}

fn drop_released(state: &mut State, row: &Row) {
    let later = |state: &mut State| {
        let until = Instant::now() + super::TRY_AGAIN;
        state.holds.drop_at(until, row.key());
    };
    let dir = match authorise::open_verified(state, row) {
        Ok(dir) => dir,
        Err(refusal) if refusal.kind() == RefusalCode::Exhausted => return later(state),
        Err(_) => return,
    };
    match leaf::drop_hold(&row.identity.session, &dir) {
        Err(error) if refuse::is_exhaustion(&error) => later(state),
        Err(error) if !error.is_gone() => crate::log::line(format_args!("{error}")),
        _ => {}
    }
}
