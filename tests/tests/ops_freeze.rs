//! Freeze, thaw and signal on the real freezer.

use std::fs;
use std::process::Stdio;

use cgleaf_tests::frontend::Sandbox;
use cgleaf_tests::lab::{Counter, FrozenFilesystem, hostile_program};
use cgleaf_tests::require;
use cgleaf_tests::scratch::wait_until;
use cgleaf_tests::session::{Background, is_dead};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A hostile program, in no such hurry that a PID 1 that takes its time could not reap what ends.
fn chain(sandbox: &Sandbox, session: &str, name: &str) -> (Counter, Background) {
    let period = if name == "bomb" { "50000" } else { "2000" };
    let counter = Counter::new(sandbox.runtime(), session).unwrap();
    let program = hostile_program(name);
    let words = [
        program.as_os_str(),
        counter.path().as_os_str(),
        period.as_ref(),
    ];
    let leader = sandbox.background(session, words);
    counter.wait_for_more(20);
    if name == "bomb" {
        wait_until("a grown bomb", || counter.live() >= 200);
    }
    (counter, leader)
}

#[test]
fn a_counter_stands_still_between_freeze_and_thaw() {
    require!(Cgroup2, Cc);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for name in ["chain-daemon", "bomb", "nester"] {
        let (counter, _leader) = chain(&sandbox, name, name);
        sandbox.run(["freeze", name]).expect(0);
        let before = counter.ticks();
        assert_eq!(sandbox.state(name), "frozen");
        assert!(counter.stands_still(), "{name}");
        // Frozen already: nothing to do, and it says so.
        let again = sandbox.run(["--json", "freeze", name]);
        again.expect(0);
        assert_eq!(again.json()["result"]["was_frozen"], true);

        let listed = sandbox.run(["--json", "ps", name]).json()["result"].clone();
        assert_eq!(listed["complete"], true, "{}", listed["why"]);
        let mut pids: Vec<i64> = listed["members"]
            .as_array()
            .unwrap()
            .iter()
            .map(|member| member["pid"].as_i64().unwrap())
            .collect();
        pids.sort_unstable();
        assert_eq!(pids, all_members(&sandbox, name), "{name}");
        assert_eq!(counter.ticks(), before, "a listing lets nobody run");

        sandbox.run(["thaw", name]).expect(0);
        counter.wait_for_more(20);
        assert_eq!(sandbox.state(name), "running");
        sandbox.run(["destroy", name]).expect(0);
    }
}

/// What the kernel lists in the leaf and in everything beneath it.
fn all_members(sandbox: &Sandbox, session: &str) -> Vec<i64> {
    let mut pids = Vec::new();
    let mut next = vec![sandbox.leaf(session)];
    while let Some(dir) = next.pop() {
        let procs = fs::read_to_string(dir.join("cgroup.procs")).unwrap();
        pids.extend(procs.lines().map(|line| line.parse::<i64>().unwrap()));
        for entry in fs::read_dir(&dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                next.push(entry.path());
            }
        }
    }
    pids.sort_unstable();
    pids
}

/// `ps` of a running chain misses nobody either: its members are held for the time of the listing, and go on then.
#[test]
fn ps_of_a_moving_target_is_complete_and_leaves_it_moving() {
    require!(Cgroup2, Cc);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let (counter, _leader) = chain(&sandbox, "bomb", "bomb");
    for _ in 0..10 {
        let listed = sandbox.run(["--json", "ps", "bomb"]).json()["result"].clone();
        assert_eq!(listed["complete"], true, "{}", listed["why"]);
        // It counts a process before it exists and replaces each all the time: never more than 200 are alive, and one
        // that was just counted may not be there yet.
        let count = listed["members"].as_array().unwrap().len();
        assert!(count > 0 && count <= 400, "{count}");
    }
    counter.wait_for_more(20);
    assert_eq!(sandbox.leaf_file("bomb", "cgroup.freeze"), "0");
    sandbox.run(["destroy", "bomb"]).expect(0);
}

