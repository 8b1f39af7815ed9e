//! How a session is, as the kernel says.

use cgleaf_shared::attestation::{Attestation, Foreign, Verdict, verify};
use cgleaf_shared::cgroup::CgroupDir;
use cgleaf_shared::id::BootId;
use cgleaf_shared::process::{Liveness, ProcessId, liveness};
use cgleaf_shared::wire::{LeafState, Reply, Request, VerdictReport};

use super::reach::Reach;
use super::session::Session;
use super::strays;
use crate::error::Result;
use crate::operations;
use crate::records::{Phase, Record, Tier};

/// What is odd about a session whose leaf is empty while it runs.
pub(super) const LEADER_OUTSIDE: &str =
    "its leader was moved out of its leaf and runs on; `cgleaf destroy --strays kill` ends it";

/// What is odd about a session whose record does not tell of its leaf.
const ANOTHER_LEAF: &str =
    "its record tells of another leaf than its helper has, which is the one that is shown";

/// The states of DESIGN 4.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Its id is claimed and its program is not known to run yet.
    Starting,
    /// A process of it lives.
    Running,
    /// All of it stands still.
    Frozen,
    /// A destroy has begun and the end is not proven.
    Destroying,
    /// Nothing of it lives; it ended by itself.
    Ended,
    /// Nothing of it lives; a destroy saw to that.
    Destroyed,
    /// Its record is torn, foreign or newer, or does not fit its leaf.
    Damaged,
    /// It cannot be told from here.
    Unknown,
}

impl State {
    /// Its name in JSON and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Frozen => "frozen",
            Self::Destroying => "destroying",
            Self::Ended => "ended",
            Self::Destroyed => "destroyed",
            Self::Damaged => "damaged",
            Self::Unknown => "unknown",
        }
    }

    /// Whether nothing of it lives.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Ended | Self::Destroyed)
    }
}

/// What a look at a leaf shows.
#[derive(Debug)]
pub enum LeafSeen {
    /// It is that leaf, and it is open here.
    Here(CgroupDir),
    /// It is that leaf, says its helper; its path means something else to this process.
    There(LeafState),
    /// It was removed, so it was empty.
    Gone,
    /// It was recorded in an earlier boot, which ended whatever lived then.
    EarlierBoot,
    /// The statement does not fit the leaf; why.
    Tampered(String),
    /// It cannot be told; why.
    Unreadable(String),
    /// Nothing was ever stated about a leaf.
    None,
}

/// A session as the kernel shows it.
#[derive(Debug)]
pub struct Look {
    /// The state.
    pub state: State,
    /// The leaf.
    pub leaf: LeafSeen,
    /// Whether a process lives in it; `None` where that cannot be told.
    pub populated: Option<bool>,
    /// What is odd about it, in words.
    pub remark: Option<String>,
}

/// A session's first process.
#[derive(Debug, Clone, Copy)]
pub struct Leader {
    /// Which.
    pub process: ProcessId,
    /// Whether it lives; `None` where that cannot be told.
    pub alive: Option<bool>,
    /// Whether it stands still until somebody lets it go on.
    pub stopped: bool,
}

impl Reach {
    /// Proves, or does not, that the statement still describes the leaf: here where the paths can be read, else by
    /// asking the helper.
    pub(super) fn see_leaf(&self, session: &Session) -> LeafSeen {
        let Some(attestation) = session.attestation() else {
            return LeafSeen::None;
        };
        let verdict = match self.root() {
            Ok(root) => {
                operations::tell_verification(attestation);
                verify(attestation, root)
            }
            Err(why) => return self.ask_about(session, attestation, why),
        };
        match verdict {
            Verdict::Proven(dir) => LeafSeen::Here(dir),
            Verdict::Gone => LeafSeen::Gone,
            Verdict::Foreign(Foreign::EarlierBoot) => LeafSeen::EarlierBoot,
            Verdict::Foreign(other) => LeafSeen::Tampered(other.to_string()),
            Verdict::Unreadable(why) => self.ask_about(session, attestation, &why.to_string()),
        }
    }

