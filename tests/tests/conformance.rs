//! The code is held to the model: what it did in simulated runs, in real ones and in those where somebody was killed is a
//! behaviour of tla/Lifecycle.tla, says TLC; small lies about it, and runs of an engine without one of its freezes, are none.
//!
//! Needs the cargo feature `trace`, and what tla/check needs: `cargo test -p cgleaf-tests --features trace --test conformance`.
//! `CGLEAF_TRACES` is how many times as many runs there are (1 without it).
#![cfg(feature = "trace")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cgleaf::group::guards::{AllGuards, Guards};
use cgleaf_tests::conformance::group::chain_beneath;
use cgleaf_tests::conformance::leaf::Run;
use cgleaf_tests::conformance::{Kind, Said, begin, group, judge, judge_tampered, leaf, simulated};
use cgleaf_tests::group::GroupCase;
use cgleaf_tests::require;
use cgleaf_tests::sim::explore::Seeded;
use cgleaf_tests::sim::mutants::{
    NoContOnWayOut, NoFreezeAfterGone, NoFreezeAfterLostWitness, NoFreezeAfterUnknown, NoGcFreezes,
    NoLastLookFrozen,
};

const HOST: &str = env!("CARGO_BIN_EXE_group-host");

/// Real runs: of each kind in the group tier, of each in the cgroup tier, of each crash, orders of a create and a destroy.
const OF_EACH_GROUP: usize = 8;
const OF_EACH_LEAF: usize = 3;
const OF_EACH_CRASH: usize = 2;
const ORDERS: usize = 30;
/// And simulated ones.
const SIMULATED: usize = 60;
/// Runs wait most of the time: so many go on at once.
const AT_ONCE: usize = 4;

fn times() -> usize {
    std::env::var("CGLEAF_TRACES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1)
}

/// Prints what the checker said of each kind of run; the whole of it where something was refused that must not be.
fn accepted(kinds: &[(&str, Vec<PathBuf>)]) {
    let traces: Vec<PathBuf> = kinds.iter().flat_map(|(_, files)| files.clone()).collect();
    let said = judge(&traces);
    for (kind, files) in kinds {
        let number = files
            .iter()
            .filter(|file| said.of(file) == Some("accepted"))
            .count();
        println!("{kind:<52} {number:>4} of {:>4} accepted", files.len());
    }
    let lines: usize = traces
        .iter()
        .map(|file| fs::read_to_string(file).map_or(0, |text| text.lines().count() - 1))
        .sum();
    println!(
        "{} traces of {lines} events accepted, {} refused",
        said.accepted, said.refused
    );
    if said.refused > 0 {
        for file in &traces {
            if said.of(file) != Some("accepted") {
                let text = fs::read_to_string(file).unwrap_or_default();
                println!("{}: {:?}\n{text}", file.display(), said.of(file));
            }
        }
        panic!("{} runs are no behaviours of the model", said.refused);
    }
}

fn simulated_runs(dir: &Path, count: usize) -> Vec<PathBuf> {
    let mut random = Seeded(7);
    (0..count)
        .map(|number| {
            let name = format!("simulated-{number}");
            let (file, answers) = simulated::run::<AllGuards>(&mut random, dir, &name);
            answers.unwrap_or_else(|property| panic!("{name} breaks {property:?}"));
            file
        })
        .collect()
}

/// What `one` gives for each of these numbers, some at once; nothing where this machine cannot do it.
fn at_once(count: usize, one: impl Fn(usize) -> Option<PathBuf> + Sync) -> Option<Vec<PathBuf>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(vec![None; count]);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    let file = one(number);
                    done.lock().expect("the traces")[number] = file;
                }
            });
        }
    });
    done.into_inner().expect("the traces").into_iter().collect()
}

fn group_runs(dir: &Path, of_each: usize) -> Vec<PathBuf> {
    let kinds = group::SCENARIOS;
    let runs = at_once(kinds.len() * of_each, |number| {
        let scenario = kinds[number % kinds.len()];
        Some(group::run(HOST, scenario, dir, &format!("group-{number}")))
    });
    runs.expect("every machine can")
}

fn leaf_run(dir: &Path, name: &str, what: &dyn Fn(&Run)) -> Option<PathBuf> {
    let run = Run::new(dir, name)?;
    what(&run);
    Some(run.file().to_path_buf())
}

fn leaf_runs(dir: &Path, of_each: usize) -> Option<Vec<PathBuf>> {
    let kinds = leaf::SCENARIOS;
    at_once(kinds.len() * of_each, |number| {
        let (_, scenario) = kinds[number % kinds.len()];
        leaf_run(dir, &format!("leaf-{number}"), &scenario)
    })
}

fn crash_runs(dir: &Path, of_each: usize) -> Option<Vec<PathBuf>> {
    let kinds = leaf::crashes();
    at_once(kinds.len() * of_each, |number| {
        let (_, crash) = &kinds[number % kinds.len()];
        leaf_run(dir, &format!("crash-{number}"), crash)
    })
}

