//! How gc judges whether a group is over: it kills nobody, and calls over only what up to twenty frozen looks did not
//! show. States and names as in [`super::engine`].

use std::marker::PhantomData;

use cgleaf_shared::process::Pid;

use super::guards::{AllGuards, Guards};
use super::kernel::{Boot, Delivery, GroupSignal, Kernel, Place};
use super::scan::{Scan, Shows, Verdict};
#[cfg(feature = "trace")]
use super::trace::Event;

/// Frozen looks of one gc.
pub const GC_LOOKS: u8 = 20;

/// What gc makes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Judgement {
    /// Proven over.
    Over,
    /// It runs, or may run.
    Kept(Keep),
}

/// Why gc keeps a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Keep {
    /// Somebody has the group's number: a member that lives, a stranger, or one that cannot be read.
    Seen,
    /// A destroy of it has begun, and owns the record.
    BeingDestroyed,
    /// /proc shows another pid namespace's processes.
    ForeignProc,
    /// The group is there, and twenty frozen looks showed neither a member nor its zombies.
    NotProven,
    /// The kernel lets us signal none of its members.
    NotPermitted,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Begin,
    Scan,
    Judge(Scan),
    Stop,
    Settle,
    Probe,
    WaitScan,
    Look(Scan),
    Cont(Then),
    Report(Judgement),
    Done(Judgement),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Then {
    Stop,
    Report(Judgement),
}

/// A gc's look at one recorded group. `LOOKS` is [`GC_LOOKS`] but for a simulation that can afford fewer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gc<G: Guards = AllGuards, const LOOKS: u8 = GC_LOOKS> {
    step: Step,
    place: Place,
    looks: u8,
    stopped: bool,
    guards: PhantomData<G>,
}

impl<G: Guards, const LOOKS: u8> Default for Gc<G, LOOKS> {
    fn default() -> Self {
        let place = Place {
            boot: Boot::Same,
            own_proc: false,
            hides: true,
        };
        Gc {
            step: Step::Begin,
            place,
            looks: 0,
            stopped: false,
            guards: PhantomData,
        }
    }
}

impl<G: Guards, const LOOKS: u8> Gc<G, LOOKS> {
    /// Runs it to its end.
    pub fn run(mut self, kernel: &mut impl Kernel) -> Judgement {
        loop {
            if let Some(judgement) = self.step(kernel) {
                return judgement;
            }
        }
    }

    /// Does the next thing. The judgement, once there is one.
    pub fn step(&mut self, kernel: &mut impl Kernel) -> Option<Judgement> {
        let next = match std::mem::replace(&mut self.step, Step::Begin) {
            Step::Begin => self.begin(kernel),
            Step::Scan => Self::scan(kernel, Step::Judge),
            Step::Judge(scan) => self.judge(scan, kernel),
            Step::Stop => self.stop(kernel),
            Step::Settle => Self::settle(kernel),
            Step::Probe => self.probe(kernel),
            Step::WaitScan => Self::scan(kernel, Step::Look),
            Step::Look(scan) => self.look(scan, kernel),
            Step::Cont(then) => self.cont(then, kernel),
            Step::Report(judgement) => {
                #[cfg(feature = "trace")]
                kernel.observe(Event::judged(judgement));
                Step::Done(judgement)
            }
            done @ Step::Done(_) => done,
        };
        self.step = next;
        match self.step {
            Step::Done(judgement) => Some(judgement),
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

    fn begin(&mut self, kernel: &mut impl Kernel) -> Step {
        self.place = kernel.place();
        let destroying = kernel.destroy_began() && G::GC_LEAVES_DESTROYING;
        #[cfg(feature = "trace")]
        kernel.observe(Event::Begin {
            op: super::trace::Op::Gc,
            place: self.place,
        });
        if self.place.boot == Boot::Other && G::BOOT_ID {
            Step::Report(Judgement::Over)
        } else if destroying {
            Step::Report(Judgement::Kept(Keep::BeingDestroyed))
        } else {
            Step::Scan
        }
    }

    fn scan(kernel: &mut impl Kernel, then: fn(Scan) -> Step) -> Step {
        let scan = Scan::begin(kernel);
        #[cfg(feature = "trace")]
        kernel.observe(Event::Scan);
        then(scan)
    }

    /// Whoever is seen is kept. Nobody seen: freeze, and look again; each freeze is taken back before the next.
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
            Verdict::Gone if !G::GC_FREEZES || self.looks == LOOKS => Step::Probe,
            Verdict::Gone if self.stopped && G::GC_CONTS => Step::Cont(Then::Stop),
            Verdict::Gone => Step::Stop,
            Verdict::Foreign => self.leave(Judgement::Kept(Keep::ForeignProc)),
            _ => self.leave(Judgement::Kept(Keep::Seen)),
        }
    }

    /// The record is read again before each freeze: a destroy that has begun is left alone with its group.
    fn stop(&mut self, kernel: &mut impl Kernel) -> Step {
        if G::GC_LEAVES_DESTROYING && kernel.destroy_began() {
            return self.leave(Judgement::Kept(Keep::BeingDestroyed));
        }
        let delivery = kernel.signal(GroupSignal::Stop);
        #[cfg(feature = "trace")]
        kernel.observe(Event::Stop(delivery));
        self.looks += 1;
        match delivery {
            Delivery::Found => {
                self.stopped = true;
                Step::Settle
            }
            Delivery::NoGroup => self.leave(Judgement::Over),
            Delivery::Denied => self.leave(Judgement::Kept(Keep::NotPermitted)),
        }
    }

    fn settle(kernel: &mut impl Kernel) -> Step {
        kernel.settle();
        #[cfg(feature = "trace")]
        kernel.observe(Event::Settle);
        Step::Scan
    }

    /// The wait, once, while the group is still stopped.
    fn probe(&mut self, kernel: &mut impl Kernel) -> Step {
        let found = kernel.probe();
        #[cfg(feature = "trace")]
        kernel.observe(Event::Probe { found });
        if found {
            Step::WaitScan
        } else {
            self.leave(Judgement::Over)
        }
    }

    fn look(&mut self, mut scan: Scan, kernel: &mut impl Kernel) -> Step {
        let Some(tally) = scan.step(kernel) else {
            return Step::Look(scan);
        };
        let shows = tally.shows(self.place, G::HIDDEN_IS_ALIVE);
        #[cfg(feature = "trace")]
        kernel.observe(Event::Look(shows));
        self.leave(match shows {
            Shows::Zombies => Judgement::Over,
            Shows::None if !G::NONE_IS_ALIVE => Judgement::Over,
            Shows::None => Judgement::Kept(Keep::NotProven),
            Shows::Live => Judgement::Kept(Keep::Seen),
        })
    }

    fn leave(&mut self, judgement: Judgement) -> Step {
        if self.stopped && G::GC_CONTS {
            Step::Cont(Then::Report(judgement))
        } else {
            Step::Report(judgement)
        }
    }

    fn cont(&mut self, then: Then, kernel: &mut impl Kernel) -> Step {
        kernel.signal(GroupSignal::Cont);
        self.stopped = false;
        #[cfg(feature = "trace")]
        kernel.observe(Event::Cont);
        match then {
            Then::Stop => Step::Stop,
            Then::Report(judgement) => Step::Report(judgement),
        }
    }
}
