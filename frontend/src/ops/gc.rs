//! Taking away what is proven over: records, names, tombstones and files that nobody will finish (DESIGN 4.2).

use std::time::Duration;

use cgleaf_shared::id::{BootId, BootTime, SessionId, SessionName};

use super::destroy::destroy;
use super::destroyed::DestroyOptions;
use super::reach::Reach;
use super::session::Session;
use super::state::{LEADER_OUTSIDE, LeafSeen, Look, State};
use crate::error::{Code, OrCode, Result};
use crate::private_dir::PrivateDir;
use crate::records::{Found, Names, Phase, Record, Store, Tier};
use crate::trace::{self, Field, Role};

/// How long a tombstone lies, and how old an unfinished file must be.
const TEN_MINUTES: Duration = Duration::from_secs(600);
/// Why one is kept whose record is not what it was a moment ago.
const CHANGING: &str = "somebody else is changing it";

/// What [`gc`] did, or would do.
#[derive(Debug, Default)]
pub struct Gc {
    /// The sessions whose records were removed.
    pub removed: Vec<SessionId>,
    /// The sessions that were kept, and why.
    pub kept: Vec<Kept>,
    /// The names that nobody had.
    pub names: Vec<SessionName>,
    /// The tombstones that had lain long enough.
    pub tombstones: Vec<SessionId>,
    /// The sessions whose logs lay there without a record.
    pub logs: Vec<SessionId>,
    /// How many unfinished files there were.
    pub temporaries: usize,
    /// What stood in the way.
    pub trouble: Vec<String>,
}

/// A session that was kept.
#[derive(Debug)]
pub struct Kept {
    /// Which.
    pub session: SessionId,
    /// Why.
    pub reason: String,
}

/// Takes away what is proven over. With `dry_run` it only says what it would do. Where no record can be made, as in a container
/// whose root nobody can write to, that is the leaves that a helper has.
///
/// # Errors
/// STORAGE: the records that there are cannot be read at all.
pub fn gc(reach: &Reach, dry_run: bool) -> Result<Gc> {
    let kept = kept(reach)?;
    let mut done = Gc::default();
    let everything = reach.everything();
    let told = everything
        .trouble
        .iter()
        .chain(everything.unknown())
        .map(|error| error.message().to_owned());
    done.trouble.extend(told);
    for session in &everything.sessions {
        if !dry_run {
            end_lost_hold(reach, session);
        }
        let finished = match dry_run {
            true => None,
            false => done.heard(finish_destroy(reach, session)).flatten(),
        };
        let session = finished.as_ref().unwrap_or(session);
        match &kept {
            Some((store, ..)) if session.found.is_some() => {
                consider(reach, store, session, dry_run, &mut done);
            }
            _ => consider_unrecorded(reach, session, dry_run, &mut done),
        }
    }
    let Some((store, names, named)) = kept else {
        return Ok(done);
    };
    release_names(reach, &names, named, dry_run, &mut done);
    take_logs(reach, store, dry_run, &mut done)?;
    lift_tombstones(reach, store, dry_run, &mut done)?;
    for dir in [store.dir(), names.dir()] {
        done.temporaries += done.heard(sweep(dir, dry_run)).unwrap_or(0);
    }
    Ok(done)
}

/// Every name that is taken, with its holder.
type Named = Vec<(SessionName, Option<SessionId>)>;

/// The records, and the names as they were before anything else was looked at; `None` where there are none and none can be made.
fn kept(reach: &Reach) -> Result<Option<(&Store, Names, Named)>> {
    match reach.store() {
        Err(_) if reach.has_no_place() => Ok(None),
        store => {
            let store = store?;
            // Names first: an id is claimed before its name is, so that a name without a record is nobody's who is just starting.
            let names = reach.names()?;
            let named = names.all()?;
            Ok(Some((store, names, named)))
        }
    }
}

