//! Records that several commands change at once: nobody's word is lost, and nobody writes over what is not theirs any more.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use cgleaf_tests::frontend::{Sandbox, instrumented_programs};
use cgleaf_tests::steps::Stage;

fn begin(sandbox: &Sandbox) {
    sandbox
        .run(["start", "--session", "s", "--", "sleep", "1000"])
        .expect(0);
}

fn quiet(mut command: Command) -> Command {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// A destroy that has only to write the last word, while another one ends the session too, and gc takes the record away and
/// frees the id.
fn a_late_destroy(meanwhile: impl FnOnce(&Sandbox)) -> Option<Sandbox> {
    let sandbox = Sandbox::with(instrumented_programs())?;
    begin(&sandbox);
    let socket = sandbox.runtime().join("steps");
    let destroy = quiet(sandbox.cgleaf(["destroy", "s"]));
    let mut stage = Stage::new(&socket, vec![destroy], &|_| false);
    while stage.at(0) != Some("destroy:ended") {
        assert!(stage.ended(0).is_none(), "it ended before");
        stage.step(0);
    }
    sandbox.run(["destroy", "s"]).expect(0);
    sandbox.run(["gc"]).expect(0);
    assert!(sandbox.record("s").is_none(), "gc has taken it");
    meanwhile(&sandbox);
    while stage.ended(0).is_none() {
        stage.step(0);
    }
    assert_eq!(stage.ended(0), Some(0), "it has ended all the same");
    drop(stage);
    Some(sandbox)
}

#[test]
fn a_late_destroy_brings_no_record_back() {
    let Some(sandbox) = a_late_destroy(|_| {}) else {
        return;
    };
    assert!(sandbox.record("s").is_none());
}

#[test]
fn a_late_destroy_writes_nothing_into_the_next_session_of_that_id() {
    let Some(sandbox) = a_late_destroy(begin) else {
        return;
    };
    let record = sandbox.record("s").expect("the next session's");
    assert_eq!(record["phase"], "running");
    let shown = sandbox.run(["show", "--json", "s"]);
    shown.expect(0);
    assert_eq!(
        shown.json()["result"]["state"],
        "running",
        "{}",
        shown.json()
    );
    sandbox.run(["destroy", "s"]).expect(0);
}

/// Whoever reads a record just while it is replaced sees the old one or the new one.
#[test]
fn a_record_that_is_just_being_replaced_is_never_damaged() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    begin(&sandbox);
    let path = sandbox.sessions().join("s.json");
    let next = sandbox.sessions().join(".new-0-another");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                std::fs::copy(&path, &next).expect("another one");
                std::fs::rename(&next, &path).expect("in its place");
            }
        });
        let answers: Vec<(i32, String)> = (0..100)
            .map(|_| {
                let answer = sandbox.run(["list", "--json"]);
                (answer.code(), answer.stdout)
            })
            .collect();
        over.store(true, Ordering::Relaxed);
        for (code, said) in answers {
            assert_eq!(code, 0, "{said}");
            assert!(said.contains("\"running\""), "{said}");
        }
    });
    sandbox.run(["destroy", "s"]).expect(0);
}
