//! How a destroy ends a process group: judge, stop, judge again, kill only what is proven to be the session's own.
//!
//! [`Destroy`] is a state machine; [`Destroy::step`] does one thing with the kernel and says what comes next. Its states
//! are the model's (tla/Group.tla): a reader can lay `pc` of the one beside [`Step`] of the other.

use std::marker::PhantomData;

use cgleaf_shared::process::{Pid, ProcessId};

use super::guards::{AllGuards, Guards};
use super::kernel::{Boot, Delivery, GroupSignal, Kernel, Place, Reading};
use super::scan::{Scan, Shows, Verdict};
#[cfg(feature = "trace")]
use super::trace::Event;

/// Judgements of one destroy.
pub const LOOKS: u8 = 5;

/// How a destroy came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// No member lives.
    Ended,
    /// A member lives, or may live.
    Alive(Doubt),
    /// Not ours to end: nothing was killed.
    Refused(Refusal),
}

/// Why the end could not be proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Doubt {
    /// Members are there, all stopped by somebody else, and whose they are cannot be read.
    StoppedAndUnreadable,
    /// /proc shows another pid namespace's processes.
    ForeignProc,
    /// No look, frozen or not, gave a proven member, and the group is still there.
    NotProven,
    /// It was killed, and has not ended in the time that was given.
    NotEndedYet,
    /// The kernel lets us signal none of its members.
    NotPermitted,
}

/// Why a group is none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Recorded in another boot or pid namespace.
    OtherBoot,
    /// Its members are there to be read, and none is the session's: the number was used again.
    Unproven,
}

/// What a destroy does next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Begin,
    Scan,
    Judge(Scan),
    Recheck(Vec<ProcessId>),
    #[allow(dead_code, reason = "reached only by an engine without a guard")]
    Kill,
    Stop,
    Settle,
    Probe,
    WaitScan,
    Look(Scan),
    WaitOn,
    Cont(Then),
    Report(Answer),
    Done(Answer),
}

/// What follows a SIGCONT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Then {
    Report(Answer),
    #[allow(dead_code, reason = "reached only by an engine without a guard")]
    Probe,
}

/// A destroy of one recorded group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Destroy<G: Guards = AllGuards> {
    step: Step,
    place: Place,
    look: u8,
    stopped: bool,
    killed: bool,
    guards: PhantomData<G>,
}

impl<G: Guards> Default for Destroy<G> {
    fn default() -> Self {
        let place = Place {
            boot: Boot::Other,
            own_proc: false,
            hides: true,
        };
        Destroy {
            step: Step::Begin,
            place,
            look: 1,
            stopped: false,
            killed: false,
            guards: PhantomData,
        }
    }
}

impl<G: Guards> Destroy<G> {
    /// Runs it to its end.
    pub fn run(mut self, kernel: &mut impl Kernel) -> Answer {
        loop {
            if let Some(answer) = self.step(kernel) {
                return answer;
            }
        }
    }

    /// Does the next thing. The answer, once there is one; it owes nothing to anybody then.
    pub fn step(&mut self, kernel: &mut impl Kernel) -> Option<Answer> {
        let next = match std::mem::replace(&mut self.step, Step::Begin) {
            Step::Begin => self.begin(kernel),
            Step::Scan => self.scan(kernel, Step::Judge),
            Step::Judge(scan) => self.judge(scan, kernel),
            Step::Recheck(witnesses) => self.recheck(witnesses, kernel),
            Step::Kill => self.kill(kernel),
            Step::Stop => self.stop(kernel),
            Step::Settle => self.settle(kernel),
            Step::Probe => self.probe(kernel),
            Step::WaitScan => self.scan(kernel, Step::Look),
            Step::Look(scan) => self.look(scan, kernel),
            Step::WaitOn => self.wait_on(kernel),
            Step::Cont(then) => self.cont(then, kernel),
            Step::Report(answer) => {
                #[cfg(feature = "trace")]
                kernel.observe(Event::answered(answer));
                Step::Done(answer)
            }
            done @ Step::Done(_) => done,
        };
        self.step = next;
        match self.step {
            Step::Done(answer) => Some(answer),
            _ => None,
        }
    }

