//! `destroy` in the cgroup tier: what it answers, what it leaves, and who else may be at it.

use std::fs;
use std::process::Stdio;

use cgleaf_tests::frontend::{Answer, Sandbox, collect};
use cgleaf_tests::scratch::wait_until;
use cgleaf_tests::session::is_dead;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[test]
fn a_session_and_its_setsid_child_are_ended_once() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut leader = sandbox.background_with(
        "one",
        &["--name", "job"],
        ["sh", "-c", "setsid sleep 1000 & sleep 1000"],
    );
    wait_until("three members", || sandbox.members("one").len() == 3);
    let members = sandbox.members("one");
    let answer = sandbox.run(["--json", "destroy", "job"]);
    answer.expect(0);
    let result = answer.json()["result"].clone();
    assert_eq!(
        result,
        serde_json::json!({
            "session": "one", "destroyed": true, "tombstone": false, "tier": "cgroup",
            "killed": 3, "strays": [], "leftover": [], "notices": [],
        })
    );
    assert_eq!(leader.wait(), 137);
    assert!(members.into_iter().all(is_dead));
    assert!(!sandbox.leaf("one").exists());
    assert_eq!(sandbox.record("one").unwrap()["phase"], "destroyed");

    let again = sandbox.run(["--json", "destroy", "one"]);
    again.expect(4);
    assert_eq!(again.json()["error"]["code"], "SESSION_ALREADY_DESTROYED");
    let fine = sandbox.run(["--json", "destroy", "--if-exists", "one"]);
    fine.expect(0);
    assert_eq!(fine.json()["result"]["destroyed"], false);
    // The name is free again, and the id is not.
    sandbox
        .run(["run", "--name", "job", "--", "true"])
        .expect(0);
    sandbox
        .run(["run", "--session", "one", "--", "true"])
        .expect(125);
}

#[test]
fn an_id_that_nobody_knows_lays_a_tombstone_only_if_asked_to() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox.run(["destroy", "later"]).expect(3);
    assert_eq!(sandbox.record_files(), Vec::<String>::new());
    let answer = sandbox.run(["--json", "destroy", "--if-exists", "later"]);
    answer.expect(0);
    let result = &answer.json()["result"];
    assert_eq!(
        (&result["destroyed"], &result["tombstone"]),
        (&false.into(), &true.into())
    );
    assert_eq!(sandbox.record_files(), ["later.tomb"]);
    let file = sandbox.runtime().join("ran");
    for command in ["run", "exec"] {
        let started = sandbox.run([
            command,
            "--session",
            "later",
            "--",
            "touch",
            file.to_str().unwrap(),
        ]);
        started.expect(125);
    }
    assert!(!file.exists());
    // The helper ends and removes what was enrolled before it saw the tombstone.
    wait_until("the end of the leaf", || sandbox.leaves().is_empty());
    for bad in [
        "..",
        "../x",
        "/etc/x",
        "a/../../b",
        "a b",
        "",
        "-x",
        ".",
        "\u{1b}[31m",
    ] {
        sandbox.run(["destroy", "--if-exists", "--", bad]).expect(2);
    }
    sandbox
        .run(["destroy", "--if-exists", &"n".repeat(300)])
        .expect(2);
    assert_eq!(sandbox.record_files(), ["later.tomb"]);
}

#[test]
fn several_are_ended_in_one_call_and_one_that_is_not_there_keeps_none() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut leaders: Vec<_> = ["a", "b", "c"]
        .iter()
        .map(|id| sandbox.background(id, ["sleep", "1000"]))
        .collect();
    let answer = sandbox.run(["--json", "destroy", "a", "nobody", "b", "c"]);
    answer.expect(3);
    let error = answer.json()["error"].clone();
    assert_eq!(error["code"], "SESSION_NOT_FOUND");
    let sessions = error["details"]["sessions"].as_array().unwrap();
    let destroyed: Vec<_> = sessions
        .iter()
        .map(|one| one["destroyed"].as_bool().unwrap())
        .collect();
    assert_eq!(destroyed, [true, false, true, true], "{answer:?}");
    for leader in &mut leaders {
        leader.wait();
    }
    assert_eq!(sandbox.leaves(), Vec::<String>::new());
}

