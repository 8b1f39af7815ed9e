//! What can be done with sessions of the group tier, which have no leaf: the records' and the answers' side of
//! [`crate::group`].

use std::time::Duration;

use cgleaf_shared::process::{Pidfd, Proc, ProcessId, ReadError};
use serde_json::Value;

use super::destroy::Destroy;
use super::destroyed::{Destroyed, Progress, StrayPolicy, strays_json};
use super::grip::{not_proven, not_running};
use super::inspect::{MemberInfo, Processes, partial};
use super::reach::{Reach, untold_here};
use super::session::Session;
use super::signal::Outcome as Sent;
use super::state::State;
use super::strays::Stray;
use crate::client::Deadline;
use crate::error::{Code, Error, OrCode, Result};
use crate::group::{self, GcVerdict, GroupIdentity, Member, Outcome, Seen};
use crate::records::{Found, Phase, Record, Tie, Tier};

/// Between two looks at a session that has nobody to be waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Why a listing of this tier is never complete.
const INCOMPLETE: &str = "without a leaf, one look at /proc shows whom it shows";

/// What its record says of its processes; `None` before they were recorded.
fn identity(record: &Record) -> Result<Option<GroupIdentity>> {
    let Some(value) = record.group.clone() else {
        return Ok(None);
    };
    serde_json::from_value(value).map(Some).map_err(|why| {
        Error::new(
            Code::RecordDamaged,
            format!("the record of session {}: its group: {why}", record.session),
        )
        .with("session", record.session.as_str())
    })
}

/// What may be acted on: a record of here that the kernel does not contradict, of a session that is not over.
fn known(proc: &Proc, session: &Session) -> Result<GroupIdentity> {
    let over = || not_running(session);
    let record = session.record().ok_or_else(over)?;
    let identity = identity(record)?.ok_or_else(over)?;
    refuse_unfit(proc, session, &identity)?;
    if record.phase.is_over() && !runs_on(proc, &identity).map_err(untold_here)? {
        return Err(over());
    }
    Ok(identity)
}

fn refuse_unfit(proc: &Proc, session: &Session, identity: &GroupIdentity) -> Result<()> {
    match group::unfit(proc, identity).map_err(untold_here)? {
        Some(why) => Err(not_proven(&session.id, &why)),
        None => Ok(()),
    }
}

/// Whether one look shows that a session runs that is said to be over.
fn runs_on(proc: &Proc, identity: &GroupIdentity) -> std::result::Result<bool, ReadError> {
    group::look_once(proc, identity).map(|seen| seen == Seen::Alive)
}

/// Whether the monitor has written that it saw the end.
fn end_recorded(reach: &Reach, record: &Record) -> bool {
    matches!(reach.record(&record.session), Ok(Some(Found::Record(now))) if now.phase.is_over())
}

impl Destroy<'_> {
    /// Ends a session of this tier. Its tombstone is laid.
    pub(super) fn end_group(&self, session: &Session, mut progress: Progress) -> Result<Destroyed> {
        let Some(record) = session.record() else {
            return Err(not_running(session));
        };
        let Some(identity) = identity(record)? else {
            // Its processes are recorded before their maker looks for the tombstone, which it finds now.
            return self.finish(session, progress);
        };
        refuse_unfit(&Reach::proc()?, session, &identity)
            .map_err(|error| answer(error, session, &progress))?;
        if !record.phase.is_over() {
            self.write_phase(session, Phase::Destroying, &mut progress);
        }
        let options = group::DestroyOptions {
            timeout: self.options.timeout,
            grace: self.options.grace,
            strays: match self.options.strays {
                StrayPolicy::Name => group::StrayPolicy::Name,
                StrayPolicy::Kill => group::StrayPolicy::Kill,
                StrayPolicy::Ignore => group::StrayPolicy::Ignore,
            },
            end_recorded: &|| end_recorded(self.reach, record),
        };
        let report = group::destroy(&identity, &options).map_err(untold_here)?;
        progress.killed = report.ended;
        progress.strays = report.strays.iter().map(stray).collect();
        match report.outcome {
            Outcome::Ended => self.finish(session, progress),
            // Whoever made it found the tombstone, and took everything back.
            Outcome::Partial(_) if self.was_given_up(record) => self.finish(session, progress),
            Outcome::Partial(why) => {
                self.write_strays(session, &mut progress);
                let living = [report.alive, report.unproven].concat();
                Err(may_live(session, &why, &living, &progress))
            }
            Outcome::Refused(why) => {
                let proc = Reach::proc()?;
                if progress.strays.is_empty() && group::was_given_anew(&proc, &identity) {
                    self.write_phase(session, Phase::Destroyed, &mut progress);
                    if self.options.if_exists {
                        return Ok(Destroyed {
                            tier: Tier::Group,
                            ..Destroyed::nothing(&session.id, false)
                        });
                    }
                }
                let mut what = format!("session {}: {why}; nothing was signalled", session.id);
                for stray in &progress.strays {
                    what = format!("{what}; what had left it lives on: {}", stray.sentence());
                }
                Err(answer(Error::new(Code::Refused, what), session, &progress))
            }
        }
    }

    fn was_given_up(&self, record: &Record) -> bool {
        record.phase == Phase::Intent && matches!(self.reach.record(&record.session), Ok(None))
    }
}