    /// The process that the next step reads, if it reads one of a listing.
    #[must_use]
    pub fn next_read(&self) -> Option<Pid> {
        match &self.step {
            Step::Judge(scan) | Step::Look(scan) => scan.next(),
            _ => None,
        }
    }

    /// How many looks have been begun.
    #[must_use]
    pub fn looks(&self) -> u8 {
        self.look
    }

    /// Has a SIGKILL been sent?
    #[must_use]
    pub fn has_killed(&self) -> bool {
        self.killed
    }

    fn begin(&mut self, kernel: &mut impl Kernel) -> Step {
        self.place = kernel.place();
        #[cfg(feature = "trace")]
        kernel.observe(Event::Begin {
            op: super::trace::Op::Destroy,
            place: self.place,
        });
        if self.place.boot == Boot::Other && G::BOOT_ID {
            return Step::Report(Answer::Refused(Refusal::OtherBoot));
        }
        Step::Scan
    }

    fn scan(&mut self, kernel: &mut impl Kernel, then: fn(Scan) -> Step) -> Step {
        let scan = Scan::begin(kernel);
        #[cfg(feature = "trace")]
        kernel.observe(Event::Scan);
        then(scan)
    }

    /// The table of judgements.
    fn judge(&mut self, mut scan: Scan, kernel: &mut impl Kernel) -> Step {
        let Some(tally) = scan.step(kernel) else {
            return Step::Judge(scan);
        };
        let foreign = !self.place.own_proc && G::OWN_PROC;
        let verdict = if foreign {
            Verdict::Foreign
        } else {
            tally.verdict()
        };
        #[cfg(feature = "trace")]
        kernel.observe(Event::Judge(verdict.clone()));
        match verdict {
            Verdict::Owned { witnesses } if G::WITNESS_AGAIN => Step::Recheck(witnesses),
            Verdict::Owned { .. } => Step::Kill,
            Verdict::Gone => self.freeze_and_look(G::FREEZE_AFTER_GONE),
            Verdict::Unknown { running: true } => self.freeze_and_look(G::FREEZE_AFTER_UNKNOWN),
            Verdict::Unknown { running: false } if G::ALL_STOPPED_NO_SIGNAL => {
                self.leave(Answer::Alive(Doubt::StoppedAndUnreadable))
            }
            Verdict::Unproven if G::UNPROVEN_NO_SIGNAL => {
                self.leave(Answer::Refused(Refusal::Unproven))
            }
            Verdict::Unknown { running: false } | Verdict::Unproven => Step::Kill,
            Verdict::Foreign => Step::Probe,
        }
    }

    /// A witness, read again: if it is the same process, then the group is the session's at this moment, and the
    /// SIGKILL follows at once. (Its number could come back to a stranger only after a whole round of the pid space.)
    fn recheck(&mut self, mut witnesses: Vec<ProcessId>, kernel: &mut impl Kernel) -> Step {
        let same = witnesses.pop().is_some_and(|witness| {
            let again = kernel.read(witness.pid);
            matches!(again, Reading::Live { id, .. } if id == witness || !G::WITNESS_TICKS)
        });
        if !same && !witnesses.is_empty() {
            return Step::Recheck(witnesses);
        }
        #[cfg(feature = "trace")]
        kernel.observe(Event::Recheck { same });
        if same {
            self.kill(kernel)
        } else {
            self.freeze_and_look(G::FREEZE_AFTER_LOST_WITNESS)
        }
    }