fn turns(dir: &Path, count: usize) -> Option<Vec<PathBuf>> {
    // Every order is tried by launch_steps; here some of them, from all over.
    at_once(count, |number| {
        let mut random = Seeded(11 * (number as u64 + 1));
        let run = Run::new(dir, &format!("turns-{number}"))?;
        leaf::taking_turns(&run, |of| random.below(of));
        Some(run.file().to_path_buf())
    })
}

#[test]
fn what_the_code_does_is_a_behaviour_of_the_model() {
    require!(Root, Cgroup2, Cc, Model);
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    let (Some(runs), Some(crashes), Some(turns)) = (
        leaf_runs(dir, OF_EACH_LEAF * times()),
        crash_runs(dir, OF_EACH_CRASH * times()),
        turns(dir, ORDERS * times()),
    ) else {
        return;
    };
    let real = [
        (
            "group tier, real kernel",
            group_runs(dir, OF_EACH_GROUP * times()),
        ),
        ("cgroup tier, real kernel", runs),
        ("cgroup tier, somebody is killed at some step", crashes),
        ("cgroup tier, a create and a destroy in turns", turns),
    ];
    let count: usize = real.iter().map(|(_, files)| files.len()).sum();
    assert!(count >= 200, "{count} real runs");
    println!("{count} runs of real processes on the real kernel");
    accepted(&real);
    let simulated = simulated_runs(dir, SIMULATED * times());
    accepted(&[("group tier, simulated kernel", simulated)]);
}

/// Of some runs of every kind, every line dropped, every two swapped, every verdict changed.
#[test]
fn a_lie_about_a_run_is_refused() {
    require!(Root, Cgroup2, Cc, Model);
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    let mut files = simulated_runs(dir, 3 * times());
    files.extend(group_runs(dir, times()));
    for (number, name) in ["exec, destroy", "gc before and after"].iter().enumerate() {
        let scenario = leaf::SCENARIOS.iter().find(|(other, _)| other == name);
        let scenario = scenario.expect("a scenario").1;
        match leaf_run(dir, &format!("leaf-{number}"), &scenario) {
            Some(file) => files.push(file),
            None => return,
        }
    }
    let said = judge_tampered(&files);
    println!("of {} runs: {}", files.len(), said.text);
    assert!(said.refused > 100);
    assert_eq!(said.accepted, 0);
}

/// Runs of a simulated engine without one of its guards. Some of them go the way that the guard closes; how the first that
/// is refused is.
fn simulated_without<G: Guards>(guard: &str, dir: &Path) -> Said {
    let mut random = Seeded(3);
    let files: Vec<PathBuf> = (0..20)
        .map(|number| simulated::run::<G>(&mut random, dir, &format!("{guard}-{number}")).0)
        .collect();
    let said = judge(&files);
    let first = files.iter().find(|file| said.of(file) != Some("accepted"));
    let first = first.unwrap_or_else(|| panic!("without {guard} every run is accepted"));
    println!(
        "without {guard:<26} {:>2} of {} refused; {}",
        said.refused,
        files.len(),
        shown(first, said.of(first).unwrap_or_default())
    );
    said
}

/// Where a trace was refused, with what came before it.
fn shown(file: &Path, said: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let at = said
        .split(|letter: char| !letter.is_ascii_digit())
        .find_map(|word| word.parse::<usize>().ok())
        .unwrap_or(1);
    let before = text.lines().nth(at.saturating_sub(2)).unwrap_or_default();
    let before: serde_json::Value = serde_json::from_str(before).unwrap_or_default();
    format!("{said}, after {} {}", before["event"], before["verdict"])
}

#[test]
fn an_engine_that_drops_a_freeze_is_refused() {
    require!(Model);
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    simulated_without::<NoFreezeAfterGone>("freeze-after-gone", dir);
    simulated_without::<NoFreezeAfterUnknown>("freeze-after-unknown", dir);
    simulated_without::<NoFreezeAfterLostWitness>("freeze-after-lost-witness", dir);
    simulated_without::<NoLastLookFrozen>("last-look-frozen", dir);
    simulated_without::<NoGcFreezes>("gc-freezes", dir);
    simulated_without::<NoContOnWayOut>("cont-on-way-out", dir);
}

/// The same with real processes: an engine that does not freeze after Gone, against a chain that no look shows.
#[test]
fn a_real_destroy_that_drops_a_freeze_is_refused() {
    require!(Cc, Model);
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    let files: Vec<PathBuf> = (0..10)
        .map(|number| {
            let file = begin(dir, &format!("real-{number}"), Kind::Group);
            let case = GroupCase::new(HOST).traced(&file);
            chain_beneath(&case, 500, || {
                let mut command = case.command("destroy-without-freeze");
                command.arg("2000").stdout(Stdio::null());
                command.status().expect("start group-host")
            });
            file
        })
        .collect();
    let said = judge(&files);
    let refused = files.iter().find(|file| said.of(file) != Some("accepted"));
    let refused = refused.expect("a chain that the first look does not show");
    println!(
        "{} of {} refused; {}",
        said.refused,
        files.len(),
        shown(refused, said.of(refused).unwrap_or_default())
    );
}
