//! The explored simulation: the group tier's engine, the same code that runs, through every interleaving with a
//! simulated kernel up to the bounds stated in each configuration, and through seeded random ones beyond them.

use std::collections::HashSet;
use std::time::Instant;

use cgleaf::group::engine::{Answer, Doubt, Refusal};
use cgleaf::group::gc::{Judgement, Keep};
use cgleaf::group::guards::AllGuards;
use cgleaf_tests::sim::check::{holds, run};
use cgleaf_tests::sim::explore::{Answered, Seeded, explore, random_run};
use cgleaf_tests::sim::kernel::Property;
use cgleaf_tests::sim::mutants::NoFreezeAfterLostWitness;
use cgleaf_tests::sim::world::{Config, Reaping};

const PLAIN: Config = Config::PLAIN;
const EVERY_REAPING: [Reaping; 3] = [Reaping::Prompt, Reaping::Late, Reaping::Never];

fn destroys(answers: &[Answer]) -> HashSet<Answered> {
    answers.iter().copied().map(Answered::Destroy).collect()
}

/// The environments in which everything must hold.
fn must_hold() -> Vec<Config> {
    let mut all = Vec::new();
    for reaping in EVERY_REAPING {
        let plain = Config { reaping, ..PLAIN };
        all.extend([
            Config {
                name: "blurred proofs",
                blurs: true,
                forks: 4,
                ..plain
            },
            Config {
                name: "four hostile SIGCONTs",
                hostile: 4,
                forks: 6,
                ..plain
            },
            Config {
                name: "number used again",
                reuse: true,
                forks: 3,
                hostile: 1,
                ..plain
            },
            Config {
                name: "unreadable",
                readable: false,
                forks: 3,
                ..plain
            },
            Config {
                name: "unreadable, number used again",
                readable: false,
                reuse: true,
                forks: 2,
                ..plain
            },
            Config {
                name: "thread outlives leader",
                threaded: true,
                forks: 3,
                ..plain
            },
            Config {
                name: "user stops",
                user_stops: 2,
                forks: 3,
                blurs: true,
                ..plain
            },
            Config {
                name: "slow death",
                slow_death: true,
                forks: 3,
                ..plain
            },
            Config {
                name: "other user's member",
                set_uid: true,
                forks: 0,
                ..plain
            },
            Config {
                name: "hidden member",
                set_uid: true,
                hides: true,
                forks: 0,
                ..plain
            },
            Config {
                name: "foreign /proc",
                own_proc: false,
                forks: 3,
                ..plain
            },
            Config {
                name: "two destroys",
                destroyers: 2,
                forks: 1,
                ..plain
            },
            Config {
                name: "two destroys, number used again",
                destroyers: 2,
                reuse: true,
                forks: 0,
                ..plain
            },
            Config {
                name: "gc",
                destroyers: 0,
                collectors: 1,
                forks: 5,
                hostile: 2,
                ..plain
            },
            Config {
                name: "gc, number used again",
                destroyers: 0,
                collectors: 1,
                reuse: true,
                forks: 2,
                ..plain
            },
            Config {
                name: "gc, user stops",
                destroyers: 0,
                collectors: 1,
                user_stops: 1,
                forks: 2,
                ..plain
            },
            Config {
                name: "destroy and gc",
                collectors: 1,
                forks: 2,
                ..plain
            },
        ]);
    }
    all
}

#[test]
fn every_property_holds_in_every_environment() {
    for config in must_hold() {
        holds(&config);
    }
}

/// DESIGN 5, first and second outcome: without hostile SIGCONTs, and with up to four of them, there is no false success,
/// whatever PID 1 does. And whatever is killable is ended: nothing here ever answers anything but success.
#[test]
fn a_chain_is_always_ended_when_nobody_is_hostile() {
    for reaping in EVERY_REAPING {
        let running = Config {
            name: "nobody hostile",
            reaping,
            forks: 7,
            ..PLAIN
        };
        let before = Config {
            name: "ended before",
            reaping,
            ended: true,
            ..PLAIN
        };
        for config in [running, before] {
            let mut answers = holds(&config);
            if reaping == Reaping::Late {
                // The last zombie is reaped between the last probe and the scan behind it: the next destroy says ended.
                answers.remove(&Answered::Destroy(Answer::Alive(Doubt::NotProven)));
            }
            assert_eq!(answers, destroys(&[Answer::Ended]));
        }
    }
}

/// DESIGN 5, third outcome: gap 1.
#[test]
fn gap_1_five_hostile_sigconts_and_a_pid_1_that_never_reaps() {
    let gap = Config {
        name: "gap 1",
        reaping: Reaping::Never,
        hostile: 5,
        forks: 8,
        ..PLAIN
    };
    let result = run::<AllGuards>(&gap);
    let (property, path) = result.broken.expect("the gap that docs/LIMITS.md states");
    assert_eq!(property, Property::DestroyedProgramStopped);
    println!("gap 1: {path:?}");
}

/// DESIGN 5, fourth outcome: gap 2. The program has ended, and the only answer is that it may live.
#[test]
fn gap_2_a_foreign_proc_and_a_pid_1_that_never_reaps() {
    let gap = Config {
        name: "gap 2",
        reaping: Reaping::Never,
        ended: true,
        own_proc: false,
        ..PLAIN
    };
    assert_eq!(holds(&gap), destroys(&[Answer::Alive(Doubt::ForeignProc)]));
    let reaped = Config {
        name: "gap 2, reaped",
        reaping: Reaping::Prompt,
        ..gap
    };
    assert_eq!(holds(&reaped), destroys(&[Answer::Ended]));
}

