//! Freezing and thawing (DESIGN 3.2): `cgroup.freeze` is the request, `cgroup.events` the fact.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::Duration;

use cgleaf_shared::cgroup::attributes;
use cgleaf_shared::wire::{FreezeFlag, Reply, Request, Thawed};

use super::grip::{Grip, KERNEL, not_running};
use super::inspect::{MOST_NAMED, blockers, in_disk_sleep, partial};
use super::reach::Reach;
use super::session::Session;
use super::state::LeafSeen;
use crate::client::{Deadline, WaitEnd, has_ended};
use crate::error::{Code, Error, Result};
use crate::steps;
use crate::trace::{self, Role};

/// The helper is asked at these distances whether the whole subtree is frozen, from the top's `frozen 1` on: that can
/// be early, and the top then never signals again.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(20);
/// A freeze takes milliseconds. When it has taken this long, it is worth asking whether it ever will be done.
const SLOW: Duration = Duration::from_millis(50);

/// How the wait for a freeze ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FreezeEnd {
    /// Every cgroup of the subtree says `frozen 1`.
    Frozen,
    /// Nothing lives in it any more.
    Ended,
    /// The deadline passed.
    Late,
}

/// What [`freeze`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freeze {
    /// Whether it had been frozen by a user before.
    pub was_frozen: bool,
}

/// What [`thaw`] did.
#[derive(Debug)]
pub struct ThawEnd {
    /// Whether a user had frozen it.
    pub was_frozen: bool,
    /// Cgroups beneath the leaf that the program froze itself: they stay so.
    pub frozen_beneath: Vec<String>,
}

/// A hold that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Held {
    /// All members stand still.
    Still,
    /// Nothing lives in it.
    Empty,
    /// None was asked for: an ancestor is frozen, and they stand still as long as that is.
    Above,
    /// It could not be had, and was taken back; why.
    Not(String),
}

impl Held {
    pub(super) fn why_not(&self) -> Option<String> {
        match self {
            Self::Not(why) => Some(why.clone()),
            Self::Still | Self::Empty | Self::Above => None,
        }
    }
}

/// Freezes a session until somebody thaws it.
///
/// # Errors
/// PARTIAL: at the deadline some process was not frozen; the request was taken back, and the process is named. As
/// taking hold of the leaf.
pub fn freeze(reach: &Reach, session: &Session) -> Result<Freeze> {
    let mut grip = reach.grip(session, Role::Client)?;
    let was_frozen = grip.state.user_frozen;
    let started = trace::started();
    grip.request_freeze(FreezeFlag::User)?;
    trace::event(Role::Client, "UserFreeze", started, &[]);
    match grip.until_frozen(Deadline::after(KERNEL))? {
        FreezeEnd::Frozen => Ok(Freeze { was_frozen }),
        FreezeEnd::Ended => {
            grip.clear(FreezeFlag::User)?;
            Err(not_running(session))
        }
        FreezeEnd::Late => Err(grip.take_back(was_frozen)),
    }
}

/// Holds a session frozen for a time, or until it ends. The hold ends with this process, however that ends.
///
/// # Errors
/// As [`freeze`].
pub fn hold_for(reach: &Reach, session: &Session, time: Duration) -> Result<()> {
    reach.no_lost_hold(session, held_for(reach, session, time))
}

fn held_for(reach: &Reach, session: &Session, time: Duration) -> Result<()> {
    let mut grip = reach.grip(session, Role::Client)?;
    grip.request_freeze(FreezeFlag::Hold)?;
    match grip.until_frozen(Deadline::after(KERNEL))? {
        FreezeEnd::Frozen => {}
        FreezeEnd::Ended => return Err(not_running(session)),
        FreezeEnd::Late => {
            let named = blockers(&mut grip, MOST_NAMED);
            grip.release()?;
            return Err(late(&grip, &named));
        }
    }
    steps::at("freeze:held");
    let end = grip.wait_for_end(Some(Deadline::after(time)))?;
    if end == WaitEnd::Removed {
        return Ok(());
    }
    match grip.release() {
        Err(error) if has_ended(&error) => let_go_without_helper(reach, session, &mut grip, error),
        other => other,
    }
}