    fn ask_about(&self, session: &Session, attestation: &Attestation, why: &str) -> LeafSeen {
        if let Some(listed) = &session.listed
            && listed.entry.attestation == *attestation
        {
            return LeafSeen::There(listed.entry.state);
        }
        match self.verified_by_helper(session, attestation) {
            Ok(VerdictReport::Proven(state)) => LeafSeen::There(state),
            Ok(VerdictReport::Gone) => LeafSeen::Gone,
            Ok(VerdictReport::Foreign(text)) if text == Foreign::EarlierBoot.to_string() => {
                LeafSeen::EarlierBoot
            }
            Ok(VerdictReport::Foreign(text)) => LeafSeen::Tampered(text),
            Ok(VerdictReport::Unreadable(text)) => LeafSeen::Unreadable(text),
            Err(error) => LeafSeen::Unreadable(format!("{why}; {}", error.message())),
        }
    }

    fn verified_by_helper(
        &self,
        session: &Session,
        attestation: &Attestation,
    ) -> Result<VerdictReport> {
        let mut client = self.any_helper(session.socket())?;
        let request = Request::Verify {
            attestation: attestation.clone(),
        };
        match client.call(&request)? {
            Reply::Verified(report) => Ok(report),
            _ => Err(super::reach::unexpected(&client, "verify")),
        }
    }

    /// Looks at a session.
    pub fn look(&self, session: &Session) -> Look {
        match kept_by_processes(session) {
            Some(record) => {
                let told = super::group_tier::states(&[record]).pop();
                of_processes(told.unwrap_or((State::Unknown, None)))
            }
            None => self.look_at_leaf(session),
        }
    }

    /// Looks at many, in their order. Those without a leaf are looked at together: everybody is read once for all of them.
    pub fn look_at_all(&self, sessions: &[Session]) -> Vec<Look> {
        let records: Vec<&Record> = sessions.iter().filter_map(kept_by_processes).collect();
        let mut told = super::group_tier::states(&records).into_iter();
        let mut look = |session| match kept_by_processes(session) {
            Some(_) => of_processes(told.next().unwrap_or((State::Unknown, None))),
            None => self.look_at_leaf(session),
        };
        sessions.iter().map(&mut look).collect()
    }

    fn look_at_leaf(&self, session: &Session) -> Look {
        let leaf = self.see_leaf(session);
        let (populated, frozen) = events_of(&leaf);
        let mut remark = session.set_aside().map(str::to_owned);
        if let LeafSeen::Tampered(why) | LeafSeen::Unreadable(why) = &leaf {
            remark.get_or_insert_with(|| why.clone());
        }
        if session.tells_of_another_leaf() {
            remark.get_or_insert_with(|| ANOTHER_LEAF.to_owned());
        }
        let state = state_of(session, &leaf, populated, frozen);
        if state == State::Running && populated == Some(false) {
            remark.get_or_insert_with(|| LEADER_OUTSIDE.to_owned());
        }
        Look {
            state,
            leaf,
            populated,
            remark,
        }
    }

    /// The leader, as this pid namespace numbers it.
    pub fn leader(&self, session: &Session) -> Option<Leader> {
        let recorded = session.record().and_then(|record| record.leader);
        let listed = session.listed.as_ref().and_then(|l| l.entry.leader);
        let process = recorded.or(listed)?;
        let boot = session.attestation().map(|attestation| attestation.boot_id);
        let former = boot.is_some_and(|boot| BootId::current().is_ok_and(|now| now != boot));
        let proc = Self::proc().ok()?;
        let alive = match liveness::of(&proc, process) {
            _ if former => Some(false),
            Liveness::Alive => Some(true),
            Liveness::Dead => Some(false),
            Liveness::Unknown(_) => None,
        };
        let stopped = alive == Some(true)
            && proc
                .process(process.pid)
                .and_then(|dir| dir.stat())
                .is_ok_and(|stat| stat.state.is_stopped());
        Some(Leader {
            process,
            alive,
            stopped,
        })
    }
}

/// Whether it is populated and whether it is frozen, where that can be told.
fn events_of(leaf: &LeafSeen) -> (Option<bool>, bool) {
    match leaf {
        LeafSeen::Here(dir) => match dir.events() {
            Ok(events) => (Some(events.populated), events.frozen),
            // Removed since it was opened: it was empty.
            Err(error) if error.is_gone() => (Some(false), false),
            Err(_) => (None, false),
        },
        LeafSeen::There(state) => (Some(state.populated), state.frozen),
        LeafSeen::Gone | LeafSeen::EarlierBoot => (Some(false), false),
        LeafSeen::Tampered(_) | LeafSeen::Unreadable(_) | LeafSeen::None => (None, false),
    }
}

