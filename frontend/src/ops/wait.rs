//! Waiting for a session's end, by the leaf's own events.

use std::thread::sleep;
use std::time::Duration;

use cgleaf_shared::cgroup::ControlFile;
use cgleaf_shared::process::{Pidfd, PidfdError};

use super::reach::Reach;
use super::session::Session;
use super::state::{LeafSeen, State, leader_outside};
use crate::client::{Deadline, LeafEvents, Patience, WaitEnd};
use crate::error::{Code, Error, OrCode, Result};
use crate::records::{Exit, Phase, Tier};
use crate::trace::Role;

/// Between two looks at a record that somebody is about to write.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Between two looks at strays, which are asked for one by one.
const STRAYS: Duration = Duration::from_millis(50);
/// How long whoever ran the program may take to write how it ended.
const STATUS: Duration = Duration::from_secs(5);

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitOutcome {
    /// Nothing of the session lives. How its program ended, where whoever ran it saw that.
    Ended(Option<Exit>),
    /// The time was over first.
    TimedOut,
}

/// Waits until nothing of a session lives, or until `timeout` is over.
///
/// # Errors
/// HELPER_UNREACHABLE or REFUSED: how it is cannot be told.
pub fn wait(reach: &Reach, session: &Session, timeout: Option<Duration>) -> Result<WaitOutcome> {
    let deadline = timeout.map(Deadline::after);
    let _patience = deadline.map(Patience::until);
    let over = |deadline: Option<Deadline>| deadline.is_some_and(|one| one.left().is_none());
    let mut current = None;
    loop {
        let session = current.as_ref().unwrap_or(session);
        let look = reach.look(session);
        match look.state {
            State::Ended | State::Destroyed => break,
            // Nobody is in it yet: its maker goes on, or gives up.
            State::Starting if look.populated != Some(true) => {
                if over(deadline) {
                    return Ok(WaitOutcome::TimedOut);
                }
                sleep(LOOK_AGAIN);
            }
            _ if look.populated == Some(false) => {
                if !wait_outside(session, deadline)? {
                    return Ok(WaitOutcome::TimedOut);
                }
            }
            State::Unknown | State::Damaged if session.tier() == Tier::Group => {
                return Err(super::group_tier::untold(session, look.remark.as_deref()));
            }
            State::Destroying
                if session.tier() == Tier::Group
                    && super::group_tier::is_over_as_far_as_seen(reach, session) =>
            {
                break;
            }
            _ if session.tier() == Tier::Group => {
                if !super::group_tier::wait_a_little(session, deadline)? {
                    return Ok(WaitOutcome::TimedOut);
                }
            }
            _ => {
                if wait_on_leaf(reach, session, look.leaf, deadline)? == WaitEnd::Deadline {
                    return Ok(WaitOutcome::TimedOut);
                }
            }
        }
        match reach.by_id(&session.id)? {
            Some(session) => current = Some(session),
            // Its record was taken away, which is done to what is over only.
            None => break,
        }
    }
    exit_of(reach, session).map(WaitOutcome::Ended)
}

/// The leaf is empty, and what left it lives: the leader, or the strays that a destroy has named. Waits for the leader, or a
/// moment for those; whether the time was not over first.
fn wait_outside(session: &Session, deadline: Option<Deadline>) -> Result<bool> {
    let limit = deadline.map(|one| one.left().unwrap_or_default());
    let Some(leader) = leader_outside(session) else {
        sleep(limit.map_or(STRAYS, |left| left.min(STRAYS)));
        return Ok(limit.is_none_or(|left| !left.is_zero()));
    };
    let held = match Pidfd::open(leader.pid) {
        Ok(held) if leader_outside(session).is_some() => held,
        // It has ended meanwhile, which the next look shows.
        Ok(_) | Err(PidfdError::Gone(_) | PidfdError::NotAProcess(_)) => return Ok(true),
        Err(error) => return Err(Error::new(Code::Internal, error.to_string())),
    };
    held.wait(limit).or_code(Code::Internal)
}

fn wait_on_leaf(
    reach: &Reach,
    session: &Session,
    leaf: LeafSeen,
    deadline: Option<Deadline>,
) -> Result<WaitEnd> {
    let LeafSeen::Here(dir) = leaf else {
        return reach.grip(session, Role::Client)?.wait_for_end(deadline);
    };
    let mut events = match dir.open_file(ControlFile::Events) {
        Ok(file) => LeafEvents::new(file.into()),
        Err(error) if error.is_gone() => return Ok(WaitEnd::Removed),
        Err(error) => return Err(error.into()),
    };
    loop {
        match events.wait_for_end(deadline) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            other => return other.or_code(Code::Internal),
        }
    }
}

/// How the program ended. Whoever ran it writes that a moment after the end.
fn exit_of(reach: &Reach, session: &Session) -> Result<Option<Exit>> {
    let until = Deadline::after(STATUS);
    loop {
        let found = reach.record(&session.id)?;
        let Some(crate::records::Found::Record(record)) = found else {
            return Ok(session.record().and_then(|record| record.exit));
        };
        let may_come = record.exit.is_none()
            && matches!(record.phase, Phase::Intent | Phase::Running)
            && record.maker.may_live();
        if !may_come || until.left().is_none() {
            return Ok(record.exit);
        }
        sleep(LOOK_AGAIN);
    }
}
