//! The engine's guards, by the names that the model (tla/README.md) gives them.

/// Which guards an engine has. Every program uses [`AllGuards`]; a test takes one out to show that something breaks
/// without it. They are constants of a type, so that nothing at run time can switch one off.
pub trait Guards: Clone + Eq + std::hash::Hash + std::fmt::Debug {
    /// `boot-id`: a group of another boot gets no signal.
    const BOOT_ID: bool = true;
    /// `own-proc`: where /proc is another pid namespace's, no signal.
    const OWN_PROC: bool = true;
    /// `witness-again`: the witness is read again before the SIGKILL.
    const WITNESS_AGAIN: bool = true;
    /// `witness-ticks`: and it has the same start ticks.
    const WITNESS_TICKS: bool = true;
    /// `freeze-after-unknown`: after Unknown with a running member: freeze, look again.
    const FREEZE_AFTER_UNKNOWN: bool = true;
    /// `freeze-after-lost-witness`: after Owned with a witness that ended: freeze, look again.
    const FREEZE_AFTER_LOST_WITNESS: bool = true;
    /// `freeze-after-gone`: after Gone: freeze, look again.
    const FREEZE_AFTER_GONE: bool = true;
    /// `last-look-frozen`: after the fifth judgement too: freeze, the wait, and only then SIGCONT.
    const LAST_LOOK_FROZEN: bool = true;
    /// `unproven-no-signal`: Unproven gets no signal.
    const UNPROVEN_NO_SIGNAL: bool = true;
    /// `all-stopped-no-signal`: Unknown with all members stopped gets no signal.
    const ALL_STOPPED_NO_SIGNAL: bool = true;
    /// `cont-on-way-out`: SIGCONT for what this engine stopped and did not kill.
    const CONT_ON_WAY_OUT: bool = true;
    /// `none-is-alive`: the probe finds the group and the scan shows no member: alive.
    const NONE_IS_ALIVE: bool = true;
    /// `hidden-is-alive`: only zombies, in a /proc that may hide the rest: alive.
    const HIDDEN_IS_ALIVE: bool = true;
    /// `zombie-threads`: a zombie with a running thread lives. The rule itself is `shared::process::liveness`.
    const ZOMBIE_THREADS: bool = true;
    /// `gc-freezes`: gc freezes and looks before it calls a group over.
    const GC_FREEZES: bool = true;
    /// `gc-conts`: gc takes each freeze back.
    const GC_CONTS: bool = true;
    /// `gc-leaves-destroying`: gc does not touch a record that is being destroyed.
    const GC_LEAVES_DESTROYING: bool = true;
}

/// Every guard in its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AllGuards;

impl Guards for AllGuards {}
