//! Watching a child: its end, its stops, the signals for it, the time.

use std::os::fd::{AsFd, BorrowedFd};

use cgleaf_shared::attestation::Attestation;
use cgleaf_shared::process::Pid;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};

use super::gate::{Outcome, ParentGate};
use super::signals::{self, Signals};
use crate::client::Deadline;
use crate::records::Exit;
use crate::sys::{self, Change};

/// The leader, a child of this process.
#[derive(Debug)]
pub(super) struct Watch {
    leader: Pid,
    /// Whether this process stands in for it: then it stops when the leader does.
    stands_in: bool,
}

/// What there is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Happened {
    /// The leader has ended, and is reaped.
    Ended(Exit),
    /// The connection that the session's life hangs on has ended.
    LeaseBroke,
    /// The time is over.
    TimeIsOver,
}

impl Watch {
    /// For a process that stands in for the leader.
    pub(super) fn new(leader: Pid) -> Self {
        Self {
            leader,
            stands_in: true,
        }
    }

    /// For one that only waits for its end.
    pub(super) fn from_aside(leader: Pid) -> Self {
        Self {
            leader,
            stands_in: false,
        }
    }

    /// Whom this watches.
    pub(super) fn leader(&self) -> Pid {
        self.leader
    }

    /// Watches until the child has gone through its gate. Signals and stops are dealt with meanwhile, and its end too.
    pub(super) fn until_executed(
        &mut self,
        signals: &Signals,
        leaf: Option<&Attestation>,
        gate: &mut ParentGate,
    ) -> (Outcome, Option<Exit>) {
        loop {
            let ready = wait_for([Some(signals.as_fd()), Some(gate.as_fd())], None);
            if ready[1] {
                return (gate.outcome(), None);
            }
            if let Some(exit) = self.take_signals(signals, leaf) {
                // What it wrote before its end can still be read.
                return match gate.outcome() {
                    Outcome::Through => (Outcome::Through, Some(exit)),
                    failed @ Outcome::Failed(_) => (failed, Some(exit)),
                };
            }
        }
    }

    /// Watches until the leader has ended, whatever else there is.
    pub(super) fn end(&mut self, signals: &Signals, leaf: Option<&Attestation>) -> Exit {
        loop {
            if let Happened::Ended(exit) = self.next(signals, leaf, None, None) {
                return exit;
            }
        }
    }

    /// Watches until there is something to be done.
    pub(super) fn next(
        &mut self,
        signals: &Signals,
        leaf: Option<&Attestation>,
        lease: Option<BorrowedFd<'_>>,
        deadline: Option<Deadline>,
    ) -> Happened {
        loop {
            let ready = wait_for([Some(signals.as_fd()), lease], deadline);
            if let Some(exit) = self.take_signals(signals, leaf) {
                return Happened::Ended(exit);
            }
            if ready[1] {
                return Happened::LeaseBroke;
            }
            if deadline.is_some_and(|deadline| deadline.left().is_none()) {
                return Happened::TimeIsOver;
            }
        }
    }

    /// Deals with every signal that is waiting. The leader's end, if that was among them.
    fn take_signals(&self, signals: &Signals, leaf: Option<&Attestation>) -> Option<Exit> {
        while let Some(info) = signals.next() {
            if !self.stands_in {
                signals::end_if_told(&info);
            } else if let Some(number) = signals::for_the_leader(&info, self.leader, leaf) {
                // A child that was not reaped: its number is its own.
                sys::signal_child(self.leader, number);
            }
        }
        // Several ends and stops may be one SIGCHLD, so the child itself is asked, whatever came.
        self.look_at_the_child(signals)
    }

    fn look_at_the_child(&self, signals: &Signals) -> Option<Exit> {
        let mut flags = WaitPidFlag::WNOHANG;
        flags.set(WaitPidFlag::WUNTRACED, self.stands_in);
        loop {
            let change = sys::wait_child(Some(self.leader), flags);
            match change.map(|changed| changed.map(|(_, how)| how)) {
                Ok(Some(Change::Exited(code))) => return Some(Exit::Code(code)),
                Ok(Some(Change::Signalled(signal))) => return Some(Exit::Signal(signal)),
                Ok(Some(Change::Stopped(by))) => {
                    let by = Signal::try_from(by).unwrap_or(Signal::SIGSTOP);
                    if signals.stop_too(self.leader, None, by) && !self.is_stopped_anew() {
                        sys::signal_child(self.leader, libc::SIGCONT);
                    }
                }
                Err(Errno::EINTR) => {}
                Ok(_) | Err(_) => return None,
            }
        }
    }

    /// Whether a stop waits to be told of that came after the last one: whoever continued this process continued the leader too, and
    /// a ^Z right behind that is not to be undone.
    fn is_stopped_anew(&self) -> bool {
        let leader = nix::unistd::Pid::from_raw(self.leader.get());
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        matches!(waitid(Id::Pid(leader), flags), Ok(WaitStatus::Stopped(..)))
    }
}

/// Waits until one of these can be read or has ended, or the time is over. Which ones.
pub(super) fn wait_for<const N: usize>(
    fds: [Option<BorrowedFd<'_>>; N],
    deadline: Option<Deadline>,
) -> [bool; N] {
    let timeout = match deadline {
        None => PollTimeout::NONE,
        Some(deadline) => {
            PollTimeout::try_from(deadline.left().unwrap_or_default()).unwrap_or(PollTimeout::MAX)
        }
    };
    let mut polled: Vec<PollFd<'_>> = fds
        .iter()
        .flatten()
        .map(|fd| PollFd::new(*fd, PollFlags::POLLIN))
        .collect();
    let mut ready = [false; N];
    if poll(&mut polled, timeout).is_err() {
        return ready;
    }
    let mut results = polled.iter();
    for (at, fd) in fds.iter().enumerate() {
        if fd.is_some() {
            ready[at] = results
                .next()
                .is_some_and(|result| result.any().unwrap_or(false));
        }
    }
    ready
}