#[test]
fn a_grace_lets_a_program_end_by_itself_and_not_for_ever() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let file = sandbox.runtime().join("said");
    let polite = format!(
        "trap 'echo goodbye >{0}; exit 0' TERM; echo ready >{0}; while :; do sleep 0.01; done",
        file.display()
    );
    // Frozen by a user: it can only say goodbye when it is thawed.
    for frozen in [false, true] {
        let session = format!("polite-{frozen}");
        let mut leader = sandbox.background(&session, ["sh", "-c", &polite]);
        wait_until("the trap", || {
            fs::read_to_string(&file).is_ok_and(|text| text == "ready\n")
        });
        if frozen {
            sandbox.run(["freeze", &session]).expect(0);
        }
        sandbox
            .run(["destroy", "--grace", "1h", &session])
            .expect(0);
        assert_eq!(leader.wait(), 0);
        assert_eq!(fs::read_to_string(&file).unwrap(), "goodbye\n");
        fs::remove_file(&file).unwrap();
    }
    // A stopped one is continued, so that it hears the signal.
    let mut stopped = sandbox.background("stopped", ["sh", "-c", &polite]);
    wait_until("the trap", || file.exists());
    kill(Pid::from_raw(stopped.pid().cast_signed()), Signal::SIGSTOP).unwrap();
    sandbox
        .run(["destroy", "--grace", "1h", "stopped"])
        .expect(0);
    assert_eq!(stopped.wait(), 0);

    let mut deaf = sandbox.background("deaf", ["sh", "-c", "trap '' TERM; sleep 1000"]);
    wait_until("two members", || sandbox.members("deaf").len() == 2);
    sandbox
        .run(["destroy", "--grace", "100ms", "deaf"])
        .expect(0);
    assert_eq!(deaf.wait(), 137);
}

/// What ended by itself is destroyed all the same: nothing of it lives, and that is proven.
#[test]
fn a_session_that_has_ended_is_destroyed_with_nothing_to_kill() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox
        .run(["run", "--session", "r", "--", "true"])
        .expect(0);
    sandbox
        .run(["exec", "--session", "e", "--", "true"])
        .expect(0);
    for id in ["r", "e"] {
        wait_until("the end", || sandbox.state(id) == "ended");
        let answer = sandbox.run(["--json", "destroy", id]);
        answer.expect(0);
        assert_eq!(answer.json()["result"]["killed"], 0, "{answer:?}");
        assert_eq!(sandbox.state(id), "destroyed");
    }
    assert_eq!(sandbox.leaves(), Vec::<String>::new());
}

#[test]
fn a_destroy_from_inside_ends_everything_and_show_tells_it() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let program = sandbox.program();
    let script = format!(
        "sleep 1000 & {} destroy \"$CGLEAF_SESSION\"; sleep 1000",
        program.display()
    );
    let mut leader = sandbox.background("inside", ["sh", "-c", &script]);
    assert_eq!(leader.wait(), 137);
    wait_until("the end", || sandbox.state("inside") == "destroyed");
    let shown = sandbox.run(["--json", "show", "inside"]).json();
    assert_eq!(shown["result"]["members"], 0);
    // What it could not do itself is done by the next one.
    sandbox.run(["destroy", "inside"]).expect(0);
    assert!(!sandbox.leaf("inside").exists());
}

#[test]
fn a_destroy_from_a_nested_session_ends_the_outer_one_and_itself() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let program = sandbox.program();
    let inner = format!(
        "{} run --session inner -- sh -c '{0} destroy outer; sleep 1000'",
        program.display()
    );
    let mut leader = sandbox.background("outer", ["sh", "-c", &format!("{inner}; sleep 1000")]);
    assert_eq!(leader.wait(), 137);
    wait_until("the end", || sandbox.state("outer") == "destroyed");
    wait_until("the inner one's end", || {
        let state = sandbox.state("inner");
        state == "ended" || state == "destroyed"
    });
    sandbox.run(["destroy", "outer"]).expect(0);
    assert_eq!(sandbox.leaves(), Vec::<String>::new());
}

#[test]
fn a_nested_session_is_ended_with_the_outer_one_and_not_the_other_way_round() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut outer = sandbox.background("outer", ["sleep", "1000"]);
    let mut first = sandbox.background_with("first", &["--parent", "outer"], ["sleep", "1000"]);
    let mut second = sandbox.background_with("second", &["--parent", "outer"], ["sleep", "1000"]);
    sandbox.run(["destroy", "first"]).expect(0);
    first.wait();
    assert!(outer.lives() && second.lives());
    sandbox.run(["destroy", "outer"]).expect(0);
    outer.wait();
    second.wait();
    assert_eq!(sandbox.state("second"), "ended");
    assert_eq!(sandbox.leaves(), Vec::<String>::new());
}

/// B15: only 0, or "no such session" for the loser; no kernel's word gets out, and nobody waits for anybody.
#[test]
fn two_destroys_and_a_gc_at_once() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for round in 0..100 {
        let session = format!("s{round}");
        let mut leader = sandbox.background(&session, ["sleep", "1000"]);
        let start = |words: &[&str]| {
            let mut command = sandbox.cgleaf(words);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let children = [
            start(&["destroy", &session]),
            start(&["destroy", &session]),
            start(&["gc"]),
        ];
        let [one, other, gc] = children.map(collect);
        for answer in [&one, &other] {
            assert!(
                answer.code() == 0 || answer.stderr.contains("no such session"),
                "round {round}: {answer:?}"
            );
            assert!(no_errno(answer), "round {round}: {answer:?}");
        }
        assert!(one.code() == 0 || other.code() == 0, "{one:?} {other:?}");
        gc.expect(0);
        assert!(no_errno(&gc), "{gc:?}");
        leader.wait();
        assert!(!sandbox.leaf(&session).exists(), "round {round}");
    }
}

