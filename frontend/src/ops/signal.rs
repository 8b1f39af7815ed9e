//! One signal for every process of a session, none missed: they stand still while it is sent.

use std::collections::BTreeSet;
use std::time::Duration;

use cgleaf_shared::process::Pid;
use serde_json::json;

use super::freeze::Held;
use super::grip::{Grip, not_running};
use super::members::Sent;
use super::reach::Reach;
use super::session::Session;
use crate::client::Deadline;
use crate::error::{Code, Error, Result};
use crate::records::Tier;
use crate::trace::Role;

/// How long the members may take to stand still.
const STILL: Duration = Duration::from_secs(5);
/// How often the members are listed again where they cannot be held.
const ROUNDS: usize = 50;

/// What [`signal`] did.
#[derive(Debug)]
pub struct Signalled {
    /// To how many processes the signal was sent.
    pub sent: usize,
}

/// Sends a signal to every process of a session.
///
/// # Errors
/// PARTIAL: some could not be signalled, or could not be held so that one may have been missed; they are named. As taking
/// hold of the leaf.
pub fn signal(reach: &Reach, session: &Session, signal: i32) -> Result<Signalled> {
    if session.tier() == Tier::Group {
        return super::group_tier::signal(session, signal)?.into_result(session, signal);
    }
    reach.no_lost_hold(session, signal_members(reach, session, signal))
}

fn signal_members(reach: &Reach, session: &Session, signal: i32) -> Result<Signalled> {
    let mut grip = reach.grip(session, Role::Client)?;
    // An ancestor that is frozen holds them as well as we could.
    let held = if grip.state.ancestor_frozen {
        Held::Above
    } else {
        grip.hold(Deadline::after(STILL))?
    };
    let outcome = match &held {
        Held::Still | Held::Above => grip.send_to_all(signal),
        Held::Empty => return Err(not_running(session)),
        Held::Not(_) => grip.send_until_none_is_new(signal),
    };
    if held == Held::Still {
        grip.release()?;
    }
    let outcome = outcome?;
    if let Held::Not(why) = held {
        return Err(Error::new(
            Code::Partial,
            format!(
                "signal {signal} was sent to {} processes of session {}, and one may have been missed: {why}",
                outcome.sent.len(),
                session.id
            ),
        )
        .with("session", session.id.as_str())
        .with("sent", outcome.sent.len()));
    }
    outcome.into_result(session, signal)
}

/// Who got the signal and who could not.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) sent: BTreeSet<Pid>,
    pub(super) refused: Vec<(Pid, String)>,
    pub(super) hidden: usize,
}

impl Outcome {
    fn into_result(self, session: &Session, signal: i32) -> Result<Signalled> {
        if self.refused.is_empty() && self.hidden == 0 {
            return Ok(Signalled {
                sent: self.sent.len(),
            });
        }
        let mut named: Vec<String> = self
            .refused
            .iter()
            .map(|(pid, why)| format!("pid {pid}: {why}"))
            .collect();
        if self.hidden > 0 {
            named.push(format!(
                "{} that this pid namespace cannot see",
                self.hidden
            ));
        }
        let missed: Vec<_> = self
            .refused
            .iter()
            .map(|(pid, why)| json!({"pid": pid, "why": why}))
            .collect();
        Err(Error::new(
            Code::Partial,
            format!(
                "signal {signal} was sent to {} processes of session {}, and not to {}",
                self.sent.len(),
                session.id,
                named.join(", ")
            ),
        )
        .with("session", session.id.as_str())
        .with("sent", self.sent.len())
        .with("missed", missed))
    }
}

impl Grip {
    /// Lists the members once and sends to each.
    pub(super) fn send_to_all(&mut self, signal: i32) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        self.send_to_new(signal, &mut outcome)?;
        Ok(outcome)
    }

    /// Lists and sends again, until a listing shows nobody new or the rounds are over.
    fn send_until_none_is_new(&mut self, signal: i32) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        for _ in 0..ROUNDS {
            if self.send_to_new(signal, &mut outcome)? == 0 {
                break;
            }
        }
        Ok(outcome)
    }

    /// Sends to those members that have not had it, this process itself last. How many there were.
    fn send_to_new(&mut self, signal: i32, outcome: &mut Outcome) -> Result<usize> {
        let listing = self.list_members()?;
        outcome.hidden = listing.hidden;
        let own = Pid::own();
        let mut pids: Vec<Pid> = listing.members.iter().map(|seat| seat.pid).collect();
        pids.sort_by_key(|pid| *pid == own);
        let before = outcome.sent.len();
        for pid in pids {
            if outcome.sent.contains(&pid) || outcome.refused.iter().any(|(one, _)| *one == pid) {
                continue;
            }
            match self.send(pid, signal) {
                Sent::Done => {
                    outcome.sent.insert(pid);
                }
                Sent::NoMember => {}
                Sent::Refused(why) => outcome.refused.push((pid, why)),
            }
        }
        Ok(outcome.sent.len() - before)
    }
}
