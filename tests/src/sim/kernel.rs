//! The simulated world as an engine's [`Kernel`], which also watches what the engine does with it.

use std::marker::PhantomData;

use cgleaf::group::guards::Guards;
use cgleaf::group::kernel::{Boot, Delivery, GroupSignal, Kernel, Place, Proof, Reading};
use cgleaf_shared::process::{Pid, ProcessId};

use super::world::{Config, Process, Stop, World};

/// A property of DESIGN 5, by the model's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Property {
    /// Success although a member lives.
    DestroyedProgramStopped,
    /// A SIGKILL reached a stranger.
    KillsOnlyOwn,
    /// A SIGKILL without a proven witness that was read again just before, or a signal by the numbers of a foreign /proc.
    ProvesGroupOwnership,
    /// An answer without the freeze and the look that a judgement asked for.
    FreezesUnseenGroup,
    /// All engines are done, and somebody is stopped whom no user stopped.
    NotLeftFrozen,
    /// gc forgets a group that lives.
    GcKeepsRunning,
    /// gc calls a group over that it has not frozen and looked at.
    GcProbesUnseenGroup,
    /// The engine refused a group of the session's own.
    RefusesOnlyForeign,
    /// The plain case did not end the program.
    DestroyEnds,
    /// An engine did not come to an end.
    EveryRunEnds,
}

/// What an engine has done so far, as far as a property asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct History {
    /// Who was proven ours in the scan under way or the last one.
    owned: Vec<ProcessId>,
    /// The last thing done was to read one of those again.
    read_again: bool,
    /// What the judgements so far still ask for.
    owes: Owes,
    in_wait: bool,
    /// Has it frozen and looked, or found nobody to freeze?
    pub froze: bool,
    stopped: bool,
    waits: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Owes {
    #[default]
    Nothing,
    Freeze,
    Look,
}

impl History {
    /// Has every judgement that settled nothing been followed by a freeze and a look?
    pub fn owes_nothing(&self) -> bool {
        self.owes == Owes::Nothing
    }
}

/// Pauses of the wait after a SIGKILL.
const WAITS: u8 = 3;

/// One engine's view of the world for one step.
pub struct SimKernel<'a, G> {
    /// The environment.
    pub config: &'a Config,
    /// The world.
    pub world: &'a mut World,
    /// The engine's history.
    pub history: &'a mut History,
    /// What was broken in this step.
    pub broken: Option<Property>,
    /// Which guards the engine has.
    pub guards: PhantomData<G>,
    /// Its name in a trace.
    #[cfg(feature = "trace")]
    pub actor: String,
}

impl<G: Guards> SimKernel<'_, G> {
    fn find(&self, pid: Pid) -> Option<Process> {
        self.world
            .members
            .iter()
            .find(|process| process.pid == pid.get() && self.shows(process))
            .copied()
    }

    fn shows(&self, process: &Process) -> bool {
        !(self.config.hides && process.other_user)
    }

    fn proof(&mut self, process: &Process) -> Proof {
        let blurred = std::mem::take(&mut self.world.blur) && process.stop != Stop::Taken;
        if !self.config.readable || blurred {
            Proof::Unreadable
        } else if process.ours || self.config.rebooted || self.config.shared {
            Proof::Ours
        } else {
            Proof::NotOurs
        }
    }

    fn signallable(&self) -> Delivery {
        if self.world.members.is_empty() {
            Delivery::NoGroup
        } else if self.world.members.iter().all(|process| process.other_user) {
            Delivery::Denied
        } else {
            Delivery::Found
        }
    }

    fn observe_kill(&mut self) {
        if !self.history.read_again || !self.config.own_proc {
            self.broken.get_or_insert(Property::ProvesGroupOwnership);
        }
    }
}

impl<G: Guards> Kernel for SimKernel<'_, G> {
    fn place(&mut self) -> Place {
        Place {
            boot: if self.config.rebooted {
                Boot::Other
            } else {
                Boot::Same
            },
            own_proc: self.config.own_proc,
            hides: self.config.hides,
        }
    }

    fn list(&mut self) -> Option<Vec<Pid>> {
        self.history.owned.clear();
        self.history.read_again = false;
        // A judgement's scan asks for a freeze unless a kill follows; the wait's scan is the look that a freeze asks for.
        self.history.owes = match (self.history.in_wait, self.history.owes) {
            (false, _) if !self.config.own_proc => Owes::Nothing,
            (false, _) => Owes::Freeze,
            (true, Owes::Look) => Owes::Nothing,
            (true, owes) => owes,
        };
        self.history.froze |= self.history.stopped;
        let mut members: Vec<&Process> = self
            .world
            .members
            .iter()
            .filter(|process| self.shows(process))
            .collect();
        members.sort_by_key(|process| process.zombie);
        Some(
            members
                .into_iter()
                .filter_map(|process| Pid::new(process.pid))
                .collect(),
        )
    }

    fn read(&mut self, pid: Pid) -> Reading {
        let Some(process) = self.find(pid) else {
            self.history.read_again = false;
            return Reading::NoMember;
        };
        if !self.config.own_proc {
            return Reading::NoMember;
        }
        if process.zombie || (process.main_thread_ended && !G::ZOMBIE_THREADS) {
            self.history.read_again = false;
            return Reading::Zombie;
        }
        let id = process.id();
        self.history.read_again = self.history.owned.contains(&id);
        let proof = self.proof(&process);
        if proof == Proof::Ours && !self.history.read_again {
            self.history.owned.push(id);
        }
        Reading::Live {
            id,
            stopped: process.stop == Stop::Taken,
            proof,
        }
    }

    fn signal(&mut self, signal: GroupSignal) -> Delivery {
        if !self.config.own_proc && signal != GroupSignal::Cont {
            self.broken.get_or_insert(Property::ProvesGroupOwnership);
        }
        let delivery = self.signallable();
        match signal {
            GroupSignal::Kill => {
                self.observe_kill();
                self.history.stopped = false;
                self.history.owes = Owes::Nothing;
                if self.world.kill(self.config) {
                    self.broken = Some(Property::KillsOnlyOwn);
                }
            }
            GroupSignal::Stop => {
                self.world.stop();
                self.history.stopped |= delivery == Delivery::Found;
                self.history.froze |= delivery == Delivery::NoGroup;
                self.history.owes = if delivery == Delivery::Found {
                    Owes::Look
                } else {
                    Owes::Nothing
                };
            }
            GroupSignal::Cont => {
                self.history.stopped = false;
                self.world.cont();
            }
        }
        self.history.read_again = false;
        delivery
    }

    fn settle(&mut self) {}

    fn probe(&mut self) -> bool {
        let found = !self.world.members.is_empty();
        self.history.in_wait = true;
        if !found {
            self.history.owes = Owes::Nothing;
        }
        found
    }

    fn wait_on(&mut self) -> bool {
        self.history.waits += 1;
        self.history.waits <= WAITS
    }

    fn destroy_began(&mut self) -> bool {
        self.world.destroying
    }

    #[cfg(feature = "trace")]
    fn observe(&mut self, event: cgleaf::group::trace::Event) {
        crate::conformance::simulated::observe(&self.actor, &event);
    }
}
