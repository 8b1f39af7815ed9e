//! Fork chains against the group tier, on real kernels: a destroy ends the chain or says that it may live, and never says
//! that it ended while it runs. `CGLEAF_GROUP_RUNS` is how many runs each case gets (20 without it).

use std::process::{Child, Command, Stdio};

use cgleaf_tests::group::GroupCase;
use cgleaf_tests::lab::{Counter, hostile_program};
use cgleaf_tests::require;

const HOST: &str = env!("CARGO_BIN_EXE_group-host");

fn runs() -> u32 {
    std::env::var("CGLEAF_GROUP_RUNS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20)
}

/// What came of the runs of one case.
#[derive(Debug, Default)]
struct Tally {
    ended: u32,
    partial: u32,
    last_reason: String,
}

/// One run by `exec`: a chain whose leader is long gone.
fn end_an_exec_chain(program: &str, link: u32, tally: &mut Tally) {
    let case = GroupCase::new(HOST);
    let counter = Counter::new(case.dir(), "counter").expect("a counter");
    let path = counter.path().to_string_lossy().into_owned();
    let mut leader = case.exec(&hostile_program(program), &[&path, &link.to_string()]);
    leader.wait().expect("the leader ends");
    counter.wait_for_more(5);
    let (code, said) = case.destroy(10_000, "ignore");
    match code {
        0 => {
            assert!(
                counter.stands_still(),
                "success, and the chain runs on (links of {link} µs): {said}"
            );
            tally.ended += 1;
        }
        5 => {
            tally.partial += 1;
            tally.last_reason = said;
        }
        other => panic!("exit {other}: {said}"),
    }
}

fn chains(load: &str) {
    for link in [500, 2_000, 4_000] {
        let mut tally = Tally::default();
        for _ in 0..runs() {
            end_an_exec_chain("chain-plain", link, &mut tally);
        }
        println!(
            "{load}, links of {link} µs: {} ended, {} partial {}",
            tally.ended, tally.partial, tally.last_reason
        );
    }
}

#[test]
fn chains_whose_leader_is_gone() {
    require!(Cc);
    chains("plain");
}

/// Processes that want a processor all the time.
struct Load(Vec<Child>);

impl Load {
    fn new(count: usize) -> Load {
        let spin = || {
            let mut command = Command::new("sh");
            command
                .args(["-c", "while :; do :; done"])
                .stdin(Stdio::null());
            command.spawn().expect("a busy loop")
        };
        Load((0..count).map(|_| spin()).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn chains_whose_leader_is_gone_under_load() {
    require!(Cc);
    let _load = Load::new(10);
    chains("10 busy loops");
}

/// With a monitor nothing gets away: groups of their own, POSIX sessions of their own, daemons.
#[test]
fn chains_beneath_a_monitor_are_all_ended() {
    require!(Cc);
    for program in [
        "chain-plain",
        "chain-setpgid",
        "chain-setsid-once",
        "chain-setsid",
        "chain-daemon",
    ] {
        for _ in 0..runs() {
            let case = GroupCase::new(HOST);
            let counter = Counter::new(case.dir(), "counter").expect("a counter");
            let path = counter.path().to_string_lossy().into_owned();
            let mut run = case
                .run("keep", &hostile_program(program), &[&path, "1000"])
                .spawn()
                .expect("start run");
            assert_eq!(
                run.wait().expect("the leader ends").code(),
                Some(0),
                "{program}"
            );
            counter.wait_for_more(5);
            let (code, said) = case.destroy(30_000, "name");
            assert_eq!(code, 0, "{program}: {said}");
            assert!(counter.stands_still(), "{program} runs on after a success");
        }
        println!(
            "{program} beneath a monitor: {} of {} ended",
            runs(),
            runs()
        );
    }
}
