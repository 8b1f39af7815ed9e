//! Leases, verdicts, and the helper itself.

use std::time::{Duration, Instant};

use cgleaf_shared::attestation::{Attestation, Verdict, verify as verify_attestation};
use cgleaf_shared::cgroup::ControlFile;
use cgleaf_shared::id::CgroupId;
use cgleaf_shared::process::Pid;
use cgleaf_shared::wire::{Mode, Refusal, RefusalCode, Reply, Status, Target, VerdictReport};

use super::{Answer, removal};
use crate::attrs;
use crate::authorise::{self, Caller};
use crate::connection::ConnectionId;
use crate::context::State;
use crate::leaf;
use crate::refuse;
use crate::table::{Key, Row};
use crate::trace;

/// How long the holder of a lease that was found at the start has to come back.
pub(crate) const RETURN_TIME: Duration = Duration::from_secs(10);

/// How long the end of what was killed may take until its leaf is left to gc.
const LAST_TIME: Duration = Duration::from_secs(10);
/// How often it is looked whether that is over.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// From now on the leaf ends with the caller's connection.
pub(super) fn lease(
    state: &mut State,
    caller: &Caller<'_>,
    target: &Target,
) -> Result<Answer, Refusal> {
    let (row, dir) = authorise::target(state, caller, target)?;
    if !dir.has(ControlFile::Kill) {
        return refuse::because(
            RefusalCode::Unsupported,
            "this kernel has no cgroup.kill (5.14 has): nothing ends a session when its connection ends",
        );
    }
    attrs::write_lease(&dir, true).map_err(|error| refuse::failed(&error))?;
    let key = row.key();
    state.leases.waiting.retain(|(_, waiting)| *waiting != key);
    state.leases.held.insert((caller.connection, key));
    Ok(Reply::Leased.into())
}

/// A connection has ended, and with it what it had a lease on, unless another connection has one on it too.
pub(super) fn end_leases(state: &mut State, connection: ConnectionId) {
    let ended: Vec<Key> = state
        .leases
        .held
        .iter()
        .filter(|(of, _)| *of == connection)
        .map(|(_, key)| key.clone())
        .collect();
    state.leases.held.retain(|(of, _)| *of != connection);
    for key in ended {
        if !state.leases.held.iter().any(|(_, held)| *held == key) {
            end_leased(state, &key);
        }
    }
}

/// A connection is taken from its holder, who has as long to come back as after a restart of the helper.
pub(crate) fn suspend_leases(state: &mut State, connection: ConnectionId) {
    let until = Instant::now() + RETURN_TIME;
    let (suspended, held) = std::mem::take(&mut state.leases.held)
        .into_iter()
        .partition(|(of, _)| *of == connection);
    state.leases.held = held;
    for (_, key) in suspended {
        if !state.leases.held.iter().any(|(_, held)| *held == key) {
            state.leases.waiting.push((until, key));
        }
    }
}

/// Ends the leaves whose holders have not come back in time.
pub(crate) fn end_overdue_leases(state: &mut State, now: Instant) {
    let (overdue, waiting) = std::mem::take(&mut state.leases.waiting)
        .into_iter()
        .partition(|(until, _)| *until <= now);
    state.leases.waiting = waiting;
    for (_, key) in overdue {
        end_leased(state, &key);
    }
}

fn end_leased(state: &mut State, key: &Key) {
    let Some(row) = state.table.get(key).cloned() else {
        return;
    };
    let dir = match authorise::open_verified(state, &row) {
        Ok(dir) => dir,
        Err(refusal) if refusal.kind() == RefusalCode::Exhausted => return end_later(state, key),
        Err(_) => return,
    };
    match super::not_poisoned(&dir) {
        Ok(()) => {}
        Err(refusal) if refusal.kind() == RefusalCode::Exhausted => return end_later(state, key),
        Err(_) => return,
    }
    let ended =
        leaf::kill(&row.identity.session, &dir).and_then(|()| attrs::write_lease(&dir, false));
    match ended {
        Err(error) if refuse::is_exhaustion(&error) => end_later(state, key),
        Err(error) if !error.is_gone() => crate::log::line(format_args!("{error}")),
        _ => remove_once_empty(state, key.clone()),
    }
}

