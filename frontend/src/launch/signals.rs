//! The signals of a process that stands in for a program: what processes send is passed on, what the terminal sends the
//! program has already (DESIGN 4).

use std::cell::{Cell, OnceCell};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use cgleaf_shared::attestation::Attestation;
use cgleaf_shared::process::{Pid, Proc, State};
use nix::sys::signal::{SigEvent, SigSet, SigevNotify, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;

use super::exec::restore_signals;
use super::waker::Waker;
use crate::client::Deadline;
use crate::client::interest::Interest;
use crate::error::{Code, OrCode, Result};
use crate::sys::{self, Disposition};

/// Signals that say that this very process did something wrong: they are not for the program.
const OWN_FAULTS: [Signal; 7] = [
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGTRAP,
    Signal::SIGSYS,
    Signal::SIGABRT,
];

/// What people and service managers end a process with.
const ENDING: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// All other signals, blocked and read as data; so none of them stops or ends this process before it has looked, and none
/// is lost between two calls.
#[derive(Debug)]
pub(super) struct Signals {
    fd: SignalFd,
    mask_before: SigSet,
    child_before: Disposition,
    interrupted: Cell<bool>,
    alarm: OnceCell<(Deadline, Option<Timer>)>,
    /// Who has continued this process last, of itself.
    waker: Cell<Option<Pid>>,
}

impl Signals {
    /// Takes them. SIGCHLD gets its default too: where it is ignored, the kernel throws a child's exit status away.
    ///
    /// # Errors
    /// INTERNAL if they cannot be blocked or read.
    pub(super) fn take() -> Result<Self> {
        let mut mask = SigSet::all();
        for signal in OWN_FAULTS {
            mask.remove(signal);
        }
        let mut before = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&mask), Some(&mut before))
            .or_code(Code::Internal)?;
        let child_before = sys::disposition(libc::SIGCHLD);
        sys::set_disposition(libc::SIGCHLD, Disposition::Default);
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self {
            fd: SignalFd::with_flags(&mask, flags).or_code(Code::Internal)?,
            mask_before: before,
            child_before,
            interrupted: Cell::new(false),
            alarm: OnceCell::new(),
            waker: Cell::new(None),
        })
    }

    /// Has this process go on by then, should it be stopped: a stopped one sees no time pass. The kernel continues it as it
    /// makes a SIGCONT (signal(7)); it makes one each second from then on, since one may come just before the stop.
    pub(super) fn wake_at(&self, deadline: Deadline) {
        let wake = SigevNotify::SigevSignal {
            signal: Signal::SIGCONT,
            si_value: 0,
        };
        let left = deadline.left().unwrap_or_default();
        let times = Expiration::IntervalDelayed(
            left.max(Duration::from_millis(1)).into(),
            Duration::from_secs(1).into(),
        );
        let timer = Timer::new(ClockId::CLOCK_MONOTONIC, SigEvent::new(wake)).and_then(|mut it| {
            it.set(times, TimerSetTimeFlags::empty())?;
            Ok(it)
        });
        let _ = self.alarm.set((deadline, timer.ok()));
    }

    fn time_is_over(&self) -> bool {
        let alarm = self.alarm.get();
        alarm.is_some_and(|(deadline, _)| deadline.left().is_none())
    }

    /// The program was stopped by this signal: so is this process, and a shell sees its job stopped by it. It comes back when
    /// this process is continued, or the program is, or has ended; `keeper` is whose end this process has to see too. A stop
    /// that is told of when it is over already stops nobody.
    ///
    /// Whether the program is to be continued too: nobody has, and it still has time.
    pub(super) fn stop_too(&self, leader: Pid, keeper: Option<Pid>, by: Signal) -> bool {
        // In a /proc of other numbers nobody can be looked at.
        let can_look = Proc::system().is_ok_and(|proc| proc.is_own());
        if !self.time_is_over() && (is_stopped(leader) || !can_look) {
            let waker = can_look.then(|| Waker::new(leader, keeper)).flatten();
            self.waker.set(waker.as_ref().map(Waker::pid));
            stop_by(by);
        }
        is_stopped(leader) && !self.time_is_over()
    }

    /// While this is held, a wait for a helper ends when a signal comes that ends this process once it has
    /// [given back](Self::give_back) its signals.
    ///
    /// # Errors
    /// INTERNAL if it cannot be read as data.
    pub(super) fn interest(&self) -> Result<Interest> {
        let mut fatal = SigSet::empty();
        for signal in ENDING {
            // One that this process was started with as blocked or ignored does not end it.
            let spared = self.mask_before.contains(signal)
                || sys::disposition(signal as i32) == Disposition::Ignore;
            if !spared {
                fatal.add(signal);
            }
        }
        let fd = SignalFd::with_flags(&fatal, SfdFlags::SFD_CLOEXEC).or_code(Code::Internal)?;
        let owned = fd.as_fd().try_clone_to_owned().or_code(Code::Internal)?;
        Ok(Interest::until_readable(owned))
    }

    /// Puts everything back as this process was started with, for a program or for what it does by itself.
    pub(super) fn give_back(&self) {
        restore_signals();
        sys::set_disposition(libc::SIGCHLD, self.child_before);
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.mask_before), None);
    }

    /// The next one that is waiting, and is not this process's own.
    pub(super) fn next(&self) -> Option<siginfo> {
        let mut info = self.fd.read_signal().ok().flatten()?;
        while self.is_wakers(&info) {
            info = self.fd.read_signal().ok().flatten()?;
        }
        let by_terminal = info.ssi_code == libc::SI_KERNEL;
        if by_terminal && info.ssi_signo == libc::SIGINT.unsigned_abs() {
            self.interrupted.set(true);
        }
        Some(info)
    }

    fn is_wakers(&self, info: &siginfo) -> bool {
        let sender = i32::try_from(info.ssi_pid).ok().and_then(Pid::new);
        info.ssi_signo == libc::SIGCONT.unsigned_abs()
            && sender.is_some()
            && sender == self.waker.get()
    }

    /// Ends this process by SIGINT, if a terminal interrupted it. A shell goes on with a loop or a list unless what it ran
    /// died of that signal; an exit status of 130 says that the program has dealt with it.
    pub(super) fn die_if_interrupted(&self) {
        if self.interrupted.get() {
            sys::set_disposition(libc::SIGINT, Disposition::Default);
            let _ = kill(nix::unistd::getpid(), Signal::SIGINT);
            let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None);
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The signal that the leader is to be sent, if this is one that it does not have yet.
pub(super) fn for_the_leader(
    info: &siginfo,
    leader: Pid,
    leaf: Option<&Attestation>,
) -> Option<i32> {
    let number = i32::try_from(info.ssi_signo).ok()?;
    if number == libc::SIGCHLD {
        return None;
    }
    if info.ssi_code == libc::SI_TIMER {
        // Our own, which has woken this process.
        return None;
    }
    if info.ssi_code == libc::SI_KERNEL {
        // A terminal that goes away tells its session's leader alone, and leaves the rest to that.
        return (number == libc::SIGHUP && leads_its_session()).then_some(number);
    }
    if number == libc::SIGCONT {
        // A shell continues the whole group, the leader with it.
        return is_stopped(leader).then_some(number);
    }
    let sender = i32::try_from(info.ssi_pid).ok().and_then(Pid::new);
    // Sent by the session itself, to its whole group: the leader has it, or has sent it.
    let its_own = sender.is_some_and(|sender| sender == leader || is_in(sender, leaf));
    (!its_own).then_some(number)
}

/// Ends this process, which only waits, if the signal is one that ends processes. The session goes on: a service manager
/// ends what is left of the unit in which `start` was called, and the session is no part of that.
pub(super) fn end_if_told(info: &siginfo) {
    let number = i32::try_from(info.ssi_signo).unwrap_or(0);
    let harmless = [
        libc::SIGCHLD,
        libc::SIGCONT,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGURG,
        libc::SIGWINCH,
    ];
    if !harmless.contains(&number) {
        sys::exit_now(0);
    }
}

/// Whether this process leads its POSIX session, as the first program in a new terminal does.
fn leads_its_session() -> bool {
    nix::unistd::getsid(None) == Ok(nix::unistd::getpid())
}

/// Whether a process was stopped by a signal.
pub(super) fn is_stopped(process: Pid) -> bool {
    Proc::system()
        .and_then(|proc| proc.process(process))
        .and_then(|directory| directory.stat())
        .is_ok_and(|stat| matches!(stat.state, State::Stopped))
}

/// Whether a process is in a leaf or beneath it.
fn is_in(process: Pid, leaf: Option<&Attestation>) -> bool {
    let Some(leaf) = leaf else { return false };
    let place = Proc::system()
        .and_then(|proc| proc.process(process))
        .and_then(|directory| directory.cgroup());
    place.is_ok_and(|place| place.is_ok_and(|path| path.is_within(&leaf.leaf_path)))
}

/// Stops this process as that signal does.
fn stop_by(by: Signal) {
    let own = nix::unistd::getpid();
    let ignored = sys::disposition(by as i32) == Disposition::Ignore;
    if by == Signal::SIGSTOP || ignored {
        let _ = kill(own, Signal::SIGSTOP);
        return;
    }
    let mut only = SigSet::empty();
    only.add(by);
    // It is delivered as it is unblocked.
    let _ = kill(own, by);
    let _ = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&only), None);
    let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&only), None);
}
