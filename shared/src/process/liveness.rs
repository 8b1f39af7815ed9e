//! Is it alive? The one place that answers this, for a process and for a process group.
//!
//! `kill(pid, 0)` is no answer: it succeeds on a zombie, and under a PID 1 that never reaps a zombie stays for ever. The
//! only signal-0 probe is [`probe_group`], and what it may prove stands there.

use std::io;

use nix::errno::Errno;
use nix::sys::signal::killpg;

use super::directory::ProcessDir;
use super::identity::{Pid, ProcessId};
use super::pidfd::{Pidfd, PidfdError};
use super::reader::{Proc, ProcView, ReadError};
use super::stat::State;
use crate::id::BootId;

/// What is known about a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It runs, in one of its threads at least.
    Alive,
    /// It has ended: it is a zombie without a running thread, or reaped, or its number belongs to a later process.
    Dead,
    /// Something has this number and cannot be told from it. Why is said, for a report.
    Unknown(String),
}

impl Liveness {
    /// Is this the proof of its end? An unknown answer is none.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        matches!(self, Liveness::Dead)
    }
}

/// Is this process of this boot and this pid namespace alive?
///
/// The caller has compared the boot id: a process of an earlier boot is dead, whatever has its number now
/// ([`recorded`] does both). By pidfd where there is one, else by pid and start ticks; EPERM means that somebody is
/// there.
#[must_use]
pub fn of(proc: &Proc, process: ProcessId) -> Liveness {
    match Pidfd::open(process.pid) {
        Ok(held) => of_held(proc, &held, process),
        Err(PidfdError::Gone(_)) => Liveness::Dead,
        // The number is a thread's, or its owner was reaped a moment ago: /proc tells these apart.
        Err(PidfdError::NotAProcess(_) | PidfdError::Unavailable(_)) => by_start(proc, process),
        Err(error @ PidfdError::Failed(..)) => match by_start(proc, process) {
            Liveness::Unknown(reason) => Liveness::Unknown(format!("{error}; {reason}")),
            known => known,
        },
    }
}

/// As [`of`], for what a record says: also dead if it was recorded in another boot.
#[must_use]
pub fn recorded(proc: &Proc, process: ProcessId, boot_id: BootId) -> Liveness {
    match proc.boot_id() {
        Ok(now) if now != boot_id => Liveness::Dead,
        Ok(_) => of(proc, process),
        Err(error) => Liveness::Unknown(error.to_string()),
    }
}

/// The process that a pidfd holds: alive only if poll(2) says so, and only if it is the recorded one.
fn of_held(proc: &Proc, held: &Pidfd, process: ProcessId) -> Liveness {
    match held.is_alive() {
        Ok(false) => return Liveness::Dead,
        Ok(true) => {}
        Err(error) => {
            return Liveness::Unknown(format!("cannot poll the pidfd of {}: {error}", process.pid));
        }
    }
    if let Some(unknown) = by_other_numbers(proc) {
        return unknown;
    }
    match start_matches(proc, process) {
        Ok(true) => Liveness::Alive,
        Ok(false) => Liveness::Dead,
        // It was there a moment ago. If it still is, then /proc hides it, and nothing says whose number this is.
        Err(error) => match held.is_alive() {
            Ok(false) => Liveness::Dead,
            _ => Liveness::Unknown(format!("process {} is there, but {error}", process.pid)),
        },
    }
}

/// Without a pidfd: the start ticks name it, the states of its threads say whether it runs.
fn by_start(proc: &Proc, process: ProcessId) -> Liveness {
    let directory = match proc.process(process.pid) {
        Ok(directory) => directory,
        Err(error) => return from_absence(proc, process.pid, &error),
    };
    let stat = match directory.stat() {
        Ok(stat) => stat,
        Err(error) => return from_absence(proc, process.pid, &error),
    };
    if let Some(unknown) = by_other_numbers(proc) {
        return unknown;
    }
    if stat.id != process {
        return Liveness::Dead;
    }
    match runs(&directory, stat.state) {
        Ok(true) => Liveness::Alive,
        Ok(false) => Liveness::Dead,
        Err(error) => from_absence(proc, process.pid, &error),
    }
}

/// A process that is not in `/proc` is dead only if this `/proc` would show it.
fn from_absence(proc: &Proc, pid: Pid, error: &ReadError) -> Liveness {
    if !error.is_gone() {
        return Liveness::Unknown(error.to_string());
    }
    if let Some(unknown) = by_other_numbers(proc) {
        return unknown;
    }
    match proc.hides_processes() {
        Ok(false) => Liveness::Dead,
        Ok(true) => Liveness::Unknown(format!("/proc may hide process {pid} (hidepid)")),
        Err(error) => Liveness::Unknown(error.to_string()),
    }
}

/// A `/proc` that numbers processes in another way says something of somebody else, or nothing.
fn by_other_numbers(proc: &Proc) -> Option<Liveness> {
    match proc.view() {
        Ok(ProcView::Own) => None,
        Ok(ProcView::Foreign) => Some(Liveness::Unknown(
            "/proc belongs to another pid namespace".to_owned(),
        )),
        Err(error) => Some(Liveness::Unknown(error.to_string())),
    }
}

fn start_matches(proc: &Proc, process: ProcessId) -> Result<bool, ReadError> {
    Ok(proc.process(process.pid)?.stat()?.id == process)
}