/// The kernel says `frozen 1` of a cgroup that has processes and children before all of its children are frozen; what
/// cgleaf says comes after the last of them.
#[test]
fn freeze_waits_for_the_whole_subtree() {
    require!(Cgroup2, Cc);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    // Sleepers in the leaf itself and in its children; a nester that moves about, and two that never sleep.
    let script = "for i in 1 2 3 4; do sleep 1000 & done; \
        (while :; do :; done) & (while :; do :; done) & exec \"$0\" \"$1\" 2000";
    let nester = hostile_program("nester");
    let counter = Counter::new(sandbox.runtime(), "counter").unwrap();
    let words = [
        "sh",
        "-c",
        script,
        nester.to_str().unwrap(),
        counter.path().to_str().unwrap(),
    ];
    let _leader = sandbox.background("nest", words);
    counter.wait_for_more(20);
    let leaf = sandbox.leaf("nest");
    for (index, pid) in sandbox.members("nest").into_iter().enumerate() {
        let place = leaf.join(format!("nested-{}", index % 3));
        // One may have ended meanwhile; every third stays where it is.
        if index % 3 != 0 {
            let _ = fs::write(place.join("cgroup.procs"), pid.to_string());
        }
    }
    let mut early = 0;
    for round in 0..60 {
        // Raw, to see that it does happen.
        fs::write(leaf.join("cgroup.freeze"), "1").unwrap();
        wait_until("the top's frozen 1", || {
            sandbox
                .leaf_file("nest", "cgroup.events")
                .contains("frozen 1")
        });
        early += usize::from(!subtree_is_frozen(&leaf));
        fs::write(leaf.join("cgroup.freeze"), "0").unwrap();

        sandbox.run(["freeze", "nest"]).expect(0);
        let before = counter.ticks();
        assert!(subtree_is_frozen(&leaf), "round {round}");
        assert_eq!(counter.ticks(), before, "round {round}");
        sandbox.run(["thaw", "nest"]).expect(0);
        if early > 0 && round >= 20 {
            break;
        }
    }
    println!("the kernel's word was early {early} times");
    sandbox.run(["destroy", "nest"]).expect(0);
}

fn subtree_is_frozen(dir: &std::path::Path) -> bool {
    let own = fs::read_to_string(dir.join("cgroup.events"))
        .is_ok_and(|events| events.contains("frozen 1"));
    own && fs::read_dir(dir).unwrap().all(|entry| {
        let entry = entry.unwrap();
        !entry.file_type().unwrap().is_dir() || subtree_is_frozen(&entry.path())
    })
}

#[test]
fn a_hold_ends_with_its_time_and_with_its_holder() {
    require!(Cgroup2, Cc);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let (counter, _leader) = chain(&sandbox, "held", "chain-plain");
    sandbox.run(["freeze", "--for", "50ms", "held"]).expect(0);
    counter.wait_for_more(20);

    // Killed while it holds.
    let mut holder = sandbox
        .cgleaf(["freeze", "--for", "1h", "held"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the hold", || {
        sandbox
            .leaf_file("held", "cgroup.events")
            .contains("frozen 1")
    });
    let thaw = sandbox.run(["--json", "thaw", "held"]);
    thaw.expect(5);
    assert_eq!(thaw.json()["error"]["code"], "PARTIAL");
    holder.kill().unwrap();
    holder.wait().unwrap();
    counter.wait_for_more(20);

    // One that a user froze stays so, whoever held it meanwhile and is gone.
    sandbox.run(["freeze", "held"]).expect(0);
    let mut holder = sandbox
        .cgleaf(["freeze", "--for", "1h", "held"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the second hold", || {
        let shown = sandbox.run(["--json", "show", "held"]).json();
        shown["result"]["held"] == true
    });
    holder.kill().unwrap();
    holder.wait().unwrap();
    wait_until("the end of the hold", || {
        sandbox.run(["--json", "show", "held"]).json()["result"]["held"] == false
    });
    assert_eq!(sandbox.state("held"), "frozen");
    assert!(counter.stands_still());
    sandbox.run(["thaw", "held"]).expect(0);
    counter.wait_for_more(20);
    sandbox.run(["destroy", "held"]).expect(0);
}