fn release_names(reach: &Reach, names: &Names, named: Named, dry_run: bool, done: &mut Gc) {
    for (name, holder) in named {
        let held = match &holder {
            // What cannot be told is kept.
            Some(id) => {
                done.heard(reach.may_know(id)).unwrap_or(true) && !done.removed.contains(id)
            }
            None => false,
        };
        let released = match &holder {
            _ if held => continue,
            _ if dry_run => Ok(()),
            Some(id) => names.release(&name, id),
            None => names.discard(&name),
        };
        if done.heard(released).is_some() {
            done.names.push(name);
        }
    }
}

/// A hold ends with the connection that has it. Where the helper died together with that one, its leaf stays frozen until a
/// helper looks at it again: one is started for that.
fn end_lost_hold(reach: &Reach, session: &Session) {
    if session.listed.is_none() && reach.is_held(session) {
        // Why it could not be is told where the session is judged.
        let _ = reach.try_grip(session, Role::Gc);
    }
}

/// A destroy that was begun, whose maker did not come to its end: one from inside the session ends itself. Where the kernel says
/// that nothing lives, what is left of its steps is done; the session then, if that was so.
fn finish_destroy(reach: &Reach, session: &Session) -> Result<Option<Session>> {
    let begun = session.record().is_some_and(|record| {
        record.phase == Phase::Destroying
            && match session.tier() {
                Tier::Cgroup => reach.look(session).state == State::Destroyed,
                Tier::Group => super::group_tier::may_be_finished(record),
            }
    });
    if !begun {
        return Ok(None);
    }
    // What it cannot finish is told where the session is judged.
    match destroy(reach, session.id.as_str(), &DestroyOptions::default()) {
        Ok(_) => reach.by_id(&session.id),
        Err(_) => Ok(None),
    }
}

impl Gc {
    /// What one step came to. One that failed is told of, and keeps no other from being done.
    fn heard<T>(&mut self, step: Result<T>) -> Option<T> {
        step.map_err(|error| self.trouble.push(error.message().to_owned()))
            .ok()
    }

    fn keep(&mut self, session: &Session, reason: impl Into<String>) {
        self.kept.push(Kept {
            session: session.id.clone(),
            reason: reason.into(),
        });
    }
}

fn consider(reach: &Reach, store: &Store, session: &Session, dry_run: bool, done: &mut Gc) {
    let started = trace::started();
    // What was read and what is seen of the leaf are of two moments: if the record has changed between, nothing is proven.
    let verdict = judge(reach, store, session).and_then(|record| standing(store, record));
    let fields = [
        ("found", Field::Flag(session.listed.is_some())),
        ("over", Field::Flag(verdict.is_ok())),
    ];
    trace::event(Role::Gc, "GcLook", started, &fields);
    let started = trace::started();
    let verdict = verdict.and_then(|record| {
        if !dry_run {
            take_leaf_away(reach, session)?;
        }
        Ok(record)
    });
    let verdict = match verdict {
        Ok(record) if !dry_run => match forget(reach, store, record) {
            Ok(true) => Ok(record),
            Ok(false) => Err(CHANGING.to_owned()),
            Err(error) => Err(error.message().to_owned()),
        },
        other => other,
    };
    match verdict {
        Err(reason) => {
            done.keep(session, reason);
            trace::event(Role::Gc, "GcKeep", started, &[]);
        }
        Ok(_) => {
            done.removed.push(session.id.clone());
            trace::event(Role::Gc, "GcRemove", started, &[]);
        }
    }
}

/// A leaf that a helper has and no record tells of: the record went with a logout, or with whoever could not write it. One that
/// its leader has come to, and all have left, is over. To one without a leader somebody may be just on the way.
fn consider_unrecorded(reach: &Reach, session: &Session, dry_run: bool, done: &mut Gc) {
    let has_ended = session
        .listed
        .as_ref()
        .is_some_and(|listed| listed.entry.leader.is_some() && !listed.entry.state.populated);
    let verdict = match has_ended {
        false => Err("a helper has its leaf, and there is no record of it".to_owned()),
        true if dry_run => Ok(()),
        true => take_leaf_away(reach, session),
    };
    match verdict {
        Ok(()) => done.removed.push(session.id.clone()),
        Err(reason) => done.keep(session, reason),
    }
}