fn no_errno(answer: &Answer) -> bool {
    ["busy", "No such file", "No such device", "os error"]
        .iter()
        .all(|word| !answer.stderr.contains(word) && !answer.stdout.contains(word))
}

/// B24: whatever dies half way, the state is the kernel's and the second destroy ends it.
#[test]
fn helper_and_destroyer_killed_in_the_grace_leave_a_way_out() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for (round, frozen) in [(0, false), (1, true)] {
        let session = format!("s{round}");
        let mut leader = sandbox.background(&session, ["sh", "-c", "trap '' TERM; sleep 1000"]);
        wait_until("two members", || sandbox.members(&session).len() == 2);
        let mut destroyer = sandbox
            .cgleaf(["destroy", "--grace", "1h", &session])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("destroying", || sandbox.state(&session) == "destroying");
        if frozen {
            // The helper dies with a hold in the leaf's attributes.
            let mut holder = sandbox
                .cgleaf(["freeze", "--for", "1h", &session])
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            wait_until("the hold", || {
                sandbox
                    .leaf_file(&session, "cgroup.events")
                    .contains("frozen 1")
            });
            kill_helper(&sandbox);
            holder.kill().unwrap();
            holder.wait().unwrap();
        } else {
            kill_helper(&sandbox);
        }
        destroyer.kill().unwrap();
        destroyer.wait().unwrap();
        let state = sandbox.state(&session);
        assert!(state == "destroying" || state == "frozen", "{state}");
        assert!(leader.lives());
        sandbox.run(["destroy", &session]).expect(0);
        assert_eq!(leader.wait(), 137);
        assert_eq!(sandbox.state(&session), "destroyed");
    }
}

fn kill_helper(sandbox: &Sandbox) {
    let pid = sandbox.helper_pid().expect("a helper");
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    wait_until("the helper's end", || is_dead(pid));
}

/// The helper is gone, its leaf is there: the command starts another one, which takes the leaf over.
#[test]
fn every_command_works_after_the_helpers_death() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut leader = sandbox.background_with("s", &["--name", "n"], ["sleep", "1000"]);
    for words in [
        &["ps", "n"][..],
        &["freeze", "s"],
        &["thaw", "n"],
        &["signal", "n", "WINCH"],
    ] {
        kill_helper(&sandbox);
        assert!(["running", "frozen"].contains(&sandbox.state("n").as_str()));
        sandbox.run(words).expect(0);
    }
    kill_helper(&sandbox);
    let listed = sandbox.run(["--json", "list"]).json();
    assert_eq!(listed["result"]["sessions"][0]["state"], "running");
    sandbox.run(["destroy", "n"]).expect(0);
    leader.wait();
}

/// Nothing of a thousand sessions stays: no cgroup, file or process, and no descriptor in the helper.
#[test]
fn a_thousand_sessions_leave_nothing() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut first = sandbox.background("first", ["sleep", "1000"]);
    let helper = sandbox.helper_pid().expect("a helper");
    let descriptors = || fs::read_dir(format!("/proc/{helper}/fd")).unwrap().count();
    sandbox.run(["list"]).expect(0);
    let base = descriptors();
    for batch in 0..20 {
        let ids: Vec<String> = (0..50).map(|index| format!("s{batch}-{index}")).collect();
        let mut leaders: Vec<_> = ids
            .iter()
            .map(|id| {
                sandbox.background_with(id, &["--name", &format!("n-{id}")], ["sleep", "1000"])
            })
            .collect();
        assert_eq!(sandbox.leaves().len(), 51);
        let words: Vec<&str> = ["destroy"]
            .into_iter()
            .chain(ids.iter().map(String::as_str))
            .collect();
        sandbox.run(words).expect(0);
        for leader in &mut leaders {
            assert_eq!(leader.wait(), 137);
        }
    }
    assert_eq!(sandbox.leaves(), ["first"]);
    let removed = sandbox.run(["--json", "gc"]).json();
    assert_eq!(removed["result"]["removed"].as_array().unwrap().len(), 1000);
    assert_eq!(sandbox.record_files(), ["first.json"]);
    let names = fs::read_dir(sandbox.runtime().join("cgleaf/names")).unwrap();
    assert_eq!(names.count(), 0);
    wait_until("the helper's descriptors", || descriptors() == base);
    sandbox.run(["destroy", "first"]).expect(0);
    first.wait();
}
