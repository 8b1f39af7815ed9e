//! The engine's [`Kernel`] as it really is: /proc, kill(2), the clock.

use std::thread::sleep;
use std::time::{Duration, Instant};

use cgleaf_shared::process::files::environ_value;
use cgleaf_shared::process::liveness::{self, GroupProbe, running_threads};
use cgleaf_shared::process::{Autogroup, Pid, Proc, ProcessDir, ReadError, Stat, State};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};

use super::identity::{GroupIdentity, MARK_VARIABLE};
use super::kernel::{Boot, Delivery, GroupSignal, Kernel, Place, Proof, Reading};
use super::living::{UNREACHED, only_others_live};
use super::thaw::StoppedGroup;
use crate::operations;

/// How long a stop is given to take effect: 30 µs on an idle machine, 400 µs seen.
const SETTLE: Duration = Duration::from_millis(1);

/// The longest pause between two looks for the end of what was killed.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The kernel, as to one recorded group.
pub struct ProcfsKernel<'a> {
    proc: &'a Proc,
    identity: &'a GroupIdentity,
    group: Pid,
    own_proc: bool,
    deadline: Instant,
    pause: Duration,
    /// Until when those are waited for that this user may not signal.
    unreached: Option<Instant>,
    stopped: Option<StoppedGroup>,
    destroy_began: &'a dyn Fn() -> bool,
    #[cfg(feature = "trace")]
    trace: (crate::trace::Role, Option<crate::trace::Started>),
}

impl<'a> ProcfsKernel<'a> {
    /// For the group of a record; `None` if it has none of its own, or one that may never be signalled.
    pub fn new(
        proc: &'a Proc,
        identity: &'a GroupIdentity,
        timeout: Duration,
    ) -> Option<ProcfsKernel<'a>> {
        let group = identity.pgid.filter(|group| group.may_be_signalled())?;
        let own_proc = proc.is_own();
        Some(ProcfsKernel {
            proc,
            identity,
            group,
            own_proc,
            deadline: Instant::now() + timeout,
            pause: Duration::from_micros(200),
            unreached: None,
            stopped: None,
            destroy_began: &|| false,
            #[cfg(feature = "trace")]
            trace: (crate::trace::Role::Destroy, None),
        })
    }

    /// For a gc, which leaves a record alone once a destroy has begun.
    #[must_use]
    pub fn for_gc(mut self, destroy_began: &'a dyn Fn() -> bool) -> ProcfsKernel<'a> {
        self.destroy_began = destroy_began;
        #[cfg(feature = "trace")]
        {
            self.trace.0 = crate::trace::Role::Gc;
        }
        self
    }

    /// An operation of the kernel's begins: the next event starts here.
    fn operation(&mut self) {
        #[cfg(feature = "trace")]
        self.trace.1.get_or_insert_with(crate::trace::started);
    }
}

impl Kernel for ProcfsKernel<'_> {
    fn place(&mut self) -> Place {
        self.operation();
        let here = self.identity.is_of_here(self.proc).unwrap_or(false);
        Place {
            boot: if here { Boot::Same } else { Boot::Other },
            own_proc: self.own_proc,
            hides: self.proc.hides_processes().unwrap_or(true),
        }
    }

    fn list(&mut self) -> Option<Vec<Pid>> {
        self.operation();
        self.proc.pids().ok()
    }

    fn read(&mut self, pid: Pid) -> Reading {
        self.operation();
        if !self.own_proc {
            // Its numbers mean others, and without a freeze a chain of forks keeps out of any scan: it proves nothing.
            return Reading::NoMember;
        }
        read_member(self.proc, self.identity, self.group, pid)
    }

    fn signal(&mut self, signal: GroupSignal) -> Delivery {
        self.operation();
        match signal {
            GroupSignal::Kill => {
                let delivery = send(self.group, Signal::SIGKILL);
                if delivery != Delivery::Denied
                    && let Some(stopped) = self.stopped.take()
                {
                    stopped.forget();
                }
                delivery
            }
            GroupSignal::Stop if nix::unistd::getpgrp().as_raw() == self.group.get() => {
                Delivery::Denied
            }
            GroupSignal::Stop => {
                let stopped = self
                    .stopped
                    .take()
                    .unwrap_or_else(|| StoppedGroup::new(self.group));
                let delivery = send(self.group, Signal::SIGSTOP);
                match delivery {
                    Delivery::Found => self.stopped = Some(stopped),
                    Delivery::NoGroup | Delivery::Denied => stopped.forget(),
                }
                delivery
            }
            GroupSignal::Cont => match self.stopped.take() {
                Some(stopped) => {
                    drop(stopped);
                    Delivery::Found
                }
                None => send(self.group, Signal::SIGCONT),
            },
        }
    }

    fn settle(&mut self) {
        self.operation();
        sleep(SETTLE);
    }

    fn probe(&mut self) -> bool {
        self.operation();
        !matches!(liveness::probe_group(self.group), Ok(GroupProbe::Gone))
    }

    fn wait_on(&mut self) -> bool {
        let now = Instant::now();
        let unreached = *self.unreached.get_or_insert(now + UNREACHED);
        if now >= self.deadline || (now >= unreached && only_others_live(self.proc, self.identity))
        {
            return false;
        }
        sleep(self.pause.min(self.deadline - now));
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }

    fn destroy_began(&mut self) -> bool {
        (self.destroy_began)()
    }

    #[cfg(feature = "trace")]
    fn observe(&mut self, event: super::trace::Event) {
        let since = self.trace.1.take().unwrap_or_else(crate::trace::started);
        event.write(self.trace.0, since);
    }
}