/// An empty leaf that nobody took away: the record goes only with it. Where its helper is gone too, one is started for that:
/// without the record nobody would find the leaf again.
fn take_leaf_away(reach: &Reach, session: &Session) -> std::result::Result<(), String> {
    let is_there = matches!(
        reach.see_leaf(session),
        LeafSeen::Here(_) | LeafSeen::There(_)
    );
    if !is_there && session.listed.is_none() {
        return Ok(());
    }
    match reach.try_grip(session, Role::Gc) {
        Ok(Some(mut grip)) => match grip.remove_leaf().first() {
            None => Ok(()),
            Some((path, 0)) => Err(format!("its empty leaf cannot be removed: {path}")),
            Some((path, errno)) => Err(format!(
                "its empty leaf cannot be removed: {path}: {}",
                std::io::Error::from_raw_os_error(*errno)
            )),
        },
        Ok(None) if !is_there => Ok(()),
        Ok(None) => Err("its empty leaf is there, and no helper has it".to_owned()),
        Err(error) => Err(format!(
            "its empty leaf cannot be removed: {}",
            error.message()
        )),
    }
}

/// The record, if its session is proven over; else why it is kept.
fn judge<'s>(
    reach: &Reach,
    store: &Store,
    session: &'s Session,
) -> std::result::Result<&'s Record, String> {
    let record = match &session.found {
        Some(Found::Record(record)) => record,
        Some(Found::Damaged { why, foreign, .. }) => {
            let whose = if *foreign {
                "not ours to remove"
            } else {
                "damaged"
            };
            return Err(format!(
                "its record is {whose}: {why}; once it is over, remove {} yourself",
                store.record_of(&session.id).display()
            ));
        }
        None => return Err("there is no record of it".to_owned()),
    };
    let stated = record.attestation.as_ref().map(|one| one.boot_id);
    let boot = stated.unwrap_or(record.maker.boot_id);
    match BootId::current() {
        // Whatever it was ended with its boot; that it is of this machine was asked when it was read.
        Ok(now) if now != boot => return Ok(record),
        Ok(_) => {}
        Err(error) => return Err(format!("which boot this is cannot be told: {error}")),
    }
    if record.phase == Phase::Destroying && record.tier == Tier::Group {
        super::group_tier::judge_begun(reach, record)?;
        return Ok(record);
    }
    if record.phase == Phase::Destroying {
        let id = &session.id;
        return Err(format!(
            "a destroy of it has begun and is not finished; `cgleaf destroy {id}` finishes it"
        ));
    }
    if record.tier == Tier::Group {
        super::group_tier::judge(reach, record)?;
        return Ok(record);
    }
    let look = reach.look(session);
    if let Some(reason) = alive(record, &look) {
        return Err(reason);
    }
    if may_still_start(record) || (!record.phase.is_over() && record.maker.may_live()) {
        return Err("whoever made it is still at it".to_owned());
    }
    Ok(record)
}

/// Why a session is not proven over, if so. An empty leaf is one that its processes have left, or that nobody has come to yet:
/// whether somebody still could is asked of its maker.
fn alive(record: &Record, look: &Look) -> Option<String> {
    match (&look.leaf, look.populated) {
        (_, Some(false)) if look.state == State::Running => Some(LEADER_OUTSIDE.to_owned()),
        (LeafSeen::Gone | LeafSeen::EarlierBoot, _) => None,
        (LeafSeen::Here(_) | LeafSeen::There(_), Some(false)) => None,
        (LeafSeen::Here(_) | LeafSeen::There(_), _) => Some("it runs".to_owned()),
        (LeafSeen::Tampered(why), _) => Some(format!("its record does not fit: {why}")),
        (LeafSeen::Unreadable(why), _) => Some(format!("it cannot be told: {why}")),
        // It never came to a leaf, if no helper has one.
        (LeafSeen::None, _) if record.phase == Phase::Intent || record.phase.is_over() => None,
        (LeafSeen::None, _) => Some("nothing is known about its leaf".to_owned()),
    }
}