/// The machine is out of descriptors or memory for a moment, which keeps no leaf from its end.
fn end_later(state: &mut State, key: &Key) {
    let until = Instant::now() + super::TRY_AGAIN;
    state.leases.waiting.push((until, key.clone()));
}

/// Has a leaf removed as soon as it is empty, if that comes soon.
pub(crate) fn remove_once_empty(state: &mut State, key: Key) {
    state.leases.ended.push((Instant::now() + LAST_TIME, key));
}

/// Removes the leaves that ended with a connection, as soon as they are empty: who had the lease is gone and cannot, and one
/// that gave up its start inside its leaf never could.
pub(crate) fn remove_ended_leases(state: &mut State, now: Instant) {
    for (until, key) in std::mem::take(&mut state.leases.ended) {
        let Some(row) = state.table.get(&key).cloned() else {
            continue;
        };
        match authorise::open_verified(state, &row) {
            Ok(_) if removal::remove_all_of(state, &row.leaf_path) => {
                trace::event!(&row.identity.session, "RemoveLeaf", "\"gone\":true");
                continue;
            }
            Ok(_) => {}
            Err(refusal) if refusal.kind() == RefusalCode::Exhausted => {}
            // It may be gone already; a namesake is not touched.
            Err(_) => continue,
        }
        if now < until {
            state.leases.ended.push((until, key));
        }
    }
}

/// The verdict on an attestation, for a caller that cannot see the paths itself.
pub(super) fn verify(
    state: &State,
    caller: &Caller<'_>,
    attestation: &Attestation,
) -> Result<Answer, Refusal> {
    caller.is_served()?;
    Ok(Reply::Verified(verdict_for(state, caller, attestation)).into())
}

/// What is there is told to its owner only; that something is gone harms nobody.
fn verdict_for(state: &State, caller: &Caller<'_>, attestation: &Attestation) -> VerdictReport {
    match verify_attestation(attestation, &state.context.root) {
        Verdict::Proven(dir) => {
            let own = state
                .table
                .of_id(&attestation.session)
                .any(|row: &Row| row.leaf_id == attestation.leaf_id && caller.may_control(row));
            if !own {
                return VerdictReport::Foreign("it is not the caller's session".to_owned());
            }
            match leaf::state(&state.context.root, &dir) {
                Ok(found) => VerdictReport::Proven(found),
                Err(error) if error.is_gone() => VerdictReport::Gone,
                Err(error) => VerdictReport::Unreadable(error.to_string()),
            }
        }
        Verdict::Gone => VerdictReport::Gone,
        Verdict::Foreign(why) => VerdictReport::Foreign(why.to_string()),
        Verdict::Unreadable(why) => VerdictReport::Unreadable(why.to_string()),
    }
}

/// About the helper itself.
pub(super) fn status(state: &State, caller: &Caller<'_>) -> Result<Answer, Refusal> {
    caller.is_served()?;
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let context = &state.context;
    Ok(Reply::Status(Status {
        pid: Pid::own(),
        scope_paths: context
            .scopes
            .iter()
            .map(|scope| scope.dir.path().clone())
            .collect(),
        scope_id: context
            .scopes
            .first()
            .map_or(CgroupId(0), |scope| scope.domain.id),
        root_id: context.root.id(),
        sessions: count(
            state
                .table
                .rows()
                .filter(|row| caller.may_control(row))
                .count(),
        ),
        clients: count(state.clients),
        uid: context.rules.uid,
    })
    .into())
}

/// Ends the helper, if it has no session.
pub(super) fn stop(state: &mut State, caller: &Caller<'_>) -> Result<Answer, Refusal> {
    caller.is_served()?;
    if !matches!(state.context.mode, Mode::Scope | Mode::Direct) {
        return refuse::because(
            RefusalCode::Unsupported,
            "this helper is a service: stop its unit with systemctl; its sessions go on",
        );
    }
    if state.has_live_session() {
        return refuse::because(
            RefusalCode::StillServing,
            "the helper still has sessions: destroy them first",
        );
    }
    state.ending = true;
    Ok(Reply::Stopping.into())
}
