//! Ends a session of the group tier: by its monitor, by its own group, or, without either, its leader alone.

use std::time::{Duration, Instant};

use cgleaf_shared::process::liveness::{self, Liveness};
use cgleaf_shared::process::{Proc, ProcessId, ReadError};

use super::engine::{Answer, Destroy, Doubt, Refusal};
use super::guards::AllGuards;
use super::held::Held;
use super::identity::{GroupIdentity, NOT_OF_HERE};
use super::living::{only_others_live, wait_for_monitor};
use super::look::unfit;
use super::members::{Member, Tie, members, signal_member};
use super::monitor::{END, WAIT};
use super::procfs::ProcfsKernel;
use super::search::Search;
use super::tree;
use crate::operations;

/// What is done about processes of the session outside its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrayPolicy {
    /// They are named.
    Name,
    /// Those that are proven to be the session's are ended; the marked ones are named.
    Kill,
    /// They are not looked for.
    Ignore,
}

/// How a session is to be ended.
pub struct DestroyOptions<'a> {
    /// How long to wait for the end after SIGKILL.
    pub timeout: Duration,
    /// SIGTERM first, and this long to end by itself.
    pub grace: Option<Duration>,
    /// What to do about strays.
    pub strays: StrayPolicy,
    /// Does the record say that the monitor saw the end (`on_end` was called)? Asked after the monitor has gone.
    pub end_recorded: &'a dyn Fn() -> bool,
}

/// How it came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Proven ended.
    Ended,
    /// It lives or may live. Why, for people.
    Partial(String),
    /// The record's numbers are not the session's (any more): nothing was signalled.
    Refused(String),
}

/// What a destroy did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestroyReport {
    /// How it came out. `Ended` with strays is to be answered as PARTIAL.
    pub outcome: Outcome,
    /// How many lived at the beginning and have ended.
    pub ended: usize,
    /// Processes of the session outside its group that live.
    pub strays: Vec<Member>,
    /// Members that live: who must be named with PARTIAL.
    pub alive: Vec<Member>,
    /// Those that have its group's number, where no member is seen: none is proven to be one.
    pub unproven: Vec<Member>,
}

/// Looks for strays after the end that must show nobody, one after the other: a chain of forks is missed by one look.
const STRAY_LOOKS: u32 = 5;
/// As many looks there are in all: a chain of forks can be killed link by link, and go on.
const MOST_LOOKS: u32 = 20;
/// In so many looks one after the other somebody is seen who has ended before he can be named: somebody follows him. One who was
/// just ending is seen in one look, and in the next ones nobody.
const VANISHED: u32 = 3;

/// Ends a session. Its tombstone is laid and its record says `destroying` before this.
///
/// Called from within the session it ends the caller too, and does not return.
///
/// # Errors
/// If /proc cannot be read at all: nothing was signalled.
pub fn destroy(
    identity: &GroupIdentity,
    options: &DestroyOptions<'_>,
) -> Result<DestroyReport, ReadError> {
    let proc = Proc::system()?;
    if let Some(why) = unfit(&proc, identity)? {
        return Ok(DestroyReport::new(Outcome::Refused(why)));
    }
    let before = members(&proc, identity)?;
    let outcome = match identity.monitor {
        Some(monitor) => end_by_monitor(&proc, identity, monitor, options, &before),
        None => end_without_monitor(&proc, identity, options, &before),
    };
    let mut report = DestroyReport::new(outcome);
    report.name_the_living(&proc, identity, &before, options.strays)?;
    // In another pid namespace's /proc their numbers are others'.
    let ended = |member: &&Member| proc.is_own() && liveness::of(&proc, member.id).is_dead();
    report.ended = before.iter().filter(ended).count();
    report.explain(&proc, identity);
    Ok(report)
}

impl DestroyReport {
    fn new(outcome: Outcome) -> DestroyReport {
        DestroyReport {
            outcome,
            ended: 0,
            strays: Vec::new(),
            alive: Vec::new(),
            unproven: Vec::new(),
        }
    }

