//! Every guard of the group tier's engine is needed: the real engine without it breaks the property that the model names.

use cgleaf::group::guards::{AllGuards, Guards};
use cgleaf_tests::sim::check::finds;
use cgleaf_tests::sim::explore::explore;
use cgleaf_tests::sim::kernel::Property;
use cgleaf_tests::sim::mutants::*;
use cgleaf_tests::sim::world::{Config, Reaping};

const PLAIN: Config = Config::PLAIN;

/// Is the property broken without this guard, and in no interleaving with it?
fn breaks<G: Guards>(guard: &str, config: &Config, expected: Property) {
    for reaping in [
        config.reaping,
        Reaping::Prompt,
        Reaping::Never,
        Reaping::Late,
    ] {
        let config = Config {
            name: config.name,
            reaping,
            ..*config
        };
        let sound = explore::<AllGuards>(&config, &[]).broken;
        assert!(
            sound.is_none(),
            "{guard}: the configuration breaks {sound:?} with every guard in its place"
        );
        if finds::<G>(guard, &config, expected) {
            return;
        }
    }
    panic!(
        "without {guard}, {expected:?} still holds: the guard or the simulation is not what it should be"
    );
}

/// Each guard of the engine, taken out, breaks the property that the model names for it.
#[test]
fn every_guard_is_needed() {
    use Property::{
        DestroyedProgramStopped, FreezesUnseenGroup, GcKeepsRunning, GcProbesUnseenGroup,
        KillsOnlyOwn, NotLeftFrozen, ProvesGroupOwnership,
    };
    let chain = Config {
        name: "chain",
        forks: 7,
        ..PLAIN
    };
    let reused = Config {
        name: "number used again",
        reuse: true,
        forks: 1,
        ..PLAIN
    };
    let unreadable = Config {
        name: "unreadable",
        readable: false,
        forks: 1,
        ..PLAIN
    };
    let blurred = Config {
        name: "blurred",
        blurs: true,
        forks: 3,
        ..PLAIN
    };
    let gc = Config {
        name: "gc",
        destroyers: 0,
        collectors: 1,
        forks: 2,
        ..PLAIN
    };

    breaks::<NoBootId>(
        "boot-id",
        &Config {
            rebooted: true,
            ..PLAIN
        },
        KillsOnlyOwn,
    );
    breaks::<NoOwnProc>(
        "own-proc",
        &Config {
            own_proc: false,
            forks: 1,
            ..PLAIN
        },
        ProvesGroupOwnership,
    );
    breaks::<NoWitnessAgain>("witness-again", &chain, ProvesGroupOwnership);
    breaks::<NoWitnessAgain>("witness-again", &reused, KillsOnlyOwn);
    breaks::<NoWitnessTicks>("witness-ticks", &reused, KillsOnlyOwn);
    breaks::<NoFreezeAfterUnknown>("freeze-after-unknown", &blurred, FreezesUnseenGroup);
    breaks::<NoFreezeAfterUnknown>(
        "freeze-after-unknown",
        &Config {
            forks: 7,
            ..blurred
        },
        DestroyedProgramStopped,
    );
    breaks::<NoFreezeAfterLostWitness>("freeze-after-lost-witness", &chain, FreezesUnseenGroup);
    breaks::<NoFreezeAfterLostWitness>(
        "freeze-after-lost-witness",
        &chain,
        DestroyedProgramStopped,
    );
    breaks::<NoFreezeAfterGone>("freeze-after-gone", &chain, FreezesUnseenGroup);
    breaks::<NoFreezeAfterGone>("freeze-after-gone", &chain, DestroyedProgramStopped);
    let four = Config {
        name: "four hostile",
        hostile: 4,
        reaping: Reaping::Never,
        ..chain
    };
    breaks::<NoLastLookFrozen>("last-look-frozen", &four, DestroyedProgramStopped);
    breaks::<NoUnprovenNoSignal>("unproven-no-signal", &reused, KillsOnlyOwn);
    breaks::<NoAllStoppedNoSignal>("all-stopped-no-signal", &unreadable, ProvesGroupOwnership);
    breaks::<NoContOnWayOut>("cont-on-way-out", &unreadable, NotLeftFrozen);
    let foreign = Config {
        name: "foreign /proc",
        own_proc: false,
        ..PLAIN
    };
    breaks::<NoNoneIsAlive>("none-is-alive", &foreign, DestroyedProgramStopped);
    let hidden = Config {
        name: "hidden member",
        set_uid: true,
        hides: true,
        forks: 0,
        ..PLAIN
    };
    breaks::<NoHiddenIsAlive>("hidden-is-alive", &hidden, DestroyedProgramStopped);
    let threaded = Config {
        name: "threaded",
        threaded: true,
        forks: 0,
        ..PLAIN
    };
    breaks::<NoZombieThreads>("zombie-threads", &threaded, DestroyedProgramStopped);
    breaks::<NoGcFreezes>("gc-freezes", &gc, GcKeepsRunning);
    breaks::<NoGcFreezes>("gc-freezes", &gc, GcProbesUnseenGroup);
    breaks::<NoGcConts>("gc-conts", &gc, NotLeftFrozen);
    // Its SIGCONTs, one for each frozen look, are as good as hostile ones. That everything holds with the guard is shown in
    // smaller bounds ("destroy and gc"): here it would take too long.
    let both = Config {
        name: "destroy and gc",
        reaping: Reaping::Never,
        hostile: 3,
        collectors: 1,
        forks: 7,
        ..PLAIN
    };
    assert!(finds::<NoGcLeavesDestroying>(
        "gc-leaves-destroying",
        &both,
        DestroyedProgramStopped
    ));
}