    fn kill(&mut self, kernel: &mut impl Kernel) -> Step {
        let delivery = kernel.signal(GroupSignal::Kill);
        #[cfg(feature = "trace")]
        kernel.observe(Event::Kill(delivery));
        match delivery {
            Delivery::Denied => self.leave(Answer::Alive(Doubt::NotPermitted)),
            Delivery::Found | Delivery::NoGroup => {
                self.killed = true;
                Step::Probe
            }
        }
    }

    /// A judgement that settled nothing: freeze the group and look again. After the last one the look is the wait's.
    fn freeze_and_look(&mut self, guard: bool) -> Step {
        if !guard {
            self.after_freeze()
        } else if self.look == LOOKS && !G::LAST_LOOK_FROZEN {
            if self.stopped {
                Step::Cont(Then::Probe)
            } else {
                Step::Probe
            }
        } else {
            Step::Stop
        }
    }

    fn stop(&mut self, kernel: &mut impl Kernel) -> Step {
        let delivery = kernel.signal(GroupSignal::Stop);
        #[cfg(feature = "trace")]
        kernel.observe(Event::Stop(delivery));
        match delivery {
            Delivery::Found => {
                self.stopped = true;
                Step::Settle
            }
            Delivery::NoGroup => Step::Probe,
            Delivery::Denied => self.leave(Answer::Alive(Doubt::NotPermitted)),
        }
    }

    fn settle(&mut self, kernel: &mut impl Kernel) -> Step {
        kernel.settle();
        #[cfg(feature = "trace")]
        kernel.observe(Event::Settle);
        self.after_freeze()
    }

    fn after_freeze(&mut self) -> Step {
        if self.look == LOOKS {
            return Step::Probe;
        }
        self.look += 1;
        Step::Scan
    }

    /// The wait: ESRCH is the end.
    fn probe(&mut self, kernel: &mut impl Kernel) -> Step {
        let found = kernel.probe();
        #[cfg(feature = "trace")]
        kernel.observe(Event::Probe { found });
        if found {
            Step::WaitScan
        } else {
            self.leave(Answer::Ended)
        }
    }

    /// The wait, where the probe finds the group: only zombies are the end, nobody at all is not.
    fn look(&mut self, mut scan: Scan, kernel: &mut impl Kernel) -> Step {
        let Some(tally) = scan.step(kernel) else {
            return Step::Look(scan);
        };
        let shows = tally.shows(self.place, G::HIDDEN_IS_ALIVE);
        #[cfg(feature = "trace")]
        kernel.observe(Event::Look(shows));
        match shows {
            Shows::Zombies => self.leave(Answer::Ended),
            Shows::None if !G::NONE_IS_ALIVE => self.leave(Answer::Ended),
            Shows::Live | Shows::None if self.killed => Step::WaitOn,
            Shows::Live | Shows::None => self.leave(Answer::Alive(self.doubt())),
        }
    }

    /// After a SIGKILL the wait goes on until the end or the deadline; without one it was asked once.
    fn wait_on(&mut self, kernel: &mut impl Kernel) -> Step {
        if kernel.wait_on() {
            Step::Probe
        } else {
            self.leave(Answer::Alive(Doubt::NotEndedYet))
        }
    }

    fn doubt(&self) -> Doubt {
        if self.place.own_proc {
            Doubt::NotProven
        } else {
            Doubt::ForeignProc
        }
    }

    /// The way out: what was stopped and not killed goes on.
    fn leave(&mut self, answer: Answer) -> Step {
        if self.stopped && !self.killed && G::CONT_ON_WAY_OUT {
            Step::Cont(Then::Report(answer))
        } else {
            Step::Report(answer)
        }
    }

    fn cont(&mut self, then: Then, kernel: &mut impl Kernel) -> Step {
        kernel.signal(GroupSignal::Cont);
        self.stopped = false;
        #[cfg(feature = "trace")]
        kernel.observe(Event::Cont);
        match then {
            Then::Report(answer) => Step::Report(answer),
            Then::Probe => Step::Probe,
        }
    }
}