/// The record, if it is still the one that stands there.
fn standing<'r>(store: &Store, record: &'r Record) -> std::result::Result<&'r Record, String> {
    match store.stands(record) {
        true => Ok(record),
        false => Err(CHANGING.to_owned()),
    }
}

/// Removes the record that was judged, and what goes with it; whether it was still that.
fn forget(reach: &Reach, store: &Store, record: &Record) -> Result<bool> {
    let id = &record.session;
    if !store.forget_if(id, |now| now.is_still(record))? {
        return Ok(false);
    }
    if let Some(name) = &record.name
        && let Ok(names) = reach.names()
    {
        names.release(name, id)?;
    }
    // Its maker is dead, so that nobody is left whom the tombstone would have to stop.
    if record.phase == Phase::Destroyed && !record.maker.may_live() {
        store.lift_tombstone(id)?;
    }
    Ok(true)
}

/// A log is named by a record before it is made, so that one without a record is nobody's: the record was lost.
fn take_logs(reach: &Reach, store: &Store, dry_run: bool, done: &mut Gc) -> Result<()> {
    for id in store.logs()? {
        // With its record its log goes too.
        if done.removed.contains(&id) || done.heard(reach.may_know(&id)).unwrap_or(true) {
            continue;
        }
        let taken = if dry_run {
            Ok(true)
        } else {
            take_log(store, &id)
        };
        // One that is no file is nobody's log, and keeps no other from being taken.
        if done.heard(taken) == Some(true) {
            done.logs.push(id);
        }
    }
    Ok(())
}

/// The id is claimed for that, so that nobody begins to use it meanwhile. `false` if somebody has.
fn take_log(store: &Store, id: &SessionId) -> Result<bool> {
    match store.claim(&Record::intent(id.clone(), None, Tier::Cgroup)?) {
        Ok(()) => {}
        Err(error) if error.code() == Code::Usage => return Ok(false),
        Err(error) => return Err(error),
    }
    let removed = store.remove_log(id);
    // The claim was made for this alone, and goes also where the log does not.
    store.forget(id)?;
    removed.map(|()| true)
}

fn lift_tombstones(reach: &Reach, store: &Store, dry_run: bool, done: &mut Gc) -> Result<()> {
    let now = BootTime::now();
    for id in store.tombstones()? {
        // One that is no file is nobody's tombstone, and keeps no other from being lifted.
        if done.heard(lift(reach, store, &id, now, dry_run)) == Some(true) {
            done.tombstones.push(id);
        }
    }
    Ok(())
}

/// Takes a tombstone away that has lain long enough; whether it had.
fn lift(
    reach: &Reach,
    store: &Store,
    id: &SessionId,
    now: BootTime,
    dry_run: bool,
) -> Result<bool> {
    let lain = |laid: BootTime| Duration::from_nanos(now.0.saturating_sub(laid.0));
    let young = store
        .tombstone_laid(id)?
        .is_some_and(|laid| lain(laid) < TEN_MINUTES);
    if young || is_needed(reach, id)? {
        return Ok(false);
    }
    if !dry_run {
        store.lift_tombstone(id)?;
    }
    Ok(true)
}

/// Whether its maker may live and may not have looked for the tombstone yet: it came to no leaf that the record knows of,
/// whatever a destroy has written there since. Without record and tombstone it would start its program after that destroy.
fn may_still_start(record: &Record) -> bool {
    record.attestation.is_none() && record.maker.may_live()
}

/// Whether somebody who claimed that id has not looked for its tombstone yet, or a destroy is under way.
fn is_needed(reach: &Reach, id: &SessionId) -> Result<bool> {
    Ok(match reach.record(id)? {
        Some(Found::Record(record)) => match record.phase {
            Phase::Destroying => true,
            _ => may_still_start(&record),
        },
        _ => false,
    })
}

fn sweep(dir: &PrivateDir, dry_run: bool) -> Result<usize> {
    let stale = dir.stale_temporaries(TEN_MINUTES).or_code(Code::Storage)?;
    if !dry_run {
        for name in &stale {
            dir.remove(name).or_code(Code::Storage)?;
        }
    }
    Ok(stale.len())
}