/// Does a process run whose main thread is in this state? A zombie does if one of its other threads runs.
///
/// # Errors
/// If its threads cannot be read; [`ReadError::Gone`] if it was reaped meanwhile, which means no.
pub fn runs(directory: &ProcessDir, main_thread: State) -> Result<bool, ReadError> {
    Ok(!running_threads(directory, main_thread)?.is_empty())
}

/// The states of those threads of a process that have not ended. One entry for a main thread that runs: its other threads
/// are asked only when it has ended.
///
/// # Errors
/// As [`runs`].
pub fn running_threads(
    directory: &ProcessDir,
    main_thread: State,
) -> Result<Vec<State>, ReadError> {
    if !main_thread.is_over() {
        return Ok(vec![main_thread]);
    }
    let mut states = Vec::new();
    for thread in directory.threads()? {
        states.extend(
            directory
                .thread_state(thread)?
                .filter(|state| !state.is_over()),
        );
    }
    Ok(states)
}

/// What a signal-0 probe of a process group finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupProbe {
    /// ESRCH: no process has this group, not even a zombie. The only proof of the end that a probe can give.
    Gone,
    /// Something has it: a running member, or a zombie, or (EPERM) somebody whom we may not signal.
    Found,
}

/// Probes a process group with signal 0 (kill(2)).
///
/// # Errors
/// EINVAL for a number that may never be signalled (1: it would ask for every process there is).
pub fn probe_group(group: Pid) -> io::Result<GroupProbe> {
    if !group.may_be_signalled() {
        return Err(Errno::EINVAL.into());
    }
    match killpg(nix::unistd::Pid::from_raw(group.get()), None) {
        Ok(()) | Err(Errno::EPERM) => Ok(GroupProbe::Found),
        Err(Errno::ESRCH) => Ok(GroupProbe::Gone),
        Err(errno) => Err(errno.into()),
    }
}

/// Is a group over? Its leader must be dead, and no member may run.
///
/// While the leader exists, be it as a zombie, its number is not given to anybody else. Once it is reaped, only a living
/// member keeps the number: a group without either may be a stranger's the next moment.
#[must_use]
pub fn group_is_over(leader: &Liveness, a_member_runs: bool) -> bool {
    leader.is_dead() && !a_member_runs
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use super::super::identity::StartTicks;
    use super::*;

    fn sleeper() -> (Child, ProcessId) {
        let child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .expect("a child");
        let pid = Pid::new(child.id().try_into().expect("a pid")).expect("a pid");
        let stat = Proc::system()
            .expect("/proc")
            .process(pid)
            .expect("its directory")
            .stat()
            .expect("its stat");
        (child, stat.id)
    }

    #[test]
    fn alive_then_a_zombie_then_gone() {
        let proc = Proc::system().expect("/proc");
        let (mut child, id) = sleeper();
        assert_eq!(of(&proc, id), Liveness::Alive);
        assert_eq!(by_start(&proc, id), Liveness::Alive);
        let held = Pidfd::open(id.pid).expect("a pidfd");
        child.kill().expect("SIGKILL");
        while !held.wait(Some(Duration::from_secs(30))).expect("poll") {}
        let state = proc
            .process(id.pid)
            .expect("a zombie's directory")
            .stat()
            .expect("a zombie's stat")
            .state;
        assert_eq!(state, State::Zombie);
        assert_eq!(of(&proc, id), Liveness::Dead);
        assert_eq!(by_start(&proc, id), Liveness::Dead);
        child.wait().expect("its end");
        assert_eq!(of(&proc, id), Liveness::Dead);
        assert_eq!(by_start(&proc, id), Liveness::Dead);
    }

    #[test]
    fn another_start_is_another_process() {
        let proc = Proc::system().expect("/proc");
        let (mut child, id) = sleeper();
        let former = ProcessId {
            start: StartTicks(id.start.0 - 1),
            ..id
        };
        assert_eq!(of(&proc, former), Liveness::Dead);
        assert_eq!(by_start(&proc, former), Liveness::Dead);
        assert_eq!(
            recorded(&proc, id, BootId::from_bytes([7; 16])),
            Liveness::Dead
        );
        assert_eq!(
            recorded(&proc, id, proc.boot_id().expect("a boot id")),
            Liveness::Alive
        );
        child.kill().expect("SIGKILL");
        child.wait().expect("its end");
    }

    #[test]
    fn a_probe_never_means_everybody() {
        assert_eq!(
            probe_group(Pid::INIT).expect_err("kill(-1)").raw_os_error(),
            Some(libc::EINVAL)
        );
        assert_eq!(
            probe_group(Pid::new(i32::MAX).expect("a pid")).expect("an answer"),
            GroupProbe::Gone
        );
        let own = Pid::new(nix::unistd::getpgrp().as_raw()).expect("our group");
        assert_eq!(probe_group(own).expect("an answer"), GroupProbe::Found);
    }

    #[test]
    fn a_group_is_over_when_leader_and_members_are() {
        let unknown = Liveness::Unknown("unreadable".to_owned());
        assert!(group_is_over(&Liveness::Dead, false));
        assert!(!group_is_over(&Liveness::Dead, true));
        assert!(!group_is_over(&Liveness::Alive, false));
        assert!(!group_is_over(&unknown, false));
    }
}
