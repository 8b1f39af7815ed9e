//! What does not want to end is ended: 0 from `destroy` means that a counter in shared memory stands still afterwards.

use cgleaf::ops::{DestroyOptions, KillWay, destroy};
use cgleaf_tests::frontend::Sandbox;
use cgleaf_tests::lab::{CHAINS, Counter, HOSTILE, hostile_program};
use cgleaf_tests::require;
use cgleaf_tests::session::Background;

/// A link's life in microseconds: long enough for a PID 1 that takes its time to reap what ends.
fn period(name: &str) -> &'static str {
    if name == "bomb" { "20000" } else { "1000" }
}

fn start(sandbox: &Sandbox, session: &str, name: &str, counter: &Counter) -> Background {
    let program = hostile_program(name);
    let words = [
        program.as_os_str(),
        counter.path().as_os_str(),
        period(name).as_ref(),
    ];
    let background = sandbox.background(session, words);
    counter.wait_for_more(30);
    background
}

fn destroyed_fifty_times(names: &[&str]) {
    require!(Cgroup2, Cc);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for name in names {
        let mut counters = Vec::new();
        for round in 0..50 {
            let counter = Counter::new(sandbox.runtime(), &format!("{name}-{round}")).unwrap();
            let session = format!("{name}-{round}");
            let mut leader = start(&sandbox, &session, name, &counter);
            let answer = sandbox.run(["--json", "destroy", &session]);
            answer.expect(0);
            let after = counter.ticks();
            assert_eq!(answer.json()["result"]["destroyed"], true, "{answer:?}");
            assert!(!sandbox.leaf(&session).exists(), "{answer:?}");
            leader.wait();
            counters.push((counter, after));
        }
        // All of them at once, and long after the first one's end.
        for (counter, after) in &counters {
            assert_eq!(counter.ticks(), *after, "{name} lives on");
        }
        let (last, _) = counters.last().expect("fifty counters");
        assert!(last.stands_still(), "{name} lives on");
    }
}

#[test]
fn plain_and_nohup_chains_end_fifty_times() {
    destroyed_fifty_times(&CHAINS[..2]);
}

#[test]
fn chains_in_groups_of_their_own_end_fifty_times() {
    destroyed_fifty_times(&CHAINS[2..4]);
}

#[test]
fn chains_in_sessions_of_their_own_end_fifty_times() {
    destroyed_fifty_times(&CHAINS[4..]);
}

#[test]
fn the_deaf_the_headless_the_bomb_and_the_nester_end_fifty_times() {
    destroyed_fifty_times(&HOSTILE[6..]);
}

/// B12: eight chains at once with links of 200 us, which outrun whoever lists and then kills. Few tries: a PID 1 must reap
/// every link.
#[test]
fn eight_fast_chains_in_one_session_end_at_the_first_try() {
    require!(Cgroup2, Cc);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for round in 0..5 {
        let counter = Counter::new(sandbox.runtime(), &format!("fast-{round}")).unwrap();
        let eight = CHAINS.iter().chain(&CHAINS[..2]).map(|name| {
            let program = hostile_program(name);
            format!("{} \"$1\" 200 & ", program.display())
        });
        let script = format!("{}wait; exec sleep 1000", eight.collect::<String>());
        let words = ["sh", "-c", &script, "sh", counter.path().to_str().unwrap()];
        let session = format!("fast-{round}");
        let mut leader = sandbox.background(&session, words);
        counter.wait_for_more(100);
        sandbox.run(["destroy", &session]).expect(0);
        let after = counter.ticks();
        assert!(counter.stands_still());
        assert_eq!(counter.ticks(), after);
        leader.wait();
    }
}

#[test]
fn all_of_them_with_two_thousand_processes_end_in_one_call() {
    require!(Cgroup2, Cc);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let counter = Counter::new(sandbox.runtime(), "counter").unwrap();
    let all: Vec<String> = HOSTILE
        .iter()
        .map(|name| {
            format!(
                "{} \"$1\" {} &",
                hostile_program(name).display(),
                period(name)
            )
        })
        .collect();
    let sleepers = hostile_program("sleepers");
    let script = format!(
        "{}\nexec {} \"$1\" 0 2000",
        all.join("\n"),
        sleepers.display()
    );
    let words = ["sh", "-c", &script, "sh", counter.path().to_str().unwrap()];
    let mut leader = sandbox.background("all", words);
    cgleaf_tests::scratch::wait_until("2,000 processes", || sandbox.members("all").len() > 2000);
    counter.wait_for_more(1000);

    let answer = sandbox.run(["--json", "destroy", "all"]);
    answer.expect(0);
    let after = counter.ticks();
    assert!(
        answer.json()["result"]["killed"].as_u64() > Some(2000),
        "{answer:?}"
    );
    assert!(counter.stands_still());
    assert_eq!(counter.ticks(), after);
    assert!(!sandbox.leaf("all").exists());
    leader.wait();
}

/// Kernels before 5.14 have no `cgroup.kill`: hold, list, signal each, until nobody is left.
#[test]
fn without_cgroup_kill_the_chains_end_too() {
    require!(Cgroup2, Cc);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let options = DestroyOptions {
        kill: KillWay::Each,
        ..DestroyOptions::default()
    };
    for name in HOSTILE {
        for round in 0..10 {
            let counter = Counter::new(sandbox.runtime(), &format!("{name}-{round}")).unwrap();
            let session = format!("{name}-{round}");
            let mut leader = start(&sandbox, &session, name, &counter);
            let done = destroy(&sandbox.reach(), &session, &options).unwrap();
            let after = counter.ticks();
            assert!(done.destroyed && done.killed > 0, "{done:?}");
            leader.wait();
            assert!(!sandbox.leaf(&session).exists());
            assert_eq!(counter.ticks(), after, "{name}");
        }
    }
}
