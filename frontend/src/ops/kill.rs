//! Ending everything in a leaf (DESIGN 4, step 5 and 6), and taking the leaf away (step 7).

use std::thread::sleep;
use std::time::Duration;

use cgleaf_shared::wire::{RefusalCode, Removal, Reply, Request};

use super::destroyed::KillWay;
use super::freeze::Held;
use super::grip::Grip;
use crate::client::{Deadline, WaitEnd, refusal_of};
use crate::error::{Code, Error, Result};

/// After the first of these times without an end the kill is written again, then after twice that, and so on:
/// `cgroup.kill` raced fork until 6.14. Whoever is left then gets SIGKILL as a process too: what `cgroup.kill` sends to
/// one whose main thread has ended stays with that thread, and the others run on (seen on 6.1 and 6.18).
const KILL_AGAIN: Duration = Duration::from_millis(50);
const KILL_AGAIN_AT_MOST: Duration = Duration::from_secs(1);
/// How long one hold of the loop for older kernels may take.
const HOLD: Duration = Duration::from_secs(2);
/// A busy cgroup right after a kill is normal; it is tried again after 1 ms, then twice that, about 2 s in all.
const REMOVALS: u32 = 11;

/// What could not be removed: the path, and the kernel's answer.
pub(super) type Leftover = (String, i32);

impl Grip {
    /// Ends every process of the leaf; whether that is proven before the deadline.
    pub(super) fn end_all(&mut self, way: KillWay, deadline: Deadline) -> Result<bool> {
        let mut pause = KILL_AGAIN;
        let mut way = way;
        loop {
            if let Err(error) = self.kill_once(&mut way, pause > KILL_AGAIN) {
                // It ended, and perhaps was removed, before the kill came.
                return if self.has_ended() {
                    Ok(true)
                } else {
                    Err(error)
                };
            }
            let end = self.wait_for_end(Some(Deadline::after(pause).earlier(deadline)))?;
            if end != WaitEnd::Deadline {
                return Ok(true);
            }
            if deadline.left().is_none() {
                return Ok(false);
            }
            pause = (pause * 2).min(KILL_AGAIN_AT_MOST);
        }
    }

    fn kill_once(&mut self, way: &mut KillWay, again: bool) -> Result<()> {
        if *way == KillWay::Atomic {
            match self.write_kill() {
                Err(error) if is_unsupported(&error) => *way = KillWay::Each,
                other => other?,
            }
        }
        match way {
            KillWay::Each => self.kill_each(),
            KillWay::Atomic if again => {
                // Whoever cannot be signalled is named when the time is over.
                drop(self.send_to_all(libc::SIGKILL));
                Ok(())
            }
            KillWay::Atomic => Ok(()),
        }
    }

    fn write_kill(&mut self) -> Result<()> {
        let request = Request::Kill {
            target: self.target.clone(),
        };
        match self.ask(&request)? {
            Reply::Killed => Ok(()),
            _ => Err(self.unexpected("kill")),
        }
    }

    /// Whether the kernel says that nothing lives in it.
    pub(super) fn has_ended(&mut self) -> bool {
        matches!(self.events.now(), Ok(None))
            || self
                .events
                .now()
                .is_ok_and(|events| events.is_none_or(|events| !events.populated))
    }

    /// One round for kernels without `cgroup.kill`: all stand still, each gets SIGKILL, which ends a frozen one too.
    fn kill_each(&mut self) -> Result<()> {
        let held = self.hold(Deadline::after(HOLD));
        let outcome = self.send_to_all(libc::SIGKILL);
        if matches!(held, Ok(Held::Still)) {
            self.release()?;
        }
        let outcome = outcome?;
        match outcome.refused.first() {
            Some((pid, why)) if outcome.sent.is_empty() => Err(Error::new(
                Code::Partial,
                format!(
                    "there is no cgroup.kill here, and SIGKILL to pid {pid} of session {}: {why}",
                    self.session
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Takes the leaf away, depth first; what cannot be removed is told.
    pub(super) fn remove_leaf(&mut self) -> Vec<Leftover> {
        let mut pause = Duration::from_millis(1);
        for round in 1.. {
            match self.remove_once() {
                Ok(Some(removal)) if removal.removed => return Vec::new(),
                Ok(Some(removal)) if round == REMOVALS => {
                    return removal
                        .leftover
                        .into_iter()
                        .map(|(path, errno)| (path.to_string(), errno))
                        .collect();
                }
                Ok(Some(_)) => {}
                Ok(None) => return Vec::new(),
                Err(error) => return vec![(format!("{} ({error})", self.shown()), 0)],
            }
            sleep(pause);
            pause *= 2;
        }
        Vec::new()
    }

    fn remove_once(&mut self) -> Result<Option<Removal>> {
        let request = Request::Remove {
            target: self.target.clone(),
        };
        match self.ask(&request) {
            Ok(Reply::Removed(removal)) => Ok(Some(removal)),
            Ok(_) => Err(self.unexpected("remove")),
            // Somebody else removed it.
            Err(error) if error.code() == Code::SessionNotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn is_unsupported(error: &Error) -> bool {
    refusal_of(error) == Some(RefusalCode::Unsupported)
}