/// The helper that had the hold died in that time. The leaf stood still on, until the next helper looks at it: that one is found,
/// or started, for this. Where it looked before the time was over, that is told.
fn let_go_without_helper(
    reach: &Reach,
    session: &Session,
    grip: &mut Grip,
    error: Error,
) -> Result<()> {
    match grip.events.now() {
        Ok(Some(events)) if events.populated && !events.frozen => {
            Err(error.followed_by("its hold ended before the time was over"))
        }
        Ok(Some(events)) if events.populated => match reach.try_grip(session, Role::Client) {
            Ok(_) => Ok(()),
            Err(_) => Err(error),
        },
        _ => Ok(()),
    }
}

impl Reach {
    /// What came of an action that holds a leaf. Where its helper died under it, so did the hold, and yet the leaf stands still
    /// until the next helper looks at it: that one is found, or started, for this.
    pub(super) fn no_lost_hold<T>(&self, session: &Session, done: Result<T>) -> Result<T> {
        done.map_err(|error| {
            if !has_ended(&error) {
                return error;
            }
            match self.try_grip(session, Role::Client) {
                Err(why) if self.is_held(session) => error.followed_by(format_args!(
                    "session {0} stands still until the next helper starts, and none could be had: {1}; `cgleaf thaw {0}` tries \
                     that again",
                    session.id,
                    why.message()
                )),
                _ => error,
            }
        })
    }

    /// Whether the leaf itself says that somebody holds it: with its helper's end that is over, and the next one lets it go on.
    pub(super) fn is_held(&self, session: &Session) -> bool {
        let LeafSeen::Here(leaf) = self.see_leaf(session) else {
            return false;
        };
        let flags = leaf.attribute_text(attributes::FREEZE);
        flags.is_ok_and(|flags| flags.is_some_and(|flags| flags.contains("hold")))
    }
}

/// Thaws what a user froze.
///
/// # Errors
/// PARTIAL: it stays frozen, since an ancestor is frozen or somebody holds it; that is named. As taking hold of the leaf.
pub fn thaw(reach: &Reach, session: &Session) -> Result<ThawEnd> {
    let mut grip = reach.grip(session, Role::Client)?;
    let was_frozen = grip.state.user_frozen;
    let started = trace::started();
    let thawed = grip.clear(FreezeFlag::User)?;
    trace::event(Role::Client, "UserThaw", started, &[]);
    if let Some(ancestor) = &thawed.frozen_ancestor {
        return Err(Error::new(
            Code::Partial,
            format!(
                "session {} is thawed, and stands still all the same: its ancestor {ancestor} is frozen; \
                 whoever froze that must thaw it (destroy works)",
                session.id
            ),
        )
        .with("session", session.id.as_str())
        .with("frozen_ancestor", ancestor.as_str()));
    }
    if thawed.still_flagged.contains(&FreezeFlag::Hold) {
        return Err(Error::new(
            Code::Partial,
            format!(
                "session {} is thawed, and stands still all the same: another command holds it (ps, signal, destroy or \
                 freeze --for); it goes on when that command ends",
                session.id
            ),
        )
        .with("session", session.id.as_str())
        .with("held", true));
    }
    let late = grip.wait_until(Some(Deadline::after(KERNEL)), |events| !events.frozen)?;
    if late == WaitEnd::Deadline {
        return Err(Error::new(
            Code::Timeout,
            format!(
                "0 is written to {}/cgroup.freeze, and the kernel still says frozen 1",
                grip.shown()
            ),
        )
        .with("session", session.id.as_str()));
    }
    Ok(ThawEnd {
        was_frozen,
        frozen_beneath: thawed
            .frozen_beneath
            .iter()
            .map(ToString::to_string)
            .collect(),
    })
}

impl Grip {
    fn request_freeze(&mut self, flag: FreezeFlag) -> Result<()> {
        let request = Request::Freeze {
            target: self.target.clone(),
            flag,
        };
        match self.ask(&request)? {
            Reply::FreezeRequested => Ok(()),
            _ => Err(self.unexpected("freeze")),
        }
    }

