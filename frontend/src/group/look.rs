//! How a session of the group tier looks, without stopping anybody: for lists, and for waiting.

use std::time::Duration;

use cgleaf_shared::process::liveness::{self, GroupProbe, Liveness};
use cgleaf_shared::process::{Pid, Proc, ProcView, ReadError};

use super::contradiction::contradiction;
use super::crowd::{Crowd, Person};
use super::gc::GC_LOOKS;
use super::identity::{GroupIdentity, NOT_OF_HERE};
use super::members::{Member, as_member, members_among};
use super::newcomers::{Followed, Newcomers};

/// What looks show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Somebody of it lives: its monitor, its leader, or a member.
    Alive,
    /// Only what has left its group lives, or carries its mark.
    Strays,
    /// Nobody was seen, in as many looks as gc takes, and among whoever was made meanwhile: a chain of forks in the group may
    /// have kept out of them. Only [`super::destroy`] and [`super::gc_judges_over`], which stop a group to look at it, prove more.
    Nobody,
    /// Nobody has its group's number: it has ended.
    Gone,
    /// It was recorded in another boot or pid namespace.
    Elsewhere,
    /// The kernel says that its record's parts do not fit. Why.
    Contradicted(String),
    /// Nobody was seen, and somebody may be hidden. Why.
    Untold(String),
}

/// Why nothing may be done by a record, if nothing may: it is of another boot or pid namespace, or the kernel contradicts it.
///
/// # Errors
/// If the boot id cannot be read.
pub fn unfit(proc: &Proc, identity: &GroupIdentity) -> Result<Option<String>, ReadError> {
    if identity.is_of_here(proc)? {
        return Ok(contradiction(proc, identity));
    }
    Ok(Some(NOT_OF_HERE.to_owned()))
}

/// Whether its number was given anew, to a process that is not its leader: the kernel does that only once nobody has the group
/// any more, so that it has ended. For a record of here.
#[must_use]
pub fn was_given_anew(proc: &Proc, identity: &GroupIdentity) -> bool {
    let now = identity
        .pgid
        .and_then(|pid| proc.process(pid).ok()?.stat().ok());
    matches!((now, identity.start), (Some(stat), Some(start)) if stat.id.start != start)
}

/// Looks at a session that is not known to be over.
///
/// # Errors
/// If /proc cannot be read.
pub fn look(proc: &Proc, identity: &GroupIdentity) -> Result<Seen, ReadError> {
    one(look_at_all(proc, &[(identity, false)])?)
}

/// The same by one look, for a session that is said to be over: whoever has written that knew it better than looks do. What
/// left its group is not looked for.
///
/// # Errors
/// If /proc cannot be read.
pub fn look_once(proc: &Proc, identity: &GroupIdentity) -> Result<Seen, ReadError> {
    one(look_at_all(proc, &[(identity, true)])?)
}

fn one(seen: Vec<Seen>) -> Result<Seen, ReadError> {
    Ok(seen.into_iter().next().unwrap_or(Seen::Elsewhere))
}

/// Looks at many sessions, each with whether it is said to be over; everybody whom `/proc` shows is read once for all of them.
///
/// # Errors
/// If /proc cannot be read.
pub fn look_at_all(
    proc: &Proc,
    sessions: &[(&GroupIdentity, bool)],
) -> Result<Vec<Seen>, ReadError> {
    let mut seen = Vec::with_capacity(sessions.len());
    for (identity, over) in sessions {
        seen.push(by_the_named(proc, identity, *over)?);
    }
    let mut newcomers = Newcomers::new();
    let begun = newcomers.begin(proc);
    let mut crowd = Crowd::default();
    for round in 0..=GC_LOOKS {
        let wanted = |(told, session): &(&mut Option<Seen>, &(&GroupIdentity, bool))| match told {
            None => true,
            // Where somebody may be hidden, no look more shows more.
            Some(Seen::Nobody) => !session.1,
            Some(_) => false,
        };
        let mut left: Vec<_> = seen.iter_mut().zip(sessions).filter(wanted).collect();
        if left.is_empty() {
            break;
        }
        if round > 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
        crowd.look_again(proc)?;
        for (told, (identity, _)) in &mut left {
            **told = Some(among(&crowd, proc, identity));
        }
    }
    let mut seen: Vec<Seen> = seen
        .into_iter()
        .map(|it| it.unwrap_or(Seen::Nobody))
        .collect();
    let unseen = |(told, (_, over)): &(&mut Seen, &(&GroupIdentity, bool))| {
        !over && matches!(told, Seen::Nobody | Seen::Gone)
    };
    let unseen = seen.iter_mut().zip(sessions).filter(unseen);
    let unseen: Vec<_> = unseen
        .map(|(told, (identity, _))| (told, *identity))
        .collect();
    if !unseen.is_empty() {
        begun?;
        look_at_newcomers(proc, &mut newcomers, unseen)?;
    }
    Ok(seen)
}