    /// Tells members from strays among those who live, and ends the strays that are proven and may be ended.
    fn name_the_living(
        &mut self,
        proc: &Proc,
        identity: &GroupIdentity,
        before: &[Member],
        policy: StrayPolicy,
    ) -> Result<(), ReadError> {
        let refused = matches!(self.outcome, Outcome::Refused(_));
        let mut search = Search::new(proc, identity, before, policy);
        let (mut quiet, mut vanished) = (0, 0);
        for _ in 0..MOST_LOOKS {
            let seen = search.look()?.into_iter();
            (self.alive, self.strays) = seen.partition(|member| member.is_of_its_group(identity));
            if self.outcome == Outcome::Ended && !self.alive.is_empty() {
                self.outcome =
                    partial("its end was proven, and yet a member was seen alive behind it");
                return Ok(());
            }
            match policy {
                StrayPolicy::Ignore => self.strays.clear(),
                StrayPolicy::Kill if !refused => end_proven(proc, &self.strays),
                StrayPolicy::Name | StrayPolicy::Kill => {}
            }
            let lives = |stray: &Member| !liveness::of(proc, stray.id).is_dead();
            let is_certain = vanished + 1 == VANISHED || self.strays.iter().any(lives);
            let named = policy == StrayPolicy::Name && !self.strays.is_empty() && is_certain;
            if refused || policy == StrayPolicy::Ignore || named {
                return Ok(());
            }
            (quiet, vanished) = match self.strays.is_empty() {
                true => (quiet + 1, 0),
                false => (0, vanished + 1),
            };
            if quiet == STRAY_LOOKS {
                break;
            }
            std::thread::sleep(Duration::from_millis(1 << quiet));
        }
        if self.outcome == Outcome::Ended && search.some_are_unread && self.strays.is_empty() {
            self.outcome = partial(
                "its group has ended; but not all processes that were made meanwhile could be read, and one that had left the \
                 group may be among them",
            );
        }
        Ok(())
    }
}

fn end_proven(proc: &Proc, strays: &[Member]) {
    for stray in strays.iter().filter(|stray| stray.tie == Tie::Proven) {
        let _ = signal_member(proc, stray.id, libc::SIGKILL);
    }
}

/// The monitor is asked, and its end is waited for: it ends only at ECHILD, and has that recorded.
fn end_by_monitor(
    proc: &Proc,
    identity: &GroupIdentity,
    monitor: ProcessId,
    options: &DestroyOptions<'_>,
    before: &[Member],
) -> Outcome {
    match liveness::of(proc, monitor) {
        Liveness::Alive => match ask_monitor(proc, identity, monitor, options) {
            // Who was to be asked was asked.
            Ok(true) => after_monitor(proc, identity, options, &[]),
            Ok(false) => Outcome::Partial(format!(
                "its monitor, process {}, has been asked to end everything and has not seen the end in the time there is",
                monitor.pid
            )),
            Err(error) => Outcome::Partial(format!(
                "its monitor, process {}, cannot be asked: {error}",
                monitor.pid
            )),
        },
        Liveness::Dead => after_monitor(proc, identity, options, before),
        Liveness::Unknown(why) => Outcome::Partial(format!(
            "whether its monitor is alive cannot be told: {why}"
        )),
    }
}

fn ask_monitor(
    proc: &Proc,
    identity: &GroupIdentity,
    monitor: ProcessId,
    options: &DestroyOptions<'_>,
) -> std::io::Result<bool> {
    let Some(held) = Held::open(proc, monitor)? else {
        return Ok(true);
    };
    if let Some(grace) = options.grace {
        operations::tell_signal(monitor.pid, WAIT as i32);
        if !held.send_signal(WAIT as i32)? {
            return Ok(true);
        }
        let _ = tree::ask_all(proc, monitor.pid);
        if held.wait_for_end(grace)? {
            return Ok(true);
        }
    }
    operations::tell_signal(monitor.pid, END as i32);
    if !held.send_signal(END as i32)? {
        return Ok(true);
    }
    // Somebody may have stopped it, as a terminal's job control does, or `kill -STOP`.
    operations::tell_signal(monitor.pid, libc::SIGCONT);
    held.send_signal(libc::SIGCONT)?;
    wait_for_monitor(proc, identity, &held, options.timeout)
}

/// The monitor has gone. If it had the end recorded, that is the proof, unless a member is seen all the same; else somebody
/// killed it, and its orphans went to PID 1: what is left is proven as far as a group goes.
fn after_monitor(
    proc: &Proc,
    identity: &GroupIdentity,
    options: &DestroyOptions<'_>,
    before: &[Member],
) -> Outcome {
    let is_seen = |seen: Vec<Member>| seen.iter().any(|one| one.is_of_its_group(identity));
    if (options.end_recorded)() && !members(proc, identity).is_ok_and(is_seen) {
        return Outcome::Ended;
    }
    match end_without_monitor(proc, identity, options, before) {
        Outcome::Partial(why) => {
            Outcome::Partial(format!("its monitor was ended by somebody else; {why}"))
        }
        other => other,
    }
}

fn end_without_monitor(
    proc: &Proc,
    identity: &GroupIdentity,
    options: &DestroyOptions<'_>,
    before: &[Member],
) -> Outcome {
    match ProcfsKernel::new(proc, identity, options.timeout) {
        Some(mut kernel) => {
            if let Some(grace) = options.grace {
                ask_group(proc, identity, before, grace);
            }
            match Destroy::<AllGuards>::default().run(&mut kernel) {
                Answer::Alive(Doubt::NotEndedYet) if only_others_live(proc, identity) => {
                    partial("whom this user may signal was killed, and others live")
                }
                answer => outcome_of(answer),
            }
        }
        None => end_leader(proc, identity, options),
    }
}