    /// Clears a flag; the leaf thaws when none is left.
    pub(super) fn clear(&mut self, flag: FreezeFlag) -> Result<Thawed> {
        let request = Request::Thaw {
            target: self.target.clone(),
            flag,
        };
        match self.ask(&request)? {
            Reply::Thawed(thawed) => Ok(thawed),
            _ => Err(self.unexpected("thaw")),
        }
    }

    /// Waits for the fact: first for the top's, then for the whole subtree's.
    fn until_frozen(&mut self, deadline: Deadline) -> Result<FreezeEnd> {
        match self.wait_until(Some(deadline), |events| events.frozen || !events.populated)? {
            WaitEnd::Removed => return Ok(FreezeEnd::Ended),
            WaitEnd::Deadline => return Ok(FreezeEnd::Late),
            WaitEnd::Reached => {}
        }
        let mut pause = FIRST_PAUSE;
        loop {
            match self.events.now() {
                Ok(Some(events)) if events.populated => {}
                _ => return Ok(FreezeEnd::Ended),
            }
            let started = trace::started();
            if self.whole_subtree_is_frozen()? {
                trace::event(self.role, "Frozen", started, &[]);
                return Ok(FreezeEnd::Frozen);
            }
            let Some(left) = deadline.left() else {
                return Ok(FreezeEnd::Late);
            };
            sleep(pause.min(left));
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    fn whole_subtree_is_frozen(&mut self) -> Result<bool> {
        let request = Request::IsFrozen {
            target: self.target.clone(),
        };
        match self.ask(&request)? {
            Reply::Frozen { not_yet } => Ok(not_yet.is_none()),
            _ => Err(self.unexpected("frozen?")),
        }
    }

    /// Has all members stand still until [`Self::release`], or until this connection ends. A member in a sleep that no
    /// signal ends would keep that from being reached: then the hold is taken back early.
    ///
    /// # Errors
    /// What the helper answers: it may be too old, or this process may be in the session itself.
    pub(super) fn hold(&mut self, deadline: Deadline) -> Result<Held> {
        if self.is_around_us() {
            return Ok(Held::Not(
                "this process is in the session itself".to_owned(),
            ));
        }
        self.request_freeze(FreezeFlag::Hold)?;
        let mut end = FreezeEnd::Late;
        let mut sleeping = BTreeSet::new();
        while end == FreezeEnd::Late && deadline.left().is_some() {
            end = self.until_frozen(Deadline::after(SLOW).earlier(deadline))?;
            if end != FreezeEnd::Late {
                break;
            }
            // A moment of it is nothing unusual; who is in it twice may be so for ever.
            let before = std::mem::replace(&mut sleeping, in_disk_sleep(self));
            if !before.is_disjoint(&sleeping) {
                break;
            }
        }
        match end {
            FreezeEnd::Frozen => Ok(Held::Still),
            FreezeEnd::Ended => Ok(Held::Empty),
            FreezeEnd::Late => {
                self.release()?;
                Ok(Held::Not("its members do not all stand still".to_owned()))
            }
        }
    }

    /// Ends a hold. That the leaf is gone meanwhile is fine.
    pub(super) fn release(&mut self) -> Result<()> {
        match self.clear(FreezeFlag::Hold) {
            Ok(_) => Ok(()),
            Err(error) if error.code() == Code::SessionNotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Takes a user's freeze back that was not reached, unless it was there before.
    fn take_back(&mut self, was_frozen: bool) -> Error {
        let named = blockers(self, MOST_NAMED);
        if !was_frozen && let Err(error) = self.clear(FreezeFlag::User) {
            return error.while_doing("take an unfinished freeze back");
        }
        late(self, &named)
    }
}

fn late(grip: &Grip, named: &[super::inspect::MemberInfo]) -> Error {
    let what = format!(
        "session {} could not be frozen within {} s and was let go on; what does not stand still",
        grip.session,
        KERNEL.as_secs()
    );
    partial(&what, named).with("session", grip.session.as_str())
}
