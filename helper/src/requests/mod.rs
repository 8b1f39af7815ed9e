//! One handler for each request. None of them waits for a session.

mod adopt;
mod create;
mod freeze;
mod listing;
mod members;
mod removal;
mod service;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use cgleaf_shared::wire::{Mode, Refusal, RefusalCode, Reply, Request};

use crate::audience::Audience;
use crate::authorise::{self, Caller};
use crate::connection::ConnectionId;
use crate::context::State;
use crate::leaf;
use crate::peer::Peer;
use crate::refuse;
use crate::room::Worth;
use crate::table::Key;

pub(crate) use freeze::{drop_overdue_holds, release_hold};

/// When what failed for want of descriptors or memory is tried again.
pub(crate) const TRY_AGAIN: Duration = Duration::from_secs(1);

/// A reply, and the descriptor that goes with it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    pub(crate) descriptor: Option<OwnedFd>,
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self {
            reply,
            descriptor: None,
        }
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        Reply::Refused(refusal).into()
    }
}

/// Answers one request. `descriptors` came with it, and end here.
pub(crate) fn answer(
    state: &mut State,
    connection: ConnectionId,
    peer: &Peer,
    request: Request,
    descriptors: Vec<OwnedFd>,
) -> Answer {
    let mode = state.context.mode;
    let caller = authorise::caller(state, connection, peer);
    let audience = match &caller {
        Ok(caller) => caller.audience.clone(),
        Err(_) => Audience::unknown(mode),
    };
    let answered = descriptors_fit(mode, &request, &descriptors)
        .and(caller)
        .and_then(|caller| dispatch(state, &caller, request, descriptors));
    let mut answer = answered.unwrap_or_else(Answer::from);
    audience.put(&mut answer.reply, &state.context.root.mount().point);
    answer
}

fn descriptors_fit(mode: Mode, request: &Request, descriptors: &[OwnedFd]) -> Result<(), Refusal> {
    let adopts = matches!(request, Request::Adopt { .. });
    // No descriptor got here, or will: that it is missing is not what is wrong.
    if adopts && mode.is_root_mode() {
        return adopt::not_in_root_modes();
    }
    let wanted = usize::from(adopts);
    if descriptors.len() == wanted {
        return Ok(());
    }
    refuse::because(
        RefusalCode::BadDescriptor,
        format!(
            "{} descriptors came with the request, {wanted} belong there",
            descriptors.len()
        ),
    )
}

fn dispatch(
    state: &mut State,
    caller: &Caller<'_>,
    request: Request,
    descriptors: Vec<OwnedFd>,
) -> Result<Answer, Refusal> {
    match request {
        Request::List { after } => listing::list(state, caller, after.as_ref()),
        Request::Open { session } => listing::open(state, caller, &session),
        Request::Kill { target } => kill(state, caller, &target),
        Request::Remove { target } => removal::remove(state, caller, &target),
        Request::CreateAndEnrol { new } => create::create_and_enrol(state, caller, &new),
        Request::Create { new } => create::create(state, caller, &new),
        Request::Attest { target, leader } => create::attest(state, caller, &target, leader),
        Request::Freeze { target, flag } => freeze::freeze(state, caller, &target, flag),
        Request::Thaw { target, flag } => freeze::thaw(state, caller, &target, flag),
        Request::IsFrozen { target } => freeze::is_frozen(state, caller, &target),
        Request::Members { target, after } => members::members(state, caller, &target, after),
        Request::Adopt { target } => adopt::adopt(state, caller, &target, descriptors),
        Request::Lease { target } => service::lease(state, caller, &target),
        Request::Verify { attestation } => Ok(service::verify(state, caller, &attestation)?),
        Request::Status => service::status(state, caller),
        Request::Stop => service::stop(state, caller),
    }
}

fn kill(
    state: &mut State,
    caller: &Caller<'_>,
    target: &cgleaf_shared::wire::Target,
) -> Result<Answer, Refusal> {
    let (row, dir) = authorise::target(state, caller, target)?;
    not_poisoned(&dir)?;
    // A kill that cannot be noted is a kill all the same.
    let _ = crate::attrs::write_killed(&dir);
    leaf::kill(&row.identity.session, &dir).map_err(|error| match error.errno() {
        Some(libc::ENOENT) if dir.events().is_ok() => refuse::kernel(
            RefusalCode::Unsupported,
            &error,
            "this kernel has no cgroup.kill (5.14 has): hold the leaf and signal its members",
        ),
        Some(libc::EOPNOTSUPP) => refuse::kernel(
            RefusalCode::Unsupported,
            &error,
            "the leaf is threaded: hold it and signal its members",
        ),
        _ => refuse::failed(&error),
    })?;
    Ok(Reply::Killed.into())
}

/// A leaf that may hold a stranger is never killed, and takes nobody in.
pub(crate) fn not_poisoned(dir: &cgleaf_shared::cgroup::CgroupDir) -> Result<(), Refusal> {
    match crate::attrs::is_poisoned(dir) {
        Ok(false) => Ok(()),
        Ok(true) => refuse::because(
            RefusalCode::Poisoned,
            format!(
                "{} may hold a process that was never of this session, so that it is not killed: end its members by \
                 hand, then remove it",
                dir.path()
            ),
        ),
        Err(error) => Err(refuse::failed(&error)),
    }
}

/// What would end with each connection; with those that are not named, nothing.
pub(crate) fn worths(state: &State) -> BTreeMap<ConnectionId, Worth> {
    let unborn = state.unborn.iter().map(|(of, _)| *of);
    let holds = state.holds.holders().chain(unborn);
    let mut worths: BTreeMap<_, _> = holds.map(|of| (of, Worth::Hold)).collect();
    worths.extend(state.leases.held.iter().map(|(of, _)| (*of, Worth::Lease)));
    worths
}

/// A connection has ended: what belonged to it ends too.
pub(crate) fn connection_ended(state: &mut State, connection: ConnectionId) {
    for key in state.holds.of(connection) {
        release_hold(state, connection, &key);
    }
    service::end_leases(state, connection);
    let unborn: Vec<Key> = state
        .unborn
        .iter()
        .filter(|(of, _)| *of == connection)
        .map(|(_, key)| key.clone())
        .collect();
    for key in unborn {
        create::remove_unborn(state, &key);
    }
    state.unborn.retain(|(of, _)| *of != connection);
}

pub(crate) use service::{
    LOOK_AGAIN, RETURN_TIME, end_overdue_leases, remove_ended_leases, remove_once_empty,
    suspend_leases,
};
