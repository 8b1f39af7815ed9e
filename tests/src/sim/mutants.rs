//! The engine with one guard taken out, each by the name that the model gives the guard.

use cgleaf::group::guards::Guards;

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident without $guard:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub struct $name;

        impl Guards for $name {
            const $guard: bool = false;
        }
    )*};
}

mutants! {
    /// Signals a group of another boot.
    NoBootId without BOOT_ID;
    /// Trusts a foreign /proc.
    NoOwnProc without OWN_PROC;
    /// Kills without a second reading of the witness.
    NoWitnessAgain without WITNESS_AGAIN;
    /// Takes any process with the witness's number for the witness.
    NoWitnessTicks without WITNESS_TICKS;
    /// Does not freeze after Unknown.
    NoFreezeAfterUnknown without FREEZE_AFTER_UNKNOWN;
    /// Does not freeze after a witness that ended.
    NoFreezeAfterLostWitness without FREEZE_AFTER_LOST_WITNESS;
    /// Does not freeze after Gone.
    NoFreezeAfterGone without FREEZE_AFTER_GONE;
    /// Takes the freeze back before the last look.
    NoLastLookFrozen without LAST_LOOK_FROZEN;
    /// Kills a stranger.
    NoUnprovenNoSignal without UNPROVEN_NO_SIGNAL;
    /// Kills what it cannot read.
    NoAllStoppedNoSignal without ALL_STOPPED_NO_SIGNAL;
    /// Leaves what it stopped.
    NoContOnWayOut without CONT_ON_WAY_OUT;
    /// Takes an empty scan for the end.
    NoNoneIsAlive without NONE_IS_ALIVE;
    /// Takes zombies for the end although others are hidden.
    NoHiddenIsAlive without HIDDEN_IS_ALIVE;
    /// Takes a zombie leader for dead although its thread runs.
    NoZombieThreads without ZOMBIE_THREADS;
    /// gc does not freeze.
    NoGcFreezes without GC_FREEZES;
    /// gc does not continue.
    NoGcConts without GC_CONTS;
    /// gc works on what a destroy works on.
    NoGcLeavesDestroying without GC_LEAVES_DESTROYING;
}
