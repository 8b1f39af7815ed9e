//! Which sessions there are, and one of them.

use std::os::fd::OwnedFd;

use cgleaf_shared::cgroup::ControlFile;
use cgleaf_shared::id::SessionId;
use cgleaf_shared::wire::{Opened, Refusal, Reply, SessionEntry};

use super::Answer;
use crate::authorise::{self, Caller};
use crate::context::State;
use crate::leaf;
use crate::refuse;
use crate::table::Row;

/// The most sessions of one page, which bounds what one request costs the others.
const MOST_ENTRIES: usize = 64;
/// The most bytes of one page: an entry is at most two paths of 4 KiB and some hundred bytes.
const MOST_BYTES: usize = 32 * 1024;

/// A page of the caller's sessions.
pub(super) fn list(
    state: &mut State,
    caller: &Caller<'_>,
    after: Option<&SessionId>,
) -> Result<Answer, Refusal> {
    caller.is_served()?;
    let mut sessions: Vec<SessionEntry> = Vec::new();
    let mut bytes = 0;
    let mut more = false;
    let mut gone = Vec::new();
    for row in state
        .table
        .after(after)
        .filter(|row| caller.may_control(row))
    {
        // Pages are told apart by the last id: two of one id (root sees several domains) are never parted.
        let same_id = sessions
            .last()
            .is_some_and(|last| last.attestation.session == row.identity.session);
        if (sessions.len() >= MOST_ENTRIES || bytes >= MOST_BYTES) && !same_id {
            more = true;
            break;
        }
        match present(state, row) {
            Ok(Some(entry)) => {
                bytes += 200 + row.leaf_path.as_str().len() + row.domain.path.as_str().len();
                sessions.push(entry);
            }
            Ok(None) => gone.push(row.key()),
            Err(refusal) => crate::log::line(format_args!("{refusal}")),
        }
    }
    for key in gone {
        state.forget(&key);
    }
    Ok(Reply::Sessions { sessions, more }.into())
}

/// The entry of a session whose leaf is still there.
fn present(state: &State, row: &Row) -> Result<Option<SessionEntry>, Refusal> {
    let entry = state
        .context
        .root
        .open_path(&row.leaf_path)
        .and_then(|dir| {
            if dir.id()? == row.leaf_id {
                leaf::entry(&state.context, row, &dir).map(Some)
            } else {
                Ok(None)
            }
        });
    match entry {
        Err(error) if error.is_gone() => Ok(None),
        other => other.map_err(|error| refuse::failed(&error)),
    }
}

/// One session, with the descriptor of its leaf's events.
pub(super) fn open(
    state: &mut State,
    caller: &Caller<'_>,
    session: &SessionId,
) -> Result<Answer, Refusal> {
    let row = authorise::session(state, caller, session)?.clone();
    let dir = authorise::open_verified(state, &row)?;
    let entry = leaf::entry(&state.context, &row, &dir).map_err(|error| refuse::failed(&error))?;
    let events = dir
        .open_file(ControlFile::Events)
        .map_err(|error| refuse::failed(&error))?;
    Ok(Answer {
        reply: Reply::Opened(Opened { entry }),
        descriptor: Some(OwnedFd::from(events)),
    })
}
