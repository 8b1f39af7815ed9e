//! The monitor of `run` and `start`: parent of the program, child subreaper of all that it starts. What is beneath it is
//! the session; the end is ECHILD.
//!
//! `run` itself cannot be this: it may have inherited children that are not the session's (`sleep 30 & exec cgleaf run …`).

use std::collections::HashSet;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use cgleaf_shared::process::{Pid, Proc, ProcessId};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::WaitPidFlag;

use super::channel::{Channel, Order, Received, Report};
use super::tree;
use crate::sys::{self, Change};

/// What a monitor is called, from before it is recorded until its end.
pub(super) const NAME: &CStr = c"cgleaf-monitor";

/// What becomes of what is left when the leader has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftovers {
    /// It is ended.
    Kill,
    /// It goes on, and the monitor stays.
    Keep,
    /// It is waited for.
    Wait,
}

/// How the leader ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// How long SIGKILL is repeated without a pause of more than [`LONGEST_PAUSE`] before the monitor says that it gave up.
/// It stays, goes on reaping, and begins anew when it is asked again.
const KILL_TIME: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// A clock that counts to the end of its numbers would stop.
const LONGEST_GRACE: Duration = Duration::from_secs(1 << 31);

/// What is done at the end, in the monitor's process: the record says how the leader ended, and that all of it has.
pub type OnEnd<'a> = dyn FnMut(Option<Exit>) + 'a;

pub(super) struct Monitor<'a> {
    pub(super) program: Pid,
    pub(super) channel: Option<Channel>,
    pub(super) signals: SignalFd,
    pub(super) leftovers: Leftovers,
    /// What is left is given this time.
    pub(super) grace: Option<Duration>,
    /// Everything was asked to end, and is killed then.
    pub(super) until: Option<Instant>,
    pub(super) die_with_frontend: bool,
    pub(super) exit: Option<Exit>,
    /// It is ended since it outlived the leader.
    pub(super) outlived: bool,
    /// The processes that were ended for that.
    pub(super) ended: HashSet<ProcessId>,
    pub(super) on_end: &'a mut OnEnd<'a>,
}

/// A destroy asks it to end everything.
pub(super) const END: Signal = Signal::SIGTERM;
/// A destroy has asked everything to end by itself, and will say [`END`] when the time for that is over: until then what the
/// leader leaves is let alone. A monitor that does not know this one has it blocked.
pub(super) const WAIT: Signal = Signal::SIGUSR1;

/// The signals that the monitor takes; all others are blocked in it, and it has no terminal.
pub(super) fn monitor_signals() -> SigSet {
    SigSet::from_iter([Signal::SIGCHLD, END, WAIT])
}

pub(super) fn signal_fd() -> io::Result<SignalFd> {
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    Ok(SignalFd::with_flags(&monitor_signals(), flags)?)
}

