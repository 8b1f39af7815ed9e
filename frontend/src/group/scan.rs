//! One scan of /proc: a listing, then the reading of each process in it. A chain of forks moves in between, so a scan
//! may show nobody of a group that lives.

use cgleaf_shared::process::{Pid, ProcessId};

use super::kernel::{Kernel, Place, Proof, Reading};

/// A scan under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scan {
    pending: Vec<Pid>,
    tally: Tally,
}

/// What a scan has shown so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tally {
    witnesses: Vec<ProcessId>,
    live: bool,
    running: bool,
    unreadable: bool,
    zombies: bool,
    hidden: bool,
}

/// The verdict of one reading of /proc.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// No live member was seen.
    Gone,
    /// A member whose proof cannot be read. Is there one that is not stopped?
    Unknown {
        /// Does any member run?
        running: bool,
    },
    /// At least one member is proven to be the session's.
    Owned {
        /// All that are. One may end before it is read again, and another still bear witness.
        witnesses: Vec<ProcessId>,
    },
    /// What could be read is not ours.
    Unproven,
    /// /proc shows another pid namespace's processes.
    Foreign,
}

/// What the wait's scan shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shows {
    /// A member that lives.
    Live,
    /// Members, all of them zombies.
    Zombies,
    /// No member at all.
    None,
}

impl Scan {
    /// Takes the listing. One that cannot be read shows nobody, and hides everybody.
    pub fn begin(kernel: &mut impl Kernel) -> Scan {
        let listing = kernel.list();
        let tally = Tally {
            hidden: listing.is_none(),
            ..Tally::default()
        };
        let mut pending = listing.unwrap_or_default();
        pending.reverse();
        Scan { pending, tally }
    }

    /// The process of the listing that is read next.
    #[must_use]
    pub fn next(&self) -> Option<Pid> {
        self.pending.last().copied()
    }

    /// Reads the next process of the listing. The tally, once there is none.
    pub fn step(&mut self, kernel: &mut impl Kernel) -> Option<&Tally> {
        if let Some(pid) = self.pending.pop() {
            self.tally.add(kernel.read(pid));
        }
        self.pending.is_empty().then_some(&self.tally)
    }
}

impl Tally {
    fn add(&mut self, reading: Reading) {
        match reading {
            Reading::NoMember => {}
            Reading::Zombie => self.zombies = true,
            Reading::Hidden => self.hidden = true,
            Reading::Live { id, stopped, proof } => {
                self.live = true;
                self.running |= !stopped;
                match proof {
                    Proof::Ours => self.witnesses.push(id),
                    Proof::Unreadable => self.unreadable = true,
                    Proof::NotOurs => {}
                }
            }
        }
    }

    /// The verdict. One proven member is proof for all: a process joins a group only from within its POSIX session.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if !self.witnesses.is_empty() {
            Verdict::Owned {
                witnesses: self.witnesses.clone(),
            }
        } else if !self.live {
            Verdict::Gone
        } else if self.unreadable {
            Verdict::Unknown {
                running: self.running,
            }
        } else {
            Verdict::Unproven
        }
    }

    /// What it shows, for the wait. With `hidden_is_alive`, zombies prove nothing where somebody else may be hidden.
    #[must_use]
    pub fn shows(&self, place: Place, hidden_is_alive: bool) -> Shows {
        if self.live {
            Shows::Live
        } else if self.zombies && !(hidden_is_alive && (self.hidden || place.hides)) {
            Shows::Zombies
        } else {
            Shows::None
        }
    }
}
