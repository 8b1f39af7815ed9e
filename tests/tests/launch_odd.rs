//! Ends that are out of the ordinary: real-time signals, leaders that somebody moved, terminals that go away.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use cgleaf_tests::frontend::{Sandbox, finish, wait_for};
use cgleaf_tests::scratch::{Scratch, wait_until};
use cgleaf_tests::session::Background;

#[test]
fn a_real_time_signal_ends_a_program_as_any_other() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for tier in ["cgroup", "group"] {
        for signal in [34, 64] {
            let kill = format!("kill -{signal} $$");
            let words = ["run", "--tier", tier, "--quiet", "--", "sh", "-c", &kill];
            sandbox.run(words).expect(128 + signal);
            let session = format!("{tier}{signal}");
            let words = ["start", "--tier", tier, "--quiet", "--session", &session];
            let program = ["--", "sh", "-c", &kill];
            sandbox.run(words.iter().chain(&program)).expect(0);
            sandbox.run(["wait", &session]).expect(128 + signal);
        }
    }
}

#[test]
fn an_unknown_end_is_said_to_be_unknown() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox
        .run(["exec", "--session", "nobody", "--", "sh", "-c", "exit 5"])
        .expect(5);
    let answer = sandbox.run(["wait", "nobody"]);
    answer.expect(0);
    assert!(answer.stderr.contains("not known"), "{answer:?}");
}

#[test]
fn the_callers_umask_takes_nothing_from_the_records() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let script = "umask 777; cgleaf start --session masked -- sleep 1000; exec cgleaf run --quiet -- sh -c umask";
    let answer = finish(sandbox.bash(script));
    assert!(answer.expect(0).ends_with("0777"), "{answer:?}");
    for (path, mode) in [
        (sandbox.sessions(), 0o700),
        (sandbox.sessions().join("masked.json"), 0o600),
    ] {
        let seen = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(seen & 0o777, mode, "{}", path.display());
    }
    sandbox.run(["destroy", "masked"]).expect(0);
}

#[test]
fn the_kernels_own_threads_are_not_adopted() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let is_kthreadd = fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n");
    if !is_kthreadd {
        cgleaf_tests::scratch::skip("pid 2 is no kernel thread here");
        return;
    }
    let answer = sandbox.run(["adopt", "--name", "kernel", "2"]);
    answer.expect(2);
    assert!(answer.stderr.contains("kernel's own"), "{answer:?}");
    assert_eq!(sandbox.leaves(), Vec::<String>::new());
}

fn move_out(outside: &Scratch, pid: u32) {
    fs::write(outside.path().join("cgroup.procs"), pid.to_string()).unwrap();
}

fn moved(sandbox: &Sandbox, outside: &Scratch, session: &str) -> Background {
    let leader = sandbox.background(session, ["sleep", "1000"]);
    move_out(outside, leader.pid());
    leader
}

/// PAM and service managers move processes: a session whose leader runs on elsewhere is not over.
#[test]
fn a_session_whose_leader_was_moved_out_is_not_over() {
    let (Some(sandbox), Some(outside)) = (Sandbox::new(), Scratch::new(0)) else {
        return;
    };
    let mut leader = moved(&sandbox, &outside, "moved");
    assert_eq!(sandbox.state("moved"), "running");
    assert!(sandbox.run(["list"]).expect(0).contains("moved"));
    let kept = sandbox.run(["gc"]);
    assert!(kept.expect(0).contains("kept moved"), "{kept:?}");
    sandbox
        .run(["wait", "moved", "--timeout", "50ms"])
        .expect(11);
    let answer = sandbox.run(["freeze", "moved"]);
    assert!(answer.stderr.contains("moved out"), "{answer:?}");
    sandbox.run(["destroy", "moved"]).expect(5);
    assert!(leader.lives());
    sandbox
        .run(["destroy", "--strays", "kill", "moved"])
        .expect(0);
    assert_eq!(leader.wait(), 137);
}

/// The helper's word on who leads is gone with the leaf; the record's and the mark together are as good.
#[test]
fn a_leader_that_was_moved_out_can_be_ended_after_its_leaf_is_gone() {
    let (Some(sandbox), Some(outside)) = (Sandbox::new(), Scratch::new(0)) else {
        return;
    };
    let mut leader = moved(&sandbox, &outside, "late");
    sandbox.run(["destroy", "late"]).expect(5);
    assert!(!sandbox.leaf("late").exists());
    sandbox
        .run(["destroy", "--strays", "kill", "late"])
        .expect(0);
    assert_eq!(leader.wait(), 137);
}

#[test]
fn a_timeout_ends_a_program_that_was_moved_out() {
    let (Some(sandbox), Some(outside)) = (Sandbox::new(), Scratch::new(0)) else {
        return;
    };
    let script = "trap '' TERM HUP; echo 0 > \"$1/cgroup.procs\"; exec sleep 1000";
    let place = outside.path().display().to_string();
    let words = [
        "run",
        "--timeout",
        "1s",
        "--",
        "sh",
        "-c",
        script,
        "sh",
        &place,
    ];
    sandbox.run(words).expect(124);
}

/// A destroy from inside a session ends itself before it can write that it is done.
#[test]
fn gc_finishes_a_destroy_from_inside() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let words = [
        "start",
        "--session",
        "inside",
        "--",
        "cgleaf",
        "destroy",
        "inside",
    ];
    sandbox.run(words).expect(0);
    wait_until("its end", || sandbox.state("inside") == "destroyed");
    wait_until("gc to take it", || {
        sandbox.run(["gc"]).expect(0).contains("removed inside")
    });
    assert!(sandbox.record("inside").is_none());
}

/// The kernel tells the end of a terminal to its session's leader alone; a program that is not told runs on for ever.
#[test]
fn a_terminal_that_goes_away_ends_what_it_was_opened_for() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for (session, program) in [
        ("alone", "sleep 1000"),
        ("several", "sh -c 'sleep 1000 & sleep 1000'"),
    ] {
        let mut terminal = cgleaf_tests::terminal::Terminal::new(&sandbox);
        terminal.type_in(&format!(
            "exec cgleaf run --session {session} -- {program}\r"
        ));
        wait_until("the program", || !sandbox.members(session).is_empty());
        terminal.hang_up();
        wait_until("the end", || sandbox.leaves().is_empty());
        let mut gone = sandbox
            .cgleaf(["destroy", "--if-exists", session])
            .spawn()
            .unwrap();
        assert!(wait_for(&mut gone).success());
        sandbox.run(["gc"]).expect(0);
    }
}

/// Records name paths, in JSON.
#[test]
fn a_socket_whose_path_is_not_utf8_is_refused_as_that() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let odd = sandbox.runtime().join(OsStr::from_bytes(b"odd\xff"));
    let named = |words: &[&str], status: i32| {
        let mut command = sandbox.command(sandbox.program());
        command.arg("--socket").arg(&odd).args(words);
        let answer = finish(command);
        answer.expect(status);
        let said = format!("{}{}", answer.stdout, answer.stderr);
        assert!(said.contains("is not UTF-8"), "{words:?}: {answer:?}");
    };
    named(&["run", "--", "true"], 125);
    named(&["--json", "start", "--", "true"], 125);
    named(&["list"], 6);
    named(&["helper", "status"], 6);
    named(&["--json", "helper", "status"], 6);
    named(&["doctor"], 12);
    named(&["--json", "doctor"], 12);
}
