//! What a destroy says of those whom it could not end: who they are, and what it could not do to them.

use std::time::{Duration, Instant};

use cgleaf_shared::id::Uid;
use cgleaf_shared::process::Proc;
use nix::errno::Errno;
use nix::sys::signal::kill;

use super::crowd::Person;
use super::destroy::{DestroyReport, Outcome};
use super::held::Held;
use super::identity::GroupIdentity;
use super::members::{Member, Tie, member, members};

/// How long those are waited for to whom nothing could be sent: they may end since what was killed was theirs. Between two looks
/// for them, too.
pub(super) const UNREACHED: Duration = Duration::from_millis(250);

/// Whether only processes live that this user may not signal: what was sent has reached nobody who is left.
pub(super) fn only_others_live(proc: &Proc, identity: &GroupIdentity) -> bool {
    let others = |seen: Vec<Member>| !seen.is_empty() && seen.iter().all(is_anothers);
    proc.is_own() && members(proc, identity).is_ok_and(others)
}

/// EPERM (kill(2)) is answered for a process of another user, and by signal 0 without touching it.
fn is_anothers(member: &Member) -> bool {
    let pid = nix::unistd::Pid::from_raw(member.id.pid.get());
    kill(pid, None) == Err(Errno::EPERM)
}

/// Waits for the monitor's end while it can come; `false` if it has not.
///
/// # Errors
/// What poll(2) answers.
pub(super) fn wait_for_monitor(
    proc: &Proc,
    identity: &GroupIdentity,
    monitor: &Held<'_>,
    limit: Duration,
) -> std::io::Result<bool> {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if monitor.wait_for_end(left.min(UNREACHED))? {
            return Ok(true);
        }
        if left.is_zero() || only_others_live(proc, identity) {
            return Ok(false);
        }
    }
}

impl DestroyReport {
    /// Adds to what could not be proven who is in the way of it, where that is seen.
    pub(super) fn explain(&mut self, proc: &Proc, identity: &GroupIdentity) {
        let Outcome::Partial(why) = &mut self.outcome else {
            return;
        };
        if !proc.is_own() {
            return;
        }
        let living = self.alive.iter().chain(&self.strays);
        let others: Vec<String> = living
            .filter(|member| is_anothers(member))
            .map(|member| named(proc, member))
            .collect();
        if !others.is_empty() {
            *why = format!(
                "{why}; this user (uid {}) may not signal {} (EPERM), which was neither stopped nor killed: end it as its own \
                 user, or as root",
                Uid::effective(),
                others.join(", ")
            );
        }
        if self.alive.is_empty() {
            self.unproven = in_its_group(proc, identity);
            let strays = &self.strays;
            self.unproven
                .retain(|one| strays.iter().all(|stray| stray.id != one.id));
        }
    }
}

fn named(proc: &Proc, member: &Member) -> String {
    let pid = member.id.pid;
    match proc.process(pid).and_then(|process| process.status()) {
        Ok(status) => format!("process {pid} of uid {}", status.uids.real),
        Err(_) => format!("process {pid}"),
    }
}

/// Those that live and have the group's number, whosever they are.
fn in_its_group(proc: &Proc, identity: &GroupIdentity) -> Vec<Member> {
    let (Some(group), Ok(pids)) = (identity.pgid, proc.pids()) else {
        return Vec::new();
    };
    let person = |pid| Person::read(proc, pid).ok().flatten();
    let people = pids.into_iter().filter_map(person);
    people
        .filter(|person| person.group == Some(group))
        // At most that: nothing else ties them to the session.
        .map(|person| member(proc, &person, Tie::Mark))
        .collect()
}
