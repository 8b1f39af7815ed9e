//! What the engine asks of the kernel, and nothing else: the real answers are in [`super::procfs`], simulated ones in
//! the tests.

use cgleaf_shared::process::{Pid, ProcessId};

/// Where the engine stands, asked once at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Was the group recorded in this boot?
    pub boot: Boot,
    /// Are /proc's numbers those that kill(2) takes?
    pub own_proc: bool,
    /// May /proc hide processes (`hidepid`)?
    pub hides: bool,
}

/// In which boot a group was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Boot {
    /// In this one, and in our pid namespace.
    Same,
    /// In another boot, or in a pid namespace that is not ours: its number means somebody else here.
    Other,
}

/// How far a member is proven to be of the recorded group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Proof {
    /// It is: the recorded autogroup, the recorded leader itself, or the mark.
    Ours,
    /// What was read is not ours.
    NotOurs,
    /// It could not be read.
    Unreadable,
}

/// One process, read as to one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reading {
    /// It has gone since it was listed, or is in another group.
    NoMember,
    /// A member that has ended, in all of its threads.
    Zombie,
    /// A member that lives.
    Live {
        /// Which process.
        id: ProcessId,
        /// Do all its threads stand still?
        stopped: bool,
        /// Is it ours?
        proof: Proof,
    },
    /// Not even its group can be read.
    Hidden,
}

/// What became of a signal to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// It was sent to one member at least.
    Found,
    /// ESRCH: nobody has this group, not even a zombie.
    NoGroup,
    /// EPERM for every member, or a signal that would stop ourselves.
    Denied,
}

/// The signals that the engine sends to the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupSignal {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Cont,
}

/// The kernel, as to one recorded group. Each method is one thing that happens, and between two of them anything may.
pub trait Kernel {
    /// Compares the boot and the pid namespace, and asks whose processes /proc shows.
    fn place(&mut self) -> Place;

    /// Lists every process that /proc shows. `None` if that cannot be read.
    fn list(&mut self) -> Option<Vec<Pid>>;

    /// Reads one process of a listing.
    fn read(&mut self, pid: Pid) -> Reading;

    /// Signals every member of the group.
    fn signal(&mut self, signal: GroupSignal) -> Delivery;

    /// Waits 1 ms: a stop takes effect only when the kernel next runs the member.
    fn settle(&mut self);

    /// Signal 0 to the group: does it exist, zombies included?
    fn probe(&mut self) -> bool;

    /// After a SIGKILL: waits a little for the end. `false` when the time is up.
    fn wait_on(&mut self) -> bool;

    /// gc only: has a destroy of this record begun?
    fn destroy_began(&mut self) -> bool;

    /// An event of the model's has happened.
    #[cfg(feature = "trace")]
    fn observe(&mut self, _event: super::trace::Event) {}
}