/// DESIGN 5, fifth outcome: freezing only after Gone, and not after a witness that ended, is a false success with nobody
/// hostile at all.
#[test]
fn freezing_only_after_gone_is_a_false_success() {
    let config = Config {
        name: "freezes only after gone",
        reaping: Reaping::Never,
        forks: 8,
        ..PLAIN
    };
    let result = run::<NoFreezeAfterLostWitness>(&config);
    let tolerated = [Property::FreezesUnseenGroup];
    let story = explore::<NoFreezeAfterLostWitness>(&config, &tolerated)
        .broken
        .map(|(property, _)| property);
    assert_eq!(story, Some(Property::DestroyedProgramStopped));
    assert!(result.broken.is_some());
}

/// What the right answer is, environment by environment.
#[test]
fn answers_are_the_right_ones() {
    let unreadable = Config {
        name: "stopped, unreadable",
        stopped_before: true,
        readable: false,
        ..PLAIN
    };
    let answers = holds(&Config {
        forks: 0,
        ..unreadable
    });
    assert_eq!(
        answers,
        destroys(&[Answer::Alive(Doubt::StoppedAndUnreadable)]),
        "it stays stopped"
    );

    let stopped = Config {
        name: "stopped, ours",
        stopped_before: true,
        forks: 0,
        ..PLAIN
    };
    assert_eq!(holds(&stopped), destroys(&[Answer::Ended]));

    let stranger = Config {
        name: "number of a stranger",
        reaping: Reaping::Prompt,
        ended: true,
        reuse: true,
        forks: 0,
        ..PLAIN
    };
    let refused = Answer::Refused(Refusal::Unproven);
    // The third: it comes between the SIGSTOP that found nobody and the probe. The next destroy refuses.
    let late = Answer::Alive(Doubt::NotProven);
    assert_eq!(holds(&stranger), destroys(&[Answer::Ended, refused, late]));

    let rebooted = Config {
        name: "earlier boot",
        rebooted: true,
        ..PLAIN
    };
    assert_eq!(
        holds(&rebooted),
        destroys(&[Answer::Refused(Refusal::OtherBoot)])
    );
    let gc = Config {
        destroyers: 0,
        collectors: 1,
        ..rebooted
    };
    assert_eq!(holds(&gc), HashSet::from([Answered::Gc(Judgement::Over)]));

    let running = Config {
        name: "gc, running",
        destroyers: 0,
        collectors: 1,
        forks: 0,
        stopped_before: true,
        ..PLAIN
    };
    assert_eq!(
        holds(&running),
        HashSet::from([Answered::Gc(Judgement::Kept(Keep::Seen))])
    );

    let denied = Config {
        name: "other user's, alone",
        set_uid: true,
        ended: true,
        reaping: Reaping::Prompt,
        ..PLAIN
    };
    let answers = holds(&denied);
    assert!(
        answers.contains(&Answered::Destroy(Answer::Alive(Doubt::NotPermitted))),
        "{answers:?}"
    );
}

/// A group that is also a shell's: the engine itself cannot tell, which is why no such group is ever recorded.
#[test]
fn a_shells_job_would_be_killed_if_it_were_recorded() {
    let shared = Config {
        name: "own-group",
        shared: true,
        forks: 0,
        ..PLAIN
    };
    let result = run::<AllGuards>(&shared);
    assert_eq!(
        result.broken.map(|(property, _)| property),
        Some(Property::KillsOnlyOwn)
    );
}

/// Beyond the bounds: long chains, two destroys and a gc at once, everything that may go wrong. The seed is fixed.
#[test]
fn random_runs_beyond_the_bounds() {
    let began = Instant::now();
    let mut random = Seeded(20_240_229);
    let mut answers: HashSet<Answered> = HashSet::new();
    let runs: usize = std::env::var("CGLEAF_SIM_RUNS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(100_000);
    for _ in 0..runs {
        let config = random_config(&mut random);
        let eager = 1 + random.below(7);
        match random_run::<AllGuards>(&config, &mut random, eager) {
            Ok(more) => answers.extend(more),
            Err(property) => panic!("{config:?} breaks {property:?}"),
        }
    }
    println!(
        "{runs} random runs in {:.1} s; answers: {answers:?}",
        began.elapsed().as_secs_f64()
    );
    assert!(
        answers.len() > 6,
        "the runs reach too few of the answers: {answers:?}"
    );
}

/// At most four SIGCONTs that an engine did not send itself, the ones of another engine's way out included.
fn random_config(random: &mut Seeded) -> Config {
    let mut yes = |one_in: usize| random.below(one_in) == 0;
    let (destroyers, collectors) = if yes(2) {
        (1, 0)
    } else if yes(2) {
        (2, 0)
    } else {
        (1, 1)
    };
    let config = Config {
        name: "random",
        destroyers,
        collectors,
        stopped_before: yes(6),
        own_proc: !yes(10),
        readable: !yes(6),
        blurs: yes(3),
        reuse: yes(2),
        threaded: yes(4),
        ended: yes(10),
        slow_death: yes(4),
        set_uid: yes(8),
        hides: yes(2),
        user_stops: u8::from(yes(4)) * 2,
        ..PLAIN
    };
    let small = |number: usize| u8::try_from(number).unwrap_or(0);
    Config {
        reaping: EVERY_REAPING[random.below(3)],
        forks: small(random.below(60)),
        hostile: if destroyers + collectors == 1 {
            small(random.below(5))
        } else {
            0
        },
        ..config
    }
}