impl Monitor<'_> {
    /// Serves until nothing of the session is left.
    pub(super) fn run(mut self) {
        loop {
            // Signals before children: who ends behind the look at the children is told of by a SIGCHLD that is still there to
            // be waited for.
            let asked = self.take_signals() | self.take_orders();
            if self.reap() {
                return self.end();
            }
            if self.until.is_none() && self.leftovers_are_to_go() {
                self.outlived = true;
                let asked = self.give_time(self.grace);
                self.ended.extend(asked);
            }
            if asked || self.until.is_some_and(|until| until <= Instant::now()) {
                let killed = self.kill_everything();
                if self.outlived && !asked {
                    self.ended.extend(killed);
                }
                if self.reap() {
                    return self.end();
                }
                self.report(Report::GaveUp);
                // What is left cannot be killed just now: a later order tries again, and everybody who ends is reaped.
                self.leftovers = Leftovers::Wait;
                self.until = None;
            }
            self.wait();
        }
    }

    /// Everything is to end: at once, or first by itself. Who was asked to.
    fn give_time(&mut self, grace: Option<Duration>) -> Vec<ProcessId> {
        let grace = grace.unwrap_or_default().min(LONGEST_GRACE);
        self.until = Some(Instant::now() + grace);
        if grace.is_zero() {
            return Vec::new();
        }
        match own_proc() {
            Some(proc) => tree::ask_all(&proc, Pid::own()).unwrap_or_default(),
            None => {
                self.forward(libc::SIGTERM);
                Vec::new()
            }
        }
    }

    fn end(self) {
        (self.on_end)(self.exit);
        let ended = i32::try_from(self.ended.len()).unwrap_or(i32::MAX);
        self.report(Report::AllEnded(ended));
    }

    fn leftovers_are_to_go(&self) -> bool {
        self.exit.is_some() && self.leftovers == Leftovers::Kill
    }

    /// Reaps all there is; `true` at ECHILD: no child, and so nothing beneath.
    fn reap(&mut self) -> bool {
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED | WaitPidFlag::WCONTINUED;
        loop {
            match sys::wait_child(None, flags) {
                Ok(None) => return false,
                Ok(Some((pid, change))) => self.note(pid, change),
                Err(Errno::ECHILD) => return true,
                // No other answer is possible with these flags (wait(2)); EINTR is none of WNOHANG.
                Err(_) => return false,
            }
        }
    }

    fn note(&mut self, child: Pid, change: Change) {
        if child != self.program {
            return;
        }
        match change {
            Change::Exited(code) => {
                self.exit = Some(Exit::Code(code));
                self.report(Report::Exited(code));
            }
            Change::Signalled(signal) => {
                self.exit = Some(Exit::Signal(signal));
                self.report(Report::Signalled(signal));
            }
            Change::Stopped(signal) => self.report(Report::Stopped(signal)),
            Change::Continued => self.report(Report::Continued),
        }
    }

    /// `true` if everything is to be killed: a destroy asks.
    fn take_signals(&mut self) -> bool {
        let mut asked = false;
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let number = i32::try_from(signal.ssi_signo);
            asked |= number == Ok(END as i32);
            if number == Ok(WAIT as i32) {
                (self.leftovers, self.until) = (Leftovers::Wait, None);
            }
        }
        asked
    }

    /// `true` if everything is to be killed.
    fn take_orders(&mut self) -> bool {
        let mut kill = false;
        while let Some(channel) = &self.channel {
            match channel.next_order() {
                Ok(Received::Message(Order::Signal(signal))) => self.forward(signal),
                Ok(Received::Message(Order::End(milliseconds))) => {
                    let grace = u64::try_from(milliseconds).unwrap_or(0);
                    self.give_time(Some(Duration::from_millis(grace)));
                }
                Ok(Received::Message(Order::Go)) => {}
                Ok(Received::Nothing) => break,
                Ok(Received::Closed) | Err(_) => {
                    self.channel = None;
                    kill |= self.die_with_frontend;
                }
            }
        }
        kill
    }

    /// To the leader, whose number is its own until it is reaped here.
    fn forward(&self, signal: i32) {
        if self.exit.is_none() {
            crate::sys::signal_child(self.program, signal);
        }
    }

    fn report(&self, report: Report) {
        if let Some(channel) = &self.channel {
            channel.report(report);
        }
    }

    /// SIGKILL to all beneath, again and again until ECHILD: what was forked meanwhile comes home as an orphan. Whom it
    /// reached.
    fn kill_everything(&mut self) -> HashSet<ProcessId> {
        let mut all = HashSet::new();
        let Some(proc) = own_proc() else {
            self.forward(libc::SIGKILL);
            return all;
        };
        let deadline = Instant::now() + KILL_TIME;
        let mut pause = Duration::from_micros(50);
        while !self.reap() && Instant::now() < deadline {
            let reached = tree::signal_all(&proc, Pid::own(), libc::SIGKILL).unwrap_or_default();
            if reached.is_empty() {
                self.pause(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
                // The caller and the loop look at the children once more behind this.
                self.take_signals();
            } else {
                pause = Duration::from_micros(50);
                all.extend(reached);
            }
        }
        all
    }

    /// Until a child ends or stops, somebody asks, or the time is over.
    fn wait(&self) {
        let mut fds = vec![self.signals.as_fd()];
        fds.extend(self.channel.as_ref().map(AsFd::as_fd));
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        readable(&fds, self.until.map(left));
    }

    /// Between two kills. There is nothing to be ordered: a channel that hangs up would only spin.
    fn pause(&self, limit: Duration) {
        readable(&[self.signals.as_fd()], Some(limit));
    }
}

/// Until one of them can be read, or the time is over, which is a millisecond at least.
fn readable(fds: &[BorrowedFd<'_>], limit: Option<Duration>) {
    let mut polled: Vec<PollFd<'_>> = fds
        .iter()
        .map(|fd| PollFd::new(*fd, PollFlags::POLLIN))
        .collect();
    let timeout = limit.map_or(PollTimeout::NONE, |limit| {
        PollTimeout::try_from(limit.max(Duration::from_millis(1))).unwrap_or(PollTimeout::MAX)
    });
    let _ = poll(&mut polled, timeout);
}

/// A /proc whose numbers are ours: without it nobody but the leader can be found.
fn own_proc() -> Option<Proc> {
    Proc::system().ok().filter(Proc::is_own)
}