fn send(group: Pid, signal: Signal) -> Delivery {
    operations::tell_group_signal(group, signal as i32);
    match killpg(nix::unistd::Pid::from_raw(group.get()), signal) {
        Ok(()) => Delivery::Found,
        Err(Errno::ESRCH) => Delivery::NoGroup,
        Err(_) => Delivery::Denied,
    }
}

/// Reads one process as to a group. Everything is read through one open directory, so that it is all said of one process.
pub(super) fn read_member(proc: &Proc, identity: &GroupIdentity, group: Pid, pid: Pid) -> Reading {
    let unread = |error: &ReadError| {
        if error.is_gone() {
            Reading::NoMember
        } else {
            Reading::Hidden
        }
    };
    let directory = match proc.process(pid) {
        Ok(directory) => directory,
        Err(error) => return unread(&error),
    };
    let stat = match directory.stat() {
        Ok(stat) => stat,
        Err(error) => return unread(&error),
    };
    if stat.group != Some(group) {
        return Reading::NoMember;
    }
    match threads_that_run(&directory, &stat) {
        Ok(states) if states.is_empty() => Reading::Zombie,
        Ok(states) => Reading::Live {
            id: stat.id,
            stopped: states.iter().all(|state| state.is_stopped()),
            proof: proof(&directory, &stat, identity),
        },
        Err(error) => unread(&error),
    }
}

fn threads_that_run(directory: &ProcessDir, stat: &Stat) -> Result<Vec<State>, ReadError> {
    // SIGSTOP reaches one thread after the other: the main thread's state does not speak for the rest.
    if stat.threads > 1 && !stat.state.is_over() {
        let threads = directory.threads()?;
        let states: Result<Vec<_>, _> = threads
            .into_iter()
            .map(|thread| directory.thread_state(thread))
            .collect();
        return Ok(states?
            .into_iter()
            .flatten()
            .filter(|state| !state.is_over())
            .collect());
    }
    running_threads(directory, stat.state)
}

/// Is this member of the recorded session? The autogroup decides, where one was recorded and can be read: it differs exactly for
/// those who are of another setsid. Else the recorded leader is, by its start; and last the mark counts.
pub(super) fn proof(directory: &ProcessDir, stat: &Stat, identity: &GroupIdentity) -> Proof {
    match (identity.autogroup, directory.autogroup()) {
        (Some(recorded), Ok(Autogroup::Id(id))) if recorded == id => Proof::Ours,
        (Some(_), Ok(Autogroup::Id(_))) => Proof::NotOurs,
        _ if identity.leader() == Some(stat.id) => Proof::Ours,
        (Some(_), Ok(Autogroup::Default)) => Proof::NotOurs,
        // A mark may be a copy: it does not stand in for what was recorded and cannot be read.
        (Some(_), Err(_)) => Proof::Unreadable,
        (None, _) => proof_by_mark(directory, identity),
    }
}

/// An empty environment is one of a process that ends or is just being executed: nothing has been read then.
fn proof_by_mark(directory: &ProcessDir, identity: &GroupIdentity) -> Proof {
    match directory.environ() {
        Ok(environ) if environ.is_empty() => Proof::Unreadable,
        Ok(environ) => match environ_value(&environ, MARK_VARIABLE) {
            Some(value) if identity.is_marked(value) => Proof::Ours,
            _ => Proof::NotOurs,
        },
        Err(_) => Proof::Unreadable,
    }
}
