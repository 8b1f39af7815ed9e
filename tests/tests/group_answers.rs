//! What the program itself answers of a chain of forks in the group tier, from its first command to its last: that it runs, until it is
//! proven to have ended. `CGLEAF_GROUP_RUNS` is how many runs each kind of chain gets (2 without it).

use std::collections::BTreeMap;

use cgleaf_tests::frontend::Sandbox;
use cgleaf_tests::lab::{CHAINS, Counter, hostile_program};
use cgleaf_tests::require;

/// How long each link of a chain lives, in microseconds.
const LINKS: [u32; 3] = [500, 2_000, 4_000];

fn runs() -> usize {
    let wanted = std::env::var("CGLEAF_GROUP_RUNS").ok();
    wanted.and_then(|text| text.parse().ok()).unwrap_or(2)
}

/// What destroy answers. Where others make more processes than can be read, it cannot be told whether the chain runs.
fn answer(sandbox: &Sandbox, program: &str, run: usize) -> &'static str {
    let counter = Counter::new(sandbox.runtime(), "counter").expect("a counter");
    let session = format!("{program}-{run}");
    let path = hostile_program(program).display().to_string();
    let file = counter.path().display().to_string();
    let words = [path, file, LINKS[run % LINKS.len()].to_string()];
    let mut leader = sandbox.background_in_a_group(&session, &["--tier", "group"], words);
    leader.wait();
    counter.wait_for_more(5);
    let state = sandbox.state(&session);
    assert!(["running", "unknown"].contains(&&*state), "{state}");
    let waited = sandbox.run(["wait", "--timeout", "1ms", &session]);
    assert!([11, 7].contains(&waited.code()), "{waited:?}");
    let kept = sandbox.run(["--json", "gc"]).json()["result"].clone();
    assert_eq!(kept["removed"], serde_json::json!([]), "{kept}");
    let destroyed = sandbox.run(["--json", "destroy", &session]);
    let error = destroyed.json()["error"].clone();
    let answer = match destroyed.code() {
        0 if !counter.stands_still() => "falsely",
        0 => "ended",
        5 if error["details"]["strays"][0]["pid"].is_i64() => "named",
        5 if error.to_string().contains("could be read") => "untold",
        _ => panic!("{destroyed:?}"),
    };
    drop(counter);
    sandbox.run(["destroy", "--strays", "ignore", &session]);
    sandbox.run(["gc"]);
    answer
}

#[test]
fn no_chain_is_said_to_have_ended_that_runs() {
    require!(Cc);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut falsely = 0;
    for program in CHAINS {
        let mut answers = BTreeMap::new();
        for run in 0..runs() {
            *answers.entry(answer(&sandbox, program, run)).or_insert(0) += 1;
        }
        println!("{program:<20} {answers:?}");
        falsely += answers.get("falsely").unwrap_or(&0);
    }
    assert_eq!(falsely, 0, "a chain runs on, and a destroy answered 0");
}
