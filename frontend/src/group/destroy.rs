//! Ends a session of the group tier: by its monitor, by its own group, or, without either, its leader alone.

use std::time::{Duration, Instant};

use cgleaf_shared::process::liveness::{self, GroupProbe, Liveness};
use cgleaf_shared::process::{Pid, Proc, ProcessId, ReadError};

use super::engine::{Answer, Destroy, Doubt, Refusal};
use super::guards::AllGuards;
use super::held::Held;
use super::identity::{GroupIdentity, NOT_OF_HERE};
use super::look::unfit;
use super::members::{Member, Tie, members, members_and, signal_member};
use super::newcomers::{Followed, Newcomers};
use super::procfs::ProcfsKernel;
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
    /// Members that were seen alive at the beginning.
    pub seen: usize,
    /// Processes of the session outside its group that live.
    pub strays: Vec<Member>,
    /// Members that live: who must be named with PARTIAL.
    pub alive: Vec<Member>,
}

/// Looks for strays after the end: a chain of forks is missed by one look.
const STRAY_LOOKS: u32 = 5;

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
        return Ok(DestroyReport::new(Outcome::Refused(why), 0));
    }
    let before = members(&proc, identity)?;
    let outcome = match identity.monitor {
        Some(monitor) => end_by_monitor(&proc, identity, monitor, options),
        None => end_without_monitor(&proc, identity, options, &before),
    };
    let mut report = DestroyReport::new(outcome, before.len());
    report.name_the_living(&proc, identity, &before, options)?;
    Ok(report)
}

impl DestroyReport {
    fn new(outcome: Outcome, seen: usize) -> DestroyReport {
        DestroyReport {
            outcome,
            seen,
            strays: Vec::new(),
            alive: Vec::new(),
        }
    }

    /// Tells members from strays among those who live, and ends the strays that are proven and may be ended.
    fn name_the_living(
        &mut self,
        proc: &Proc,
        identity: &GroupIdentity,
        before: &[Member],
        options: &DestroyOptions<'_>,
    ) -> Result<(), ReadError> {
        if matches!(self.outcome, Outcome::Refused(_)) {
            return Ok(());
        }
        // A monitor that saw the end has left nobody to be looked for.
        let mut all_were_read = identity.monitor.is_some() || options.strays == StrayPolicy::Ignore;
        let mut newcomers = Newcomers::new();
        let are_wanted = !all_were_read;
        // Who was proven by its parents then is proven now: they may have ended.
        let known: Vec<ProcessId> = before
            .iter()
            .filter(|member| member.tie == Tie::Proven)
            .map(|member| member.id)
            .collect();
        for look in 0..STRAY_LOOKS {
            let begun = newcomers.begin(proc);
            let mut seen = members_and(proc, identity, &known)?;
            if are_wanted && begun.is_ok() && seen.is_empty() {
                match newcomers.follow(proc, identity) {
                    Ok(Followed::Found(member)) => seen.push(*member),
                    Ok(Followed::Nobody) => all_were_read = true,
                    // What could not be read proves nothing, and is asked again.
                    Ok(Followed::TooMany) | Err(_) => {}
                }
            }
            let (alive, strays) = seen
                .into_iter()
                .partition(|member| member.is_of_its_group(identity));
            (self.alive, self.strays) = (alive, strays);
            if self.outcome == Outcome::Ended && !self.alive.is_empty() {
                let why = "its end was proven, and yet a member was seen alive behind it";
                self.outcome = Outcome::Partial(why.to_owned());
                return Ok(());
            }
            if options.strays == StrayPolicy::Ignore {
                self.strays.clear();
                return Ok(());
            }
            if options.strays == StrayPolicy::Kill {
                for stray in self.strays.iter().filter(|stray| stray.tie == Tie::Proven) {
                    let _ = signal_member(proc, stray.id, libc::SIGKILL);
                }
            } else if !self.strays.is_empty() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1 << look));
        }
        if self.outcome == Outcome::Ended && !all_were_read && self.strays.is_empty() {
            let why = "its group has ended; but not all processes that were made meanwhile could be read, and one that had \
                       left the group may be among them";
            self.outcome = Outcome::Partial(why.to_owned());
        }
        Ok(())
    }
}