/// Looks at whoever was made since the first look, for those of whom no look showed anybody: a chain of forks that left its
/// group keeps out of all of them.
fn look_at_newcomers(
    proc: &Proc,
    newcomers: &mut Newcomers,
    mut unseen: Vec<(&mut Seen, &GroupIdentity)>,
) -> Result<(), ReadError> {
    let followed = newcomers.follow(proc, |pid| {
        let person = Person::read(proc, pid)?.filter(|person| person.id.pid != Pid::own());
        let Some(person) = person else {
            return Ok(None);
        };
        for at in (0..unseen.len()).rev() {
            if let Some(member) = as_member(proc, &person, unseen[at].1) {
                let (told, identity) = unseen.swap_remove(at);
                *told = seen_as(&[member], identity);
            }
        }
        Ok(unseen.is_empty().then_some(()))
    })?;
    if followed == Followed::TooMany {
        let why = "more processes are made than can be read";
        for (told, _) in unseen {
            *told = Seen::Untold(why.to_owned());
        }
    }
    Ok(())
}

/// Those who were seen, if anybody was.
fn seen_as(members: &[Member], identity: &GroupIdentity) -> Seen {
    let is_of_its_group = |member: &Member| member.is_of_its_group(identity);
    if members.iter().any(is_of_its_group) {
        Seen::Alive
    } else {
        Seen::Strays
    }
}

/// What those tell that a record names, if that is enough.
fn by_the_named(
    proc: &Proc,
    identity: &GroupIdentity,
    over: bool,
) -> Result<Option<Seen>, ReadError> {
    if !identity.is_of_here(proc)? {
        return Ok(Some(Seen::Elsewhere));
    }
    if let Some(why) = contradiction(proc, identity) {
        return Ok(Some(Seen::Contradicted(why)));
    }
    let named = identity.monitor.into_iter().chain(identity.leader());
    let alive = |process| liveness::of(proc, process) == Liveness::Alive;
    if named.into_iter().any(alive) {
        return Ok(Some(Seen::Alive));
    }
    let is_gone = is_group_gone(identity);
    Ok((over && is_gone != Some(false)).then_some(match is_gone {
        Some(_) => Seen::Gone,
        None => Seen::Nobody,
    }))
}

/// Whether nobody has its group's number; `None` without a group of its own.
fn is_group_gone(identity: &GroupIdentity) -> Option<bool> {
    let group = identity.pgid?;
    Some(matches!(liveness::probe_group(group), Ok(GroupProbe::Gone)))
}

fn among(crowd: &Crowd, proc: &Proc, identity: &GroupIdentity) -> Seen {
    let seen = members_among(crowd, proc, identity, &[]);
    if !seen.is_empty() {
        return seen_as(&seen, identity);
    }
    if is_group_gone(identity) == Some(true) {
        return Seen::Gone;
    }
    let mut named = identity.monitor.into_iter().chain(identity.leader());
    let untold = named.find_map(|process| match liveness::of(proc, process) {
        Liveness::Unknown(why) => Some(why),
        Liveness::Alive | Liveness::Dead => None,
    });
    match untold.or_else(|| hidden(proc)) {
        Some(why) => Seen::Untold(why),
        None => Seen::Nobody,
    }
}

/// Why somebody may be there whom nobody can see here, if that is so.
pub(super) fn hidden(proc: &Proc) -> Option<String> {
    match (proc.view(), proc.hides_processes()) {
        (Ok(ProcView::Own), Ok(false)) => None,
        (Ok(ProcView::Foreign), _) => Some("/proc is that of another pid namespace".to_owned()),
        (Ok(ProcView::Own), Ok(true)) => Some("/proc hides processes (hidepid)".to_owned()),
        (Err(error), _) | (_, Err(error)) => Some(error.to_string()),
    }
}