fn state_of(session: &Session, leaf: &LeafSeen, populated: Option<bool>, frozen: bool) -> State {
    if session.set_aside().is_some() {
        return State::Damaged;
    }
    let phase = session.record().map(|record| record.phase);
    match (leaf, populated) {
        (LeafSeen::Tampered(_), _) => State::Damaged,
        (LeafSeen::None, _) => without_leaf(session),
        (_, None) => State::Unknown,
        (_, Some(true)) => living(session, phase, frozen),
        (LeafSeen::EarlierBoot, _) => over(session, phase),
        (LeafSeen::Gone, _) => emptied(session, phase),
        // An empty leaf: it was just made, or everything in it has ended.
        (_, Some(false)) if phase == Some(Phase::Intent) => without_leaf(session),
        (_, Some(false)) => emptied(session, phase),
    }
}

fn living(session: &Session, phase: Option<Phase>, frozen: bool) -> State {
    match phase {
        Some(Phase::Destroying) => State::Destroying,
        Some(Phase::Intent) if maker_may_live(session) => State::Starting,
        _ if frozen => State::Frozen,
        _ => State::Running,
    }
}

/// Nobody is in its leaf. That is the end, unless the leader was moved out of it and runs on.
fn emptied(session: &Session, phase: Option<Phase>) -> State {
    match phase {
        Some(Phase::Running) if leader_outside(session).is_some() => State::Running,
        _ => over(session, phase),
    }
}

/// The recorded leader of a session whose leaf is empty, if it lives: PAM and service managers move processes. It is shown
/// and waited for on the record's word, and never signalled on that alone.
pub(super) fn leader_outside(session: &Session) -> Option<ProcessId> {
    let record = session.record()?;
    let process = record.leader?;
    let boot = record.attestation.as_ref()?.boot_id;
    let proc = Reach::proc().ok()?;
    matches!(liveness::recorded(&proc, process, boot), Liveness::Alive).then_some(process)
}

fn over(session: &Session, phase: Option<Phase>) -> State {
    match phase {
        // Nothing is in the leaf any more, but what left it lives on.
        Some(Phase::Destroying) if has_living_strays(session) => State::Destroying,
        // Whoever was destroying it has not said that it is done, but the kernel has.
        Some(Phase::Destroyed | Phase::Destroying) => State::Destroyed,
        _ => State::Ended,
    }
}

fn of_processes((state, remark): super::group_tier::Told) -> Look {
    Look {
        state,
        leaf: LeafSeen::None,
        populated: None,
        remark,
    }
}

/// Its record, where its processes in this boot are all that there is to be looked at.
fn kept_by_processes(session: &Session) -> Option<&Record> {
    let record = session.record()?;
    let former = BootId::current().is_ok_and(|boot| boot != record.maker.boot_id);
    (session.tier() == Tier::Group && record.group.is_some() && !former).then_some(record)
}

/// A record without a leaf: its maker has not come so far, has failed, or there is no leaf in its tier.
fn without_leaf(session: &Session) -> State {
    let Some(record) = session.record() else {
        return State::Unknown;
    };
    let former = BootId::current().is_ok_and(|boot| boot != record.maker.boot_id);
    match record.phase {
        _ if former => over(session, Some(record.phase)),
        Phase::Destroyed => State::Destroyed,
        Phase::Ended => State::Ended,
        Phase::Intent if record.maker.may_live() => State::Starting,
        Phase::Intent => State::Ended,
        Phase::Destroying if record.tier == Tier::Cgroup => State::Destroyed,
        Phase::Destroying => State::Destroying,
        Phase::Running => State::Unknown,
    }
}

fn has_living_strays(session: &Session) -> bool {
    let strays = session.record().map(|record| record.strays.as_slice());
    strays.is_some_and(|strays| !strays::recorded(strays).is_empty())
}

fn maker_may_live(session: &Session) -> bool {
    session
        .record()
        .is_some_and(|record| record.maker.may_live())
}