#[test]
fn a_frozen_ancestor_is_named_and_destroy_works_beneath_it() {
    require!(Cgroup2, Cc);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let outer = sandbox.background("outer", ["sleep", "1000"]);
    let counter = Counter::new(sandbox.runtime(), "counter").unwrap();
    let program = hostile_program("chain-setsid");
    let words = [
        program.as_os_str(),
        counter.path().as_os_str(),
        "200".as_ref(),
    ];
    let mut inner = sandbox.background_with("inner", &["--parent", "outer"], words);
    counter.wait_for_more(30);
    sandbox.run(["freeze", "outer"]).expect(0);
    assert_eq!(sandbox.state("inner"), "frozen");
    let shown = sandbox.run(["--json", "show", "inner"]).json();
    assert_eq!(shown["result"]["ancestor_frozen"], true);

    let thaw = sandbox.run(["--json", "thaw", "inner"]);
    thaw.expect(5);
    let ancestor = thaw.json()["error"]["details"]["frozen_ancestor"].to_string();
    assert!(ancestor.contains("cgleaf-outer.leaf"), "{thaw:?}");

    // Nobody in it can use a grace: the kill comes at once.
    sandbox.run(["destroy", "--grace", "1h", "inner"]).expect(0);
    let after = counter.ticks();
    inner.wait();
    assert_eq!(counter.ticks(), after);
    assert_eq!(sandbox.state("outer"), "frozen");
    sandbox.run(["thaw", "outer"]).expect(0);
    sandbox.run(["destroy", "outer"]).expect(0);
    drop(outer);
}

/// B19: the request does not stay when the freeze could not be had.
#[test]
fn a_freeze_that_times_out_is_taken_back_and_names_who_is_in_its_way() {
    require!(Cgroup2, LoopDevices);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let frozen = FrozenFilesystem::hold().expect("a frozen file system");
    let file = frozen.path().join("file");
    let mut writer = sandbox.background(
        "writer",
        [
            "dd",
            "if=/dev/zero",
            "bs=4096",
            "count=1",
            &format!("of={}", file.display()),
        ],
    );
    frozen.wait_for_writer(writer.pid());
    let answer = sandbox.run(["--json", "freeze", "writer"]);
    answer.expect(5);
    let error = &answer.json()["error"];
    assert_eq!(error["code"], "PARTIAL");
    let member = &error["details"]["members"][0];
    assert_eq!(member["pid"], writer.pid());
    assert_eq!(member["state"], "D");
    assert!(
        member["wait_channel"]
            .as_str()
            .is_some_and(|name| name.contains("percpu_rwsem")),
        "{member}"
    );
    assert_eq!(sandbox.leaf_file("writer", "cgroup.freeze"), "0");
    frozen.thaw();
    assert_eq!(writer.wait(), 0, "the program finishes");
    sandbox.run(["destroy", "writer"]).expect(0);
}

/// B20: bounded, named, nobody else affected, and a later destroy goes on from there.
#[test]
fn a_destroy_of_a_member_that_cannot_end_is_bounded_and_can_be_finished() {
    require!(Cgroup2, LoopDevices);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let frozen = FrozenFilesystem::hold().expect("a frozen file system");
    let file = frozen.path().join("file");
    let script = format!(
        "sleep 1000 & exec dd if=/dev/zero bs=4096 count=1 of={}",
        file.display()
    );
    let mut writer = sandbox.background("writer", ["sh", "-c", &script]);
    let mut other = sandbox.background("other", ["sleep", "1000"]);
    frozen.wait_for_writer(writer.pid());

    let answer = sandbox.run(["--json", "destroy", "--timeout", "300ms", "writer"]);
    answer.expect(5);
    let error = &answer.json()["error"];
    assert_eq!(
        (&error["code"], &error["retryable"]),
        (&"PARTIAL".into(), &true.into())
    );
    let members = error["details"]["members"].as_array().unwrap();
    assert_eq!(
        members.len(),
        1,
        "only the one that does not end is named: {answer:?}"
    );
    assert_eq!(members[0]["pid"], writer.pid());
    assert_eq!(members[0]["state"], "D");
    assert_eq!(sandbox.leaf_file("writer", "cgroup.freeze"), "0");
    assert_eq!(sandbox.state("writer"), "destroying");
    assert_eq!(sandbox.state("other"), "running");
    let listed = sandbox.run(["--json", "list"]).json();
    assert_eq!(listed["result"]["sessions"].as_array().unwrap().len(), 2);
    sandbox.run(["destroy", "other"]).expect(0);
    other.wait();
    let kept = sandbox.run(["--json", "gc"]).json();
    assert_eq!(kept["result"]["kept"][0]["session"], "writer", "{kept}");

    frozen.thaw();
    writer.wait();
    sandbox.run(["destroy", "writer"]).expect(0);
    assert_eq!(sandbox.state("writer"), "destroyed");
}