/// PARTIAL, with everybody named who lives or may live.
fn may_live(session: &Session, why: &str, living: &[Member], progress: &Progress) -> Error {
    let what = format!("session {} may live: {why}", session.id);
    let living: Vec<MemberInfo> = living.iter().map(info).collect();
    let left: Vec<Value> = living.iter().map(MemberInfo::to_json).collect();
    let outside: Vec<String> = progress.strays.iter().map(Stray::sentence).collect();
    let error = match (living.is_empty(), outside.is_empty()) {
        (true, false) => Error::new(Code::Partial, what).with("members", Vec::<Value>::new()),
        _ => partial(&what, &living),
    };
    let error = match outside.is_empty() {
        true => error,
        false => error.followed_by(format_args!(
            "what may have left it lives on: {}",
            outside.join("; ")
        )),
    };
    answer(error, session, progress).with("leftover", left)
}

fn answer(error: Error, session: &Session, progress: &Progress) -> Error {
    error
        .with("session", session.id.as_str())
        .with("destroyed", false)
        .with("tier", Tier::Group.name())
        .with("killed", progress.killed)
        .with("strays", strays_json(&progress.strays))
        .with("leftover", Vec::<Value>::new())
}

fn stray(member: &Member) -> Stray {
    Stray {
        process: member.id,
        tie: match member.tie {
            group::Tie::Mark => Tie::Mark,
            group::Tie::Proven => Tie::Parent,
        },
        uid: Proc::system()
            .and_then(|proc| proc.process(member.id.pid)?.status())
            .ok()
            .map(|status| status.uids.real),
        argv: member.argv.clone(),
        cgroup: super::members::cgroup_of(member.id.pid).map(|path| path.to_string()),
        killed: false,
    }
}

fn info(member: &Member) -> MemberInfo {
    let status = Proc::system()
        .and_then(|proc| proc.process(member.id.pid)?.status())
        .ok();
    MemberInfo {
        pid: member.id.pid,
        parent: member.parent,
        state: Some(member.state.letter()),
        argv: member.argv.clone(),
        cgroup: super::members::cgroup_of(member.id.pid)
            .map(|path| path.to_string())
            .unwrap_or_default(),
        wait_channel: Some(member.wait_channel.clone()).filter(|name| !name.is_empty()),
        uid: status.map(|status| status.uids.effective),
    }
}

/// How a session of this tier is, and what is odd about it.
pub(super) type Told = (State, Option<String>);

/// How sessions of this tier are, as looks at all of them show it.
pub(super) fn states(records: &[&Record]) -> Vec<Told> {
    let identities: Vec<Result<GroupIdentity>> = records.iter().map(|it| required(it)).collect();
    let wanted: Vec<(&GroupIdentity, bool)> = identities
        .iter()
        .zip(records)
        .filter_map(|(identity, record)| Some((identity.as_ref().ok()?, record.phase.is_over())))
        .collect();
    let seen =
        Reach::proc().and_then(|proc| group::look_at_all(&proc, &wanted).map_err(untold_here));
    let mut seen = seen.map(Vec::into_iter);
    let told = |(record, identity): (&&Record, &Result<GroupIdentity>)| {
        if let Err(error) = identity {
            return (State::Damaged, Some(error.message().to_owned()));
        }
        match seen.as_mut().map(Iterator::next) {
            Ok(Some(seen)) => state_of(record, seen),
            Ok(None) => (State::Unknown, None),
            Err(error) => (State::Unknown, Some(error.message().to_owned())),
        }
    };
    records.iter().zip(&identities).map(told).collect()
}

