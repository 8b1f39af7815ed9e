//! Destroy in the cgroup tier, the eight steps of DESIGN 4.

use std::cell::Cell;

use cgleaf_shared::id::{BootId, SessionId};
use cgleaf_shared::process::Pid;

use super::destroyed::{
    DestroyOptions, Destroyed, KillWay, Progress, StrayPolicy, strays_json, strays_left,
};
use super::freeze::Held;
use super::grip::{Grip, earlier_boot, not_proven};
use super::members::Listing;
use super::reach::{Reach, untold_here};
use super::resolve::parse;
use super::session::Session;
use super::state::LeafSeen;
use super::strays;
use crate::client::{Deadline, Patience, has_ended};
use crate::error::{Code, Error, Result};
use crate::records::{Phase, Record, RecordedStray, Tier};
use crate::steps;
use crate::trace::{self, Field, Role};

/// Ends everything of a session and proves it.
///
/// # Errors
/// SESSION_NOT_FOUND, SESSION_ALREADY_DESTROYED (both fine with `if_exists`). PARTIAL: something lives or may live, and
/// is named; a later destroy goes on from there. REFUSED: what is stated does not fit the leaf; nothing was signalled.
/// RECORD_DAMAGED: and no helper has a leaf of that id.
pub fn destroy(reach: &Reach, text: &str, options: &DestroyOptions) -> Result<Destroyed> {
    let _patience = Patience::for_each(options.timeout);
    for _ in 1..ATTEMPTS {
        let (answer, helper_died) = attempt(reach, text, options);
        if !helper_died {
            return answer;
        }
        trace::begins_again();
    }
    attempt(reach, text, options).0
}

/// How often a destroy begins again, as a later one would, where its helper died under it.
const ATTEMPTS: usize = 3;

/// One destroy, and whether its helper died under it.
fn attempt(reach: &Reach, text: &str, options: &DestroyOptions) -> (Result<Destroyed>, bool) {
    let destroy = Destroy {
        reach,
        options,
        helper_died: Cell::new(false),
    };
    let answer = destroy.run(text);
    let word = match &answer {
        Ok(done) if done.tombstone => "tombstone",
        Ok(_) => "destroyed",
        Err(error) => match error.code() {
            Code::SessionNotFound => "unknown",
            Code::Partial | Code::Timeout => "partial",
            _ => "refused",
        },
    };
    let fields = [("answer", Field::Word(word))];
    trace::event(Role::Destroy, "Answer", trace::started(), &fields);
    (answer, destroy.helper_died.get())
}

/// The members; none where only a helper of another version could list them, which is no reason not to end them.
fn members_if_told(grip: &mut Grip, progress: &mut Progress) -> Result<Listing> {
    match grip.list_members() {
        Err(error) if error.code() == Code::Protocol && !grip.client.same_version() => {
            progress.notices.push(format!(
                "how many were ended, and whether any had left, is not known: {}",
                error.message()
            ));
            Ok(Listing::default())
        }
        other => other,
    }
}

/// One destroy.
pub(super) struct Destroy<'a> {
    pub(super) reach: &'a Reach,
    pub(super) options: &'a DestroyOptions,
    /// Whether a helper that had the leaf went away.
    helper_died: Cell<bool>,
}

