//! Fork chains against the group tier, on real kernels: a destroy ends the chain or says that it may live, and never says
//! that it ended while it runs. `CGLEAF_GROUP_RUNS` is how many runs each case gets (2 without it), `CGLEAF_GROUP_WORKERS`
//! how many of them go on at once (2). One line of figures for each case. All of them:
//!
//!     CGLEAF_GROUP_RUNS=200 cargo test -p cgleaf-tests --test group_chains -- --nocapture --test-threads=1

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use cgleaf_tests::group::GroupCase;
use cgleaf_tests::lab::{CHAINS, Counter, hostile_program};
use cgleaf_tests::require;

const HOST: &str = env!("CARGO_BIN_EXE_group-host");

/// How long each link of a chain lives, in microseconds.
const LINKS: [u32; 3] = [500, 2_000, 4_000];

fn from_environment(name: &str, usual: u32) -> u32 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(usual)
}

fn runs() -> u32 {
    from_environment("CGLEAF_GROUP_RUNS", 2)
}

/// What came of the runs of one case.
#[derive(Debug, Default)]
struct Tally {
    ended: u32,
    partial: u32,
    falsely: u32,
    reasons: BTreeSet<String>,
}

impl Tally {
    fn add(&mut self, code: i32, said: &str, runs_on: impl FnOnce() -> bool) {
        match code {
            0 if runs_on() => self.falsely += 1,
            0 => self.ended += 1,
            5 => {
                self.partial += 1;
                let why = said.split(" [").next().unwrap_or_default();
                self.reasons.insert(why.to_owned());
            }
            other => panic!("exit {other}: {said}"),
        }
    }

    fn print(&self, case: &str) {
        let reasons: Vec<&str> = self.reasons.iter().map(String::as_str).collect();
        println!(
            "{case:<58} {:>4} ended {:>4} partial {:>3} falsely  {}",
            self.ended,
            self.partial,
            self.falsely,
            reasons.join("; ")
        );
    }
}

/// All runs of one case, some at once.
fn series(case: &str, one: impl Fn(&Mutex<Tally>) + Sync) -> Tally {
    let tally = Mutex::new(Tally::default());
    let begun = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..from_environment("CGLEAF_GROUP_WORKERS", 2) {
            scope.spawn(|| {
                while begun.fetch_add(1, Ordering::Relaxed) < runs() {
                    one(&tally);
                }
            });
        }
    });
    let tally = tally.into_inner().expect("a tally");
    tally.print(case);
    tally
}

/// One run by `exec`: a chain whose leader is long gone.
fn end_an_exec_chain(program: &str, link: u32, tally: &Mutex<Tally>) {
    let case = GroupCase::new(HOST);
    let counter = Counter::new(case.dir(), "counter").expect("a counter");
    let path = counter.path().to_string_lossy().into_owned();
    let mut leader = case.exec(&hostile_program(program), &[&path, &link.to_string()]);
    leader.wait().expect("the leader ends");
    counter.wait_for_more(5);
    let (code, said) = case.destroy(10_000, "name");
    let runs_on = code == 0 && !counter.stands_still();
    tally
        .lock()
        .expect("the tally")
        .add(code, &said, || runs_on);
}

/// The chains that are tried; `CGLEAF_GROUP_CHAINS` names others than all.
fn chains() -> Vec<&'static str> {
    let wanted = std::env::var("CGLEAF_GROUP_CHAINS").ok();
    let is_wanted = |name: &&str| {
        let mut names = wanted.iter().flat_map(|names| names.split(','));
        wanted.is_none() || names.any(|wanted| wanted == *name)
    };
    CHAINS.into_iter().filter(is_wanted).collect()
}

fn exec_chains(load: &str) {
    let mut falsely = 0;
    for program in chains() {
        for link in LINKS {
            let case = format!("exec, {program}, links of {link} µs, {load}");
            falsely += series(&case, |tally| end_an_exec_chain(program, link, tally)).falsely;
        }
    }
    assert_eq!(
        falsely, 0,
        "a destroy reported the end of a chain that runs on"
    );
}

#[test]
fn chains_whose_leader_is_gone() {
    require!(Cc);
    exec_chains("alone");
}

/// Processes that want a processor all the time, and end with this one, also if it is killed.
struct Load(Vec<Child>);

impl Load {
    fn new(count: usize) -> Load {
        let spin = || {
            let mut command = Command::new("sh");
            command
                .args(["-c", "while kill -0 $0; do :; done"])
                .arg(std::process::id().to_string())
                .stdin(Stdio::null())
                .stderr(Stdio::null());
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
    exec_chains("10 busy loops");
}

/// B12 in this tier: eight chains in one group, or away from it.
#[test]
fn eight_chains_at_once() {
    require!(Cc);
    for program in ["chain-plain", "chain-setsid", "chain-daemon"] {
        let tally = series(&format!("exec, eight of {program}"), |tally| {
            let case = GroupCase::new(HOST);
            let counter = Counter::new(case.dir(), "counter").expect("a counter");
            let script = format!(
                "for i in 1 2 3 4 5 6 7 8; do '{}' '{}' 2000 & done",
                hostile_program(program).display(),
                counter.path().display()
            );
            let mut leader = case.exec("sh", &["-c", &script]);
            leader.wait().expect("the leader ends");
            counter.wait_for_more(40);
            let (code, said) = case.destroy(10_000, "name");
            let runs_on = code == 0 && !counter.stands_still();
            tally
                .lock()
                .expect("the tally")
                .add(code, &said, || runs_on);
        });
        assert_eq!(tally.falsely, 0);
    }
}

/// With a monitor nothing gets away: groups of their own, POSIX sessions of their own, double forks, daemons.
#[test]
fn chains_beneath_a_monitor_are_all_ended() {
    require!(Cc);
    for program in chains() {
        for link in [1_000, 4_000] {
            let case = format!("run, {program}, links of {link} µs");
            let tally = series(&case, |tally| end_a_run_chain(program, link, tally));
            assert_eq!((tally.ended, tally.falsely), (runs(), 0), "{tally:?}");
        }
    }
}

fn end_a_run_chain(program: &str, link: u32, tally: &Mutex<Tally>) {
    let case = GroupCase::new(HOST);
    let counter = Counter::new(case.dir(), "counter").expect("a counter");
    let path = counter.path().to_string_lossy().into_owned();
    let mut run = case
        .run(
            "keep",
            &hostile_program(program),
            &[&path, &link.to_string()],
        )
        .spawn()
        .expect("start run");
    let status = run.wait().expect("the leader ends");
    assert_eq!(status.code(), Some(0), "{program}");
    counter.wait_for_more(5);
    let (code, said) = case.destroy(30_000, "name");
    let runs_on = code == 0 && !counter.stands_still();
    tally
        .lock()
        .expect("the tally")
        .add(code, &said, || runs_on);
}