fn required(record: &Record) -> Result<GroupIdentity> {
    let none = || Error::new(Code::RecordDamaged, "it speaks of no process");
    identity(record)?.ok_or_else(none)
}

fn state_of(record: &Record, seen: Seen) -> Told {
    let state = match (&seen, record.phase) {
        (Seen::Contradicted(_), _) => State::Damaged,
        (Seen::Alive | Seen::Strays, Phase::Destroying) => State::Destroying,
        (Seen::Alive | Seen::Strays, Phase::Intent) => State::Starting,
        (Seen::Alive, _) | (Seen::Strays, Phase::Running) => State::Running,
        // A destroy may have been told to look for no strays.
        (_, Phase::Destroyed) => State::Destroyed,
        (Seen::Elsewhere, _) => State::Unknown,
        (Seen::Untold(_), phase) if !phase.is_over() => State::Unknown,
        (_, Phase::Destroying) => State::Destroying,
        (_, Phase::Intent) if record.maker.may_live() => State::Starting,
        _ => State::Ended,
    };
    match seen {
        Seen::Contradicted(why) => (state, Some(why)),
        Seen::Untold(why) if state == State::Unknown => (state, Some(why)),
        _ => (state, None),
    }
}

/// How it is cannot be told, and waiting changes nothing about that.
pub(super) fn untold(session: &Session, why: Option<&str>) -> Error {
    let why = why.unwrap_or(group::NOT_OF_HERE);
    let id = &session.id;
    Error::new(
        Code::Refused,
        format!("how session {id} is cannot be told: {why}"),
    )
    .with("session", id.as_str())
}

