//! Steps 2, 4 and 6 of DESIGN 4's destroy: the hold, the grace, and what is said when something does not end.

use std::time::Duration;

use cgleaf_shared::wire::FreezeFlag;

use super::freeze::Held;
use super::grip::Grip;
use super::headless::Thread;
use super::inspect::{MOST_NAMED, blockers, partial};
use super::reach::Reach;
use crate::client::Deadline;
use crate::error::{Error, Result};

/// How long the members may take to stand still before the kill goes on without.
const HOLD: Duration = Duration::from_secs(2);

impl Grip {
    /// A hold is a help against forks and for finding strays, no condition: whatever is in its way, the kill works.
    pub(super) fn hold_for_the_end(&mut self, reach: &Reach, notices: &mut Vec<String>) -> Held {
        if self.state.ancestor_frozen || self.frozen_ancestor(reach).is_some() {
            return Held::Above;
        }
        match self.hold(Deadline::after(HOLD)) {
            Ok(held) => held,
            Err(error) if self.has_ended() => {
                drop(error);
                Held::Empty
            }
            Err(error) => {
                let why = error.message().to_owned();
                notices.push(format!("it could not be held: {why}"));
                Held::Not(why)
            }
        }
    }

    /// SIGTERM, and SIGCONT for what is stopped, while nobody can fork away from it; then they have the time. Under a
    /// frozen ancestor nobody could use it.
    pub(super) fn grace(&mut self, held: &Held, time: Duration) -> Result<()> {
        if matches!(held, Held::Above | Held::Empty) {
            return Ok(());
        }
        self.send_to_all(libc::SIGTERM)?;
        self.send_to_all(libc::SIGCONT)?;
        if self.state.user_frozen {
            self.clear(FreezeFlag::User)?;
        }
        if *held == Held::Still {
            self.release()?;
        }
        self.wait_for_end(Some(Deadline::after(time)))?;
        Ok(())
    }

    /// The deadline passed and the kernel still says populated.
    pub(super) fn still_alive(&mut self, held: &Held, timeout: Duration) -> Error {
        let members = blockers(self, MOST_NAMED);
        if *held == Held::Still
            && let Err(error) = self.release()
        {
            return error.while_doing("thaw what does not end");
        }
        let id = &self.session;
        let what = format!(
            "session {id} was killed, and after {} s something in it has not ended; `cgleaf destroy {id}` goes on from \
             there; what lives",
            timeout.as_secs_f32(),
        );
        let error = partial(&what, &members).with("session", id.as_str());
        let threads = if members.is_empty() {
            self.unlisted_threads()
        } else {
            Vec::new()
        };
        if threads.is_empty() {
            return error;
        }
        let named: Vec<String> = threads.iter().map(Thread::sentence).collect();
        let list: Vec<_> = threads.iter().map(Thread::to_json).collect();
        error
            .followed_by(format_args!(
                "cgroup.procs lists nobody, and the leaf has {}: what has lost its main thread elsewhere is neither listed nor \
                 killed there; send SIGKILL to that process",
                named.join(", ")
            ))
            .with("threads", list)
    }
}