/// The monitor is asked, and its end is waited for: it ends only at ECHILD, and has that recorded.
fn end_by_monitor(
    proc: &Proc,
    identity: &GroupIdentity,
    monitor: ProcessId,
    options: &DestroyOptions<'_>,
) -> Outcome {
    match liveness::of(proc, monitor) {
        Liveness::Alive => match ask_monitor(proc, monitor, options) {
            Ok(true) => after_monitor(proc, identity, options),
            Ok(false) => Outcome::Partial(format!(
                "its monitor, process {}, has been asked to end everything and has not seen the end after {:?}",
                monitor.pid, options.timeout
            )),
            Err(error) => Outcome::Partial(format!(
                "its monitor, process {}, cannot be asked: {error}",
                monitor.pid
            )),
        },
        Liveness::Dead => after_monitor(proc, identity, options),
        Liveness::Unknown(why) => Outcome::Partial(format!(
            "whether its monitor is alive cannot be told: {why}"
        )),
    }
}

fn ask_monitor(
    proc: &Proc,
    monitor: ProcessId,
    options: &DestroyOptions<'_>,
) -> std::io::Result<bool> {
    let Some(held) = Held::open(proc, monitor)? else {
        return Ok(true);
    };
    if let Some(grace) = options.grace {
        for signal in [libc::SIGTERM, libc::SIGCONT] {
            let _ = tree::signal_all(proc, monitor.pid, signal);
        }
        if held.wait_for_end(grace)? {
            return Ok(true);
        }
    }
    operations::tell_signal(monitor.pid, libc::SIGTERM);
    if !held.send_signal(libc::SIGTERM)? {
        return Ok(true);
    }
    held.wait_for_end(options.timeout)
}

/// The monitor has gone. If it had the end recorded, that is the proof, unless a member is seen all the same; else somebody
/// killed it, and its orphans went to PID 1: what is left is proven as far as a group goes.
fn after_monitor(proc: &Proc, identity: &GroupIdentity, options: &DestroyOptions<'_>) -> Outcome {
    let is_seen = |seen: Vec<Member>| seen.iter().any(|one| one.is_of_its_group(identity));
    if (options.end_recorded)() && !members(proc, identity).is_ok_and(is_seen) {
        return Outcome::Ended;
    }
    match end_without_monitor(proc, identity, options, &[]) {
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
            if let (Some(grace), Some(group)) = (options.grace, identity.pgid) {
                ask_group(proc, group, before, grace);
            }
            outcome_of(Destroy::<AllGuards>::default().run(&mut kernel))
        }
        None => end_leader(proc, identity, options),
    }
}

/// SIGTERM and SIGCONT to every proven member of the group, and time to end.
fn ask_group(proc: &Proc, group: Pid, before: &[Member], grace: Duration) {
    let own = before
        .iter()
        .filter(|member| member.group == Some(group) && member.tie == Tie::Proven);
    for member in own {
        for signal in [libc::SIGTERM, libc::SIGCONT] {
            let _ = signal_member(proc, member.id, signal);
        }
    }
    let deadline = Instant::now() + grace;
    let mut pause = Duration::from_millis(1);
    while Instant::now() < deadline && !matches!(liveness::probe_group(group), Ok(GroupProbe::Gone))
    {
        std::thread::sleep(pause.min(deadline.saturating_duration_since(Instant::now())));
        pause = (pause * 2).min(Duration::from_millis(50));
        let lives = |member: &&Member| liveness::of(proc, member.id) == Liveness::Alive;
        if !before
            .iter()
            .filter(|member| member.group == Some(group))
            .any(|member| lives(&member))
        {
            return;
        }
    }
}

fn outcome_of(answer: Answer) -> Outcome {
    let partial = |why: &str| Outcome::Partial(why.to_owned());
    match answer {
        Answer::Ended => Outcome::Ended,
        Answer::Alive(Doubt::StoppedAndUnreadable) => partial(
            "its group is stopped, and whose processes these are cannot be read; nothing was signalled",
        ),
        Answer::Alive(Doubt::ForeignProc) => partial(
            "/proc is that of another pid namespace: nobody can be recognised in it, nothing was signalled",
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
    let unseen = "it had no process group of its own, so that what it started and left to others cannot be accounted for";
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
    if let Some(grace) = options.grace {
        for signal in [libc::SIGTERM, libc::SIGCONT] {
            let _ = tree::signal_all(proc, leader.pid, signal);
            operations::tell_signal(leader.pid, signal);
            held.send_signal(signal)?;
        }
        held.wait_for_end(grace)?;
    }
    // While the leader lives, what is beneath it stays there: it goes last.
    for _ in 0..LOOKS_BENEATH {
        match tree::signal_all(proc, leader.pid, libc::SIGKILL) {
            Err(_) => break,
            Ok((reached, _)) if reached.is_empty() => break,
            Ok(_) => std::thread::sleep(Duration::from_micros(200)),
        }
    }
    operations::tell_signal(leader.pid, libc::SIGKILL);
    held.send_signal(libc::SIGKILL)?;
    held.wait_for_end(options.timeout)
}

const LOOKS_BENEATH: u32 = 50;