/// Whether gc may forget it.
pub(super) fn judge(reach: &Reach, record: &Record) -> std::result::Result<(), String> {
    let identity = identity(record).map_err(|error| error.message().to_owned())?;
    if record.phase.is_over() {
        return is_over(identity.as_ref());
    }
    let Some(identity) = identity else {
        let starting = record.phase != Phase::Intent || record.maker.may_live();
        return if starting {
            Err("whoever made it is still at it".to_owned())
        } else {
            Ok(())
        };
    };
    let destroying = || {
        let now = reach.record(&record.session);
        !matches!(now, Ok(Some(Found::Record(now))) if now.phase < Phase::Destroying)
    };
    match group::gc_judges_over(&identity, &destroying, &|| end_recorded(reach, record)) {
        Ok(GcVerdict::Over) => Ok(()),
        Ok(GcVerdict::Kept(why)) => Err(why),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether a destroy that was begun can end: nobody of the session is seen, and its group tells whether anybody is.
pub(super) fn may_be_finished(record: &Record) -> bool {
    let identity = identity(record).ok().flatten();
    let (Some(identity), Ok(proc)) = (identity, Reach::proc()) else {
        return false;
    };
    let seen = group::look(&proc, &identity);
    identity.pgid.is_some() && matches!(seen, Ok(Seen::Nobody | Seen::Gone))
}

/// Why gc keeps a session that a destroy has begun to end. Without a group of its own no destroy can prove the end: it is over
/// when gc would call it over.
pub(super) fn judge_begun(reach: &Reach, record: &Record) -> std::result::Result<(), String> {
    let id = &record.session;
    let advice = format!(
        "a destroy of it has begun; `cgleaf destroy {id}` tells what is left, and ends what is proven"
    );
    match identity(record) {
        Ok(Some(identity)) if identity.pgid.is_none() => {
            let ended = || end_recorded(reach, record);
            match group::gc_judges_over(&identity, &|| false, &ended) {
                Ok(GcVerdict::Over) => Ok(()),
                Ok(GcVerdict::Kept(why)) => Err(format!("{why}; {advice}")),
                Err(error) => Err(error.to_string()),
            }
        }
        _ => Err(advice),
    }
}

/// A record may say that its session is over, and the kernel something else.
fn is_over(identity: Option<&GroupIdentity>) -> std::result::Result<(), String> {
    let Some(identity) = identity else {
        return Ok(());
    };
    let proc = Reach::proc().map_err(|error| error.message().to_owned())?;
    match group::look_once(&proc, identity) {
        Ok(Seen::Alive) => Err("its record says that it is over, and it runs".to_owned()),
        Ok(Seen::Contradicted(why)) => Err(format!("its record does not fit: {why}")),
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// `ps`: whom one look shows.
pub(super) fn processes(session: &Session) -> Result<Processes> {
    let proc = Reach::proc()?;
    let identity = known(&proc, session)?;
    let seen = group::members(&proc, &identity).map_err(untold_here)?;
    Ok(Processes {
        complete: false,
        members: seen.iter().map(info).collect(),
        hidden: 0,
        why_incomplete: Some(INCOMPLETE.to_owned()),
    })
}

/// `signal`: to everybody whom one look shows and proves.
pub(super) fn signal(session: &Session, signal: i32) -> Result<Sent> {
    let proc = Reach::proc()?;
    let identity = known(&proc, session)?;
    let (sent, denied) = group::signal_members(&proc, &identity, signal).map_err(untold_here)?;
    if sent.is_empty() && denied.is_empty() {
        return Err(nobody_reached(&proc, session, &identity, signal)?);
    }
    let refused = |process: ProcessId| (process.pid, "it may not be signalled".to_owned());
    Ok(Sent {
        sent: sent.iter().map(|process| process.pid).collect(),
        refused: denied.into_iter().map(refused).collect(),
        hidden: 0,
    })
}

/// One look showed nobody to whom the signal could be sent: it has ended, or nobody can tell.
fn nobody_reached(
    proc: &Proc,
    session: &Session,
    identity: &GroupIdentity,
    signal: i32,
) -> Result<Error> {
    let why = match group::look(proc, identity).map_err(untold_here)? {
        // As `show` and `wait` say it.
        Seen::Gone | Seen::Nobody => return Ok(not_running(session)),
        Seen::Untold(why) | Seen::Contradicted(why) => why,
        Seen::Elsewhere => group::NOT_OF_HERE.to_owned(),
        Seen::Strays | Seen::Alive if !proc.is_own() => {
            "/proc is that of another pid namespace, and nobody can be reached by its numbers"
                .to_owned()
        }
        Seen::Strays => {
            "only its mark ties to it who is seen, which names and is no proof".to_owned()
        }
        Seen::Alive => format!("{INCOMPLETE}, and it showed nobody who is proven to be of it"),
    };
    let id = &session.id;
    Ok(Error::new(
        Code::Partial,
        format!(
            "signal {signal} was sent to nobody of session {id}: {why}; `cgleaf ps {id}` shows whom a look shows, and \
             `cgleaf destroy {id}` stops its group to look at it"
        ),
    )
    .with("session", id.as_str())
    .with("sent", 0))
}

/// Whether nothing more can be waited for: a destroy has ended whom it could, cannot prove the end, and nobody is seen any more,
/// so that gc would take the record.
pub(super) fn is_over_as_far_as_seen(reach: &Reach, session: &Session) -> bool {
    session
        .record()
        .is_some_and(|record| record.group.is_some() && judge_begun(reach, record).is_ok())
}

/// Waits for the end of the monitor or the leader, for a little while. `false` once the deadline is over.
pub(super) fn wait_a_little(session: &Session, deadline: Option<Deadline>) -> Result<bool> {
    let left = match deadline.map(|deadline| deadline.left()) {
        Some(None) => return Ok(false),
        Some(Some(left)) => left.min(LOOK_AGAIN),
        None => LOOK_AGAIN,
    };
    let identity = session.record().map(identity).transpose()?.flatten();
    let who = identity.and_then(|identity| identity.monitor.or(identity.leader()));
    match who.and_then(|process| Pidfd::open(process.pid).ok()) {
        Some(held) if held.is_alive().unwrap_or(false) => {
            held.wait(Some(left)).or_code(Code::Internal)?;
        }
        _ => std::thread::sleep(left),
    }
    Ok(true)
}