/// A member stopped before the freeze is still stopped after the thaw.
#[test]
fn a_stopped_member_stays_stopped() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let leader = sandbox.background("stopped", ["sleep", "1000"]);
    let pid = Pid::from_raw(leader.pid().cast_signed());
    kill(pid, Signal::SIGSTOP).unwrap();
    wait_until("the stop", || {
        sandbox.run(["--json", "show", "stopped"]).json()["result"]["leader"]["stopped"] == true
    });
    sandbox.run(["freeze", "stopped"]).expect(0);
    sandbox.run(["thaw", "stopped"]).expect(0);
    let shown = sandbox.run(["--json", "show", "stopped"]).json();
    assert_eq!(shown["result"]["leader"]["stopped"], true);
    sandbox.run(["signal", "stopped", "CONT"]).expect(0);
    wait_until("the continuation", || {
        sandbox.run(["--json", "show", "stopped"]).json()["result"]["leader"]["stopped"] == false
    });
    sandbox.run(["destroy", "stopped"]).expect(0);
}

/// 200 processes that keep forking: every one has the signal, also those that were just born.
#[test]
fn a_signal_reaches_every_one_of_two_hundred_that_keep_forking() {
    require!(Cgroup2, Cc);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for round in 0..5 {
        let session = format!("bomb{round}");
        let (counter, mut leader) = chain(&sandbox, &session, "bomb");
        let answer = sandbox.run(["--json", "signal", &session, "TERM"]);
        answer.expect(0);
        assert!(answer.json()["result"]["sent"].as_u64() > Some(0));
        // Nothing in it handles SIGTERM, so that whoever lives on was missed.
        wait_until("the end of the bomb", || {
            !sandbox
                .leaf_file(&session, "cgroup.events")
                .contains("populated 1")
        });
        assert!(counter.stands_still());
        leader.wait();
        sandbox.run(["destroy", &session]).expect(0);
    }
}

#[test]
fn what_needs_a_living_session_says_so() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox
        .run(["run", "--session", "over", "--", "true"])
        .expect(0);
    for words in [
        &["freeze", "over"][..],
        &["thaw", "over"],
        &["signal", "over", "TERM"],
        &["ps", "over"],
    ] {
        let answer = sandbox.run([&["--json"], words].concat());
        answer.expect(4);
        assert_eq!(
            answer.json()["error"]["code"],
            "SESSION_NOT_RUNNING",
            "{answer:?}"
        );
        let unknown: Vec<&str> = words
            .iter()
            .map(|word| if *word == "over" { "nobody" } else { word })
            .collect();
        sandbox.run(unknown).expect(3);
    }
    sandbox.run(["freeze", "../x"]).expect(2);
    let mut stays = sandbox.background("stays", ["sleep", "1000"]);
    sandbox.run(["signal", "stays", "FOO"]).expect(2);
    assert!(stays.lives());
    sandbox.run(["signal", "stays", "KILL"]).expect(0);
    assert_eq!(stays.wait(), 137);
    assert!(is_dead(stays.pid().cast_signed()));
}