impl Destroy<'_> {
    fn run(&self, text: &str) -> Result<Destroyed> {
        let id = match self.reach.identify(text) {
            Ok(id) => id,
            Err(error) if error.code() == Code::SessionNotFound && self.options.if_exists => {
                return self.without_session(&parse(text)?);
            }
            // Neither record nor helper, and a leaf all the same: both are lost.
            Err(error) => match (error.code(), parse(text)) {
                (Code::SessionNotFound | Code::HelperUnreachable | Code::Storage, Ok(id))
                    if self.reach.has_directory_of(&id, None) =>
                {
                    id
                }
                _ => return Err(error),
            },
        };
        self.known(&id)
    }

    /// Nobody knows the id. Its tombstone is laid first and then it is looked for again: whoever claims it meanwhile
    /// finds the tombstone, or is found.
    fn without_session(&self, id: &SessionId) -> Result<Destroyed> {
        self.lay_tombstone(id)?;
        let is_there = self.reach.by_id(id)?.is_some() || self.reach.has_directory_of(id, None);
        if is_there {
            self.known(id)
        } else {
            Ok(Destroyed::nothing(id, true))
        }
    }

    fn known(&self, id: &SessionId) -> Result<Destroyed> {
        let before = self.session(id)?;
        if let Some(answer) = self.nothing_to_do(&before)? {
            return Ok(answer);
        }
        let mut progress = Progress::default();
        if let Err(error) = self.lay_tombstone(id) {
            progress.go_on_without_tombstone(&before, error)?;
        }
        steps::at("destroy:find");
        let started = trace::started();
        let session = self.session(id)?;
        if session.tier() == Tier::Group {
            return self.end_group(&session, progress);
        }
        let grip = self.reach.try_grip(&session, Role::Destroy)?;
        let fields = [("found", Field::Flag(grip.is_some()))];
        trace::event(Role::Destroy, "FindLeaf", started, &fields);
        match grip {
            Some(grip) => self
                .end_leaf(&session, grip, progress)
                .inspect_err(|error| self.helper_died.set(has_ended(error))),
            None => self.end_without_leaf(&session, progress),
        }
    }

    /// What its record says now; its helper is asked later.
    fn session(&self, id: &SessionId) -> Result<Session> {
        Ok(Session {
            id: id.clone(),
            found: self.reach.record(id)?,
            listed: None,
        })
    }

    fn lay_tombstone(&self, id: &SessionId) -> Result<()> {
        steps::at("destroy:begun");
        let started = trace::started();
        self.reach.store()?.lay_tombstone(id)?;
        trace::event(Role::Destroy, "LayTomb", started, &[]);
        Ok(())
    }

    /// What needs no step at all: a session of an earlier boot, or one that was destroyed before.
    fn nothing_to_do(&self, session: &Session) -> Result<Option<Destroyed>> {
        let Some(record) = session.record() else {
            return Ok(None);
        };
        let stated = record.attestation.as_ref().map(|one| one.boot_id);
        if stated.unwrap_or(record.maker.boot_id) != BootId::current().map_err(untold_here)? {
            return Err(earlier_boot(&session.id));
        }
        let over = record.phase == Phase::Destroyed
            && self.reach.look(session).state.is_over()
            && !self.another_leaf_lives(session);
        if !over {
            return Ok(None);
        }
        if self.options.if_exists {
            return Ok(Some(Destroyed {
                tier: session.tier(),
                ..Destroyed::nothing(&session.id, false)
            }));
        }
        Err(Error::new(
            Code::SessionAlreadyDestroyed,
            format!("no such session any more: {} was destroyed", session.id),
        )
        .with("session", session.id.as_str()))
    }

    /// The recorded leaf is gone. A helper may have another one of that id, of which this record does not tell.
    fn another_leaf_lives(&self, session: &Session) -> bool {
        let leaf = self.reach.open_leaf(&session.id, session.socket());
        leaf.is_ok_and(|leaf| leaf.is_some_and(|leaf| leaf.entry.state.populated))
    }

    /// No helper has a leaf of that id.
    fn end_without_leaf(&self, session: &Session, mut progress: Progress) -> Result<Destroyed> {
        let id = &session.id;
        if let Some(why) = session.set_aside() {
            return Err(self.reach.worthless_record(id, why));
        }
        match self.reach.see_leaf(session) {
            LeafSeen::Gone => {}
            // The id is claimed, and its maker now finds the tombstone; or found it already and took the claim back.
            LeafSeen::None => {}
            LeafSeen::EarlierBoot => return Err(earlier_boot(id)),
            LeafSeen::Tampered(why) => return Err(not_proven(id, &why)),
            LeafSeen::Unreadable(why) => {
                return Err(Error::new(
                    Code::HelperUnreachable,
                    format!("how session {id} is cannot be told from here: {why}"),
                )
                .with("session", id.as_str()));
            }
            LeafSeen::Here(_) | LeafSeen::There(_) => {
                return Err(Error::new(
                    Code::HelperUnreachable,
                    format!(
                        "the leaf of session {id} is there, and no helper that answers has it; {}",
                        session.way_back()
                    ),
                )
                .with("session", id.as_str()));
            }
        }
        self.look_after(session, None, &mut progress)?;
        self.finish(session, progress)
    }

    fn end_leaf(
        &self,
        session: &Session,
        mut grip: Grip,
        mut progress: Progress,
    ) -> Result<Destroyed> {
        steps::at("destroy:found");
        self.write_phase(session, Phase::Destroying, &mut progress);
        if grip.is_around_us() {
            return Err(self.end_ourselves(&mut grip));
        }
        let held = grip.hold_for_the_end(self.reach, &mut progress.notices);
        let listing = members_if_told(&mut grip, &mut progress)?;
        progress.killed = listing.members.len() + listing.hidden;
        self.look_held(&grip, &listing, &held, &mut progress)?;
        if let Some(time) = self.options.grace {
            grip.grace(&held, time)?;
        }
        steps::at("destroy:looked");
        let deadline = Deadline::after(self.options.timeout);
        if !grip.end_all(self.options.kill, deadline)? {
            return Err(grip
                .still_alive(&held, self.options.timeout)
                .with("destroyed", false)
                .with("tier", Tier::Cgroup.name())
                .with("killed", progress.killed)
                .with("strays", strays_json(&progress.strays)));
        }
        trace::event(Role::Destroy, "Ended", trace::started(), &[]);
        self.look_after(session, Some(&grip), &mut progress)?;
        progress.leftover = grip.remove_leaf();
        self.finish(session, progress)
    }

    /// From inside the session there is no hold and no grace: what is to be said is written, then one kill ends this
    /// process too.
    fn end_ourselves(&self, grip: &mut Grip) -> Error {
        let deadline = Deadline::after(self.options.timeout);
        match grip.end_all(KillWay::Atomic, deadline) {
            Err(error) => error,
            Ok(_) => Error::new(
                Code::Partial,
                format!(
                    "session {} was killed, and this process, which was in it, lives",
                    grip.session
                ),
            ),
        }
    }

    fn look_held(
        &self,
        grip: &Grip,
        listing: &Listing,
        held: &Held,
        progress: &mut Progress,
    ) -> Result<()> {
        if self.options.strays == StrayPolicy::Ignore {
            return Ok(());
        }
        let started = trace::started();
        let members: Vec<Pid> = listing.members.iter().map(|seat| seat.pid).collect();
        progress.strays = strays::children_outside(grip, &members)?;
        let fields = [
            (
                "held",
                Field::Flag(matches!(held, Held::Still | Held::Above)),
            ),
            ("found", Field::Flag(!progress.strays.is_empty())),
        ];
        trace::event(Role::Destroy, "LookStrays", started, &fields);
        Ok(())
    }

    /// What left the leaf: those seen while the members were held, those an earlier destroy named, the leader, and
    /// whoever carries the mark. Who has ended since he was seen may have left somebody who is to be seen next: that is looked
    /// for until nobody is seen, or somebody lives; or, where that does not come, who was seen last is named.
    fn look_after(
        &self,
        session: &Session,
        grip: Option<&Grip>,
        progress: &mut Progress,
    ) -> Result<()> {
        if self.options.strays == StrayPolicy::Ignore {
            return Ok(());
        }
        let started = trace::started();
        let is_member = |pid| grip.is_some_and(|grip| grip.is_member(pid));
        // A leader that only the record names could be anybody that somebody wrote there.
        let leader = grip.and_then(|grip| grip.leader);
        let mark = session.record().and_then(|record| record.mark.as_deref());
        let mut found = std::mem::take(&mut progress.strays);
        if let Some(record) = session.record() {
            found.extend(strays::recorded(&record.strays));
        }
        let recorded = session.record().and_then(|record| record.leader);
        for _ in 0..strays::LOOKS {
            found.extend(strays::after_the_end(leader, recorded, mark, is_member)?);
            found = strays::merged(found);
            if self.options.strays == StrayPolicy::Kill {
                strays::end(&mut found, is_member)?;
            }
            let (left, ended) = found.into_iter().partition(|it| it.killed || it.lives());
            progress.strays = left;
            if !progress.strays.is_empty() || ended.is_empty() {
                break;
            }
            (progress.strays, found) = (ended, Vec::new());
        }
        let fields = [
            ("held", Field::Flag(false)),
            ("found", Field::Flag(progress.some_stray_lives())),
        ];
        trace::event(Role::Destroy, "LookStrays", started, &fields);
        Ok(())
    }

    /// The end is proven. Strays that live make it no success, and are written down for a later destroy.
    pub(super) fn finish(&self, session: &Session, mut progress: Progress) -> Result<Destroyed> {
        if progress.some_stray_lives() {
            self.write_strays(session, &mut progress);
            return Err(strays_left(session, &progress));
        }
        steps::at("destroy:ended");
        self.write_phase(session, Phase::Destroyed, &mut progress);
        if let Some(name) = session.name()
            && let Ok(names) = self.reach.names()
        {
            names.release(name, &session.id)?;
        }
        Ok(Destroyed {
            destroyed: true,
            tier: session.tier(),
            killed: progress.killed,
            strays: progress.strays,
            leftover: progress.leftover,
            notices: progress.notices,
            ..Destroyed::nothing(&session.id, false)
        })
    }

    /// A record that cannot be written does not keep a session alive: the kernel's word is what counts.
    pub(super) fn write_phase(&self, session: &Session, phase: Phase, progress: &mut Progress) {
        let started = trace::started();
        let written = self.rewrite(session, |record| record.phase = phase);
        match written {
            Ok(true) => {
                let event = match phase {
                    Phase::Destroyed => "WriteDestroyed",
                    _ => "WriteDestroying",
                };
                trace::event(Role::Destroy, event, started, &[]);
            }
            Ok(false) => {}
            Err(error) => progress.note(format!(
                "the record could not be written: {}",
                error.message()
            )),
        }
    }

    pub(super) fn write_strays(&self, session: &Session, progress: &mut Progress) {
        let left: Vec<RecordedStray> = progress
            .strays
            .iter()
            .filter(|stray| !stray.killed)
            .map(|stray| RecordedStray {
                process: stray.process,
                tie: stray.tie,
            })
            .collect();
        let written = self.rewrite(session, |record| {
            record.phase = Phase::Destroying;
            record.strays = left;
        });
        if let Err(error) = written {
            progress.notices.push(error.message().to_owned());
        }
    }

    /// Changes the record as it stands now, if it is that session's and one of ours; whether it was written.
    fn rewrite(&self, session: &Session, change: impl FnOnce(&mut Record)) -> Result<bool> {
        let is_nowhere = session.found.is_none() && self.reach.has_no_place();
        if session.set_aside().is_some() || is_nowhere {
            return Ok(false);
        }
        let claimed = session.record().map(|record| record.created);
        self.reach.store()?.revise(&session.id, claimed, change)
    }
}
