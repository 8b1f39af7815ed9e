//! Real runs of the group tier, by `group-host` built with the feature `trace`, as traces.

use std::fs;
use std::path::{Path, PathBuf};

use cgleaf_shared::process::{Pidfd, State};
use serde_json::Value;

use super::{Kind, begin, events, kill_traced};
use crate::group::{GroupCase, pid_of, state};
use crate::lab::{Counter, hostile_program};
use crate::scratch::wait_until;

/// How often a run is tried.
const TRIES: u32 = 20;

/// What a run is about.
pub type Scenario = (&'static str, fn(&GroupCase, &Path));

/// One of each kind.
pub const SCENARIOS: [Scenario; 8] = [
    ("chain", chain),
    ("two members", two_members),
    ("over, destroyed", over_destroyed),
    ("over, collected", over_collected),
    ("stopped by its user", stopped),
    ("a zombie leader", zombie_leader),
    ("two destroys", two_destroys),
    ("a destroy is killed", destroy_killed),
];

/// Does it, and gives its trace. Two that were to act at once may come one after the other; the model's story ends with the
/// first proven end, so that it is tried again.
///
/// # Panics
/// Where they never act at once.
pub fn run(host: &str, scenario: Scenario, dir: &Path, name: &str) -> PathBuf {
    for _ in 0..TRIES {
        let file = begin(dir, name, Kind::Group);
        let case = GroupCase::new(host).traced(&file);
        scenario.1(&case, &file);
        if !begins_after_the_end(&file) {
            return file;
        }
    }
    panic!("{name}: in {TRIES} tries one always began after the other's end");
}

/// Whether somebody began after another one had proven the end.
fn begins_after_the_end(file: &Path) -> bool {
    let text = fs::read_to_string(file).expect("read a trace");
    let times = |wanted: fn(&Value) -> bool| {
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let times: Vec<u64> = lines
            .filter(wanted)
            .filter_map(|line| line["t0"].as_u64())
            .collect();
        times
    };
    let begun = times(|line| line["event"] == "Begin");
    let ended = times(|line| line["event"] == "Report" && line["answer"] == "ended");
    ended.iter().min() < begun.iter().max() && !ended.is_empty()
}

/// A fork chain whose leader is gone; whatever `destroy` answers.
pub fn chain_beneath<T>(case: &GroupCase, link: u32, destroy: impl FnOnce() -> T) -> T {
    let counter = Counter::new(case.dir(), "counter").expect("a counter");
    let path = counter.path().to_string_lossy().into_owned();
    let mut leader = case.exec(&hostile_program("chain-plain"), &[&path, &link.to_string()]);
    leader.wait().expect("the leader ends");
    counter.wait_for_more(5);
    destroy()
}

fn chain(case: &GroupCase, _: &Path) {
    let (code, said) = chain_beneath(case, 500, || case.destroy(10_000, "ignore"));
    assert!(code == 0 || code == 5, "{said}");
}

fn two_members(case: &GroupCase, _: &Path) {
    let mut leader = case.exec("sh", &["-c", "sleep 300 & exec sleep 300"]);
    assert_eq!(case.destroy(10_000, "ignore").0, 0);
    leader.wait().expect("its end");
}

fn over_destroyed(case: &GroupCase, _: &Path) {
    let mut leader = case.exec("true", &[]);
    leader.wait().expect("its end");
    assert_eq!(case.destroy(10_000, "ignore").0, 0);
}

fn over_collected(case: &GroupCase, _: &Path) {
    let mut leader = case.exec("true", &[]);
    leader.wait().expect("its end");
    assert_eq!(case.gc(), "over");
}

fn stopped(case: &GroupCase, _: &Path) {
    let mut leader = case.exec("sleep", &["300"]);
    let pid = pid_of(&leader);
    Pidfd::open(pid)
        .expect("a pidfd")
        .send_signal(nix::libc::SIGSTOP)
        .expect("SIGSTOP");
    wait_until("the stop", || state(pid).is_some_and(State::is_stopped));
    assert!(case.gc().starts_with("kept"));
    assert_eq!(case.destroy(10_000, "ignore").0, 0);
    leader.wait().expect("its end");
}

/// Its parent does not reap it meanwhile.
fn zombie_leader(case: &GroupCase, _: &Path) {
    let mut leader = case.exec("sh", &["-c", "sleep 300 & exit 0"]);
    let pid = pid_of(&leader);
    wait_until("a zombie", || state(pid).is_some_and(State::is_over));
    assert_eq!(case.destroy(10_000, "ignore").0, 0);
    leader.wait().expect("its end");
}

fn two_destroys(case: &GroupCase, _: &Path) {
    chain_beneath(case, 1_000, || {
        let destroy = || {
            let mut command = case.command("destroy");
            command
                .args(["10000", "ignore"])
                .stdout(std::process::Stdio::null());
            command.spawn().expect("start a destroy")
        };
        for mut child in [destroy(), destroy()] {
            let code = child.wait().expect("its end").code();
            assert!(matches!(code, Some(0 | 5)), "{code:?}");
        }
    });
}

/// Killed whenever it happens; the next one finds whatever it left.
fn destroy_killed(case: &GroupCase, file: &Path) {
    let (code, said) = chain_beneath(case, 500, || {
        let mut command = case.command("destroy");
        command
            .args(["10000", "ignore"])
            .stdout(std::process::Stdio::null());
        let mut first = command.spawn().expect("start a destroy");
        let actor = format!("destroy-{}", first.id());
        wait_until("its first event", || !events(file, &actor).is_empty());
        kill_traced(file, &actor, "EngineDies", &["Report"], || {
            let _ = first.kill();
            first.wait().expect("its end");
        });
        case.destroy(10_000, "ignore")
    });
    assert!(code == 0 || code == 5, "{said}");
}