/// SIGTERM and SIGCONT to every member of the group that is proven, as the engine proves them; and time to end.
fn ask_group(proc: &Proc, identity: &GroupIdentity, before: &[Member], grace: Duration) {
    let is_own = |member: &&Member| {
        let by_mark = identity.autogroup.is_none();
        member.group == identity.pgid && (by_mark || member.tie == Tie::Proven)
    };
    for signal in [libc::SIGTERM, libc::SIGCONT] {
        for member in before.iter().filter(is_own) {
            let _ = signal_member(proc, member.id, signal);
        }
    }
    // Who tidies up may have others do it.
    wait_until(grace, || {
        members(proc, identity).is_ok_and(|now| !now.iter().any(|member| is_own(&member)))
    });
}

/// Looks again and again until it is so, or the time is over.
fn wait_until(limit: Duration, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    while !is_so() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

fn partial(why: &str) -> Outcome {
    Outcome::Partial(why.to_owned())
}

fn outcome_of(answer: Answer) -> Outcome {
    match answer {
        Answer::Ended => Outcome::Ended,
        Answer::Alive(Doubt::StoppedAndUnreadable) => partial(
            "whose the processes of its group are cannot be read (/proc/PID/autogroup), also not while they stand still: none was \
             killed, and they are as they were",
        ),
        Answer::Alive(Doubt::ForeignProc) => partial(
            "/proc is that of another pid namespace, whose numbers are others' here: nobody can be recognised by them, nothing was \
             signalled",
        ),
        Answer::Alive(Doubt::NotProven) => partial(
            "its group is there, and no look, frozen or not, showed a member that is proven to be its own",
        ),
        Answer::Alive(Doubt::NotEndedYet) => {
            partial("it was killed, and has not ended in the time there is")
        }
        Answer::Alive(Doubt::NotPermitted) => partial(
            "this user may not signal any of its members, or is one of them and would stop itself",
        ),
        Answer::Refused(Refusal::OtherBoot) => Outcome::Refused(NOT_OF_HERE.to_owned()),
        Answer::Refused(Refusal::Unproven) => Outcome::Refused(
            "the number of its group belongs to processes that are not its own".to_owned(),
        ),
    }
}

/// No group was recorded: it would have been a shell's. The leader is proven by its start, and what is beneath it by
/// parentage; what it had left to others before cannot be seen.
fn end_leader(proc: &Proc, identity: &GroupIdentity, options: &DestroyOptions<'_>) -> Outcome {
    let unseen = "it had no process group of its own, so that what it started and left to others cannot be accounted for \
                  (`cgleaf gc` takes the record away once its leader has ended and nobody with its mark is seen)";
    let Some(leader) = identity.leader() else {
        return Outcome::Partial(format!(
            "its leader cannot be told from another process; {unseen}"
        ));
    };
    if !leader.pid.may_be_signalled() {
        return Outcome::Partial(format!(
            "its leader is the first process of this pid namespace, and all others are beneath it; {unseen}"
        ));
    }
    match liveness::of(proc, leader) {
        Liveness::Unknown(why) => return Outcome::Partial(format!("{why}; {unseen}")),
        Liveness::Dead => return Outcome::Partial(format!("its leader has ended; {unseen}")),
        Liveness::Alive => {}
    }
    match kill_leader(proc, leader, options) {
        Ok(true) => Outcome::Partial(format!(
            "its leader and what was beneath it have been ended; {unseen}"
        )),
        Ok(false) => Outcome::Partial(format!(
            "its leader was killed and has not ended yet; {unseen}"
        )),
        Err(error) => Outcome::Partial(format!(
            "its leader, process {}, cannot be ended: {error}",
            leader.pid
        )),
    }
}

fn kill_leader(
    proc: &Proc,
    leader: ProcessId,
    options: &DestroyOptions<'_>,
) -> std::io::Result<bool> {
    let Some(held) = Held::open(proc, leader)? else {
        return Ok(true);
    };
    let mut asked = Vec::new();
    if let Some(grace) = options.grace {
        asked = tree::ask_all(proc, leader.pid).unwrap_or_default();
        for signal in [libc::SIGTERM, libc::SIGCONT] {
            operations::tell_signal(leader.pid, signal);
            held.send_signal(signal)?;
        }
        let all = || asked.iter().copied().chain([leader]);
        wait_until(grace, || all().all(|it| liveness::of(proc, it).is_dead()));
    }
    // While the leader lives, what is beneath it stays there: it goes last.
    for _ in 0..LOOKS_BENEATH {
        match tree::signal_all(proc, leader.pid, libc::SIGKILL) {
            Ok(reached) if !reached.is_empty() => std::thread::sleep(Duration::from_micros(200)),
            _ => break,
        }
    }
    // Where it has ended first, they were beneath it when they were asked.
    for process in asked {
        let _ = signal_member(proc, process, libc::SIGKILL);
    }
    operations::tell_signal(leader.pid, libc::SIGKILL);
    held.send_signal(libc::SIGKILL)?;
    held.wait_for_end(options.timeout)
}

const LOOKS_BENEATH: u32 = 50;
