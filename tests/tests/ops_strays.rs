//! Processes that left the leaf, as `su -l` makes them (pam_systemd moves it to a session scope of its own): named, and
//! never a plain success.

use std::fs;
use std::path::Path;

use cgleaf_tests::frontend::{Sandbox, finish, wait_for};
use cgleaf_tests::helper::Lair;
use cgleaf_tests::scratch::{Scratch, Sleeper, wait_until};
use cgleaf_tests::session::{Background, is_dead};
use serde_json::Value;

/// A session whose leader has a child that runs a shell with a child of its own, both of which somebody moves elsewhere.
fn with_a_stray(sandbox: &Sandbox, outside: &Path, session: &str) -> (Background, [i32; 2]) {
    let script = "sh -c 'sleep 1000 & wait' & sleep 1000 & wait";
    let leader = sandbox.background(session, ["sh", "-c", script]);
    wait_until("four members", || sandbox.members(session).len() == 4);
    let shell = child_of(leader.pid().cast_signed(), "sh");
    let sleep = child_of(shell, "sleep");
    for pid in [shell, sleep] {
        fs::write(outside.join("cgroup.procs"), pid.to_string()).unwrap();
    }
    (leader, [shell, sleep])
}

/// The child of that name, once it has it: right after a fork it still has its parent's.
fn child_of(pid: i32, comm: &str) -> i32 {
    let mut found = None;
    wait_until(comm, || {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        found = children.split_whitespace().find_map(|child| {
            let name = fs::read_to_string(format!("/proc/{child}/comm")).ok()?;
            (name.trim() == comm).then(|| child.parse().unwrap())
        });
        found.is_some()
    });
    found.unwrap()
}

fn pids(strays: &Value) -> Vec<i64> {
    let mut pids: Vec<i64> = strays
        .as_array()
        .unwrap()
        .iter()
        .map(|stray| stray["pid"].as_i64().unwrap())
        .collect();
    pids.sort_unstable();
    pids
}

#[test]
fn a_stray_is_named_and_a_later_destroy_still_knows_it() {
    let (Some(sandbox), Some(outside)) = (Sandbox::new(), Scratch::new(0)) else {
        return;
    };
    let (mut leader, strays) = with_a_stray(&sandbox, outside.path(), "s");
    let answer = sandbox.run(["--json", "destroy", "s"]);
    answer.expect(5);
    let error = answer.json()["error"].clone();
    assert_eq!(error["code"], "PARTIAL");
    // What is named lives: a wait does not end before it, and does end with its time.
    sandbox.run(["wait", "s", "--timeout", "100ms"]).expect(11);
    let mut wanted = strays.map(i64::from);
    wanted.sort_unstable();
    assert_eq!(pids(&error["details"]["strays"]), wanted, "{answer:?}");
    assert_eq!(error["details"]["strays"][0]["tie"], "parent");
    assert_eq!(leader.wait(), 137, "what was in the leaf has ended");
    assert!(
        strays.iter().all(|pid| !is_dead(*pid)),
        "what left it goes on"
    );
    assert_eq!(sandbox.state("s"), "destroying");
    let kept = sandbox.run(["--json", "gc"]).json();
    assert_eq!(kept["result"]["kept"][0]["session"], "s");

    // Its parent has ended, so that only the record still knows what tied it to the session.
    sandbox.run(["destroy", "s"]).expect(5);
    let killed = sandbox.run(["--json", "destroy", "--strays", "kill", "s"]);
    killed.expect(0);
    let ended = killed.json()["result"]["strays"].clone();
    assert_eq!(pids(&ended), wanted);
    assert!(
        ended
            .as_array()
            .unwrap()
            .iter()
            .all(|stray| stray["killed"] == true)
    );
    assert!(strays.into_iter().all(is_dead));
    assert_eq!(sandbox.state("s"), "destroyed");
}

#[test]
fn strays_are_ended_at_once_where_that_is_asked_for() {
    let (Some(sandbox), Some(outside)) = (Sandbox::new(), Scratch::new(0)) else {
        return;
    };
    let (mut leader, strays) = with_a_stray(&sandbox, outside.path(), "s");
    sandbox.run(["destroy", "--strays", "kill", "s"]).expect(0);
    leader.wait();
    assert!(strays.into_iter().all(is_dead));

    // Not looked for: a plain success, and the stray goes on.
    let (mut leader, strays) = with_a_stray(&sandbox, outside.path(), "t");
    sandbox
        .run(["destroy", "--strays", "ignore", "t"])
        .expect(0);
    leader.wait();
    assert!(strays.iter().all(|pid| !is_dead(*pid)));
}

#[test]
fn a_leader_that_was_moved_out_is_a_stray_of_an_empty_leaf() {
    let (Some(sandbox), Some(outside)) = (Sandbox::new(), Scratch::new(0)) else {
        return;
    };
    let mut leader = sandbox.background("s", ["sleep", "1000"]);
    fs::write(
        outside.path().join("cgroup.procs"),
        leader.pid().to_string(),
    )
    .unwrap();
    let answer = sandbox.run(["--json", "destroy", "s"]);
    answer.expect(5);
    let stray = answer.json()["error"]["details"]["strays"][0].clone();
    assert_eq!(
        (&stray["pid"], &stray["tie"]),
        (&leader.pid().into(), &"leader".into())
    );
    assert!(leader.lives());
    sandbox.run(["destroy", "--strays", "kill", "s"]).expect(0);
    assert_eq!(leader.wait(), 137);
}

/// A mark spreads to innocents (`systemctl --user import-environment`): it names and never kills.
#[test]
fn who_only_carries_the_mark_is_named_and_never_killed() {
    let (Some(sandbox), Some(outside)) = (Sandbox::new(), Scratch::new(0)) else {
        return;
    };
    let mut leader = sandbox.background("s", ["sleep", "1000"]);
    let mark = sandbox.record("s").unwrap()["mark"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut innocent = std::process::Command::new("sleep")
        .arg("1000")
        .env("CGLEAF_MARK", format!("outer:{mark}"))
        .spawn()
        .unwrap();
    // One that has the mark as a part of something else only is nobody's.
    let mut other = std::process::Command::new("sleep")
        .arg("1000")
        .env("CGLEAF_MARK", format!("x{mark}"))
        .spawn()
        .unwrap();
    let bystander = Sleeper::new(0);
    let answer = sandbox.run(["--json", "destroy", "--strays", "kill", "s"]);
    answer.expect(5);
    leader.wait();
    let strays = answer.json()["error"]["details"]["strays"].clone();
    assert_eq!(pids(&strays), [i64::from(innocent.id())], "{answer:?}");
    assert_eq!(strays[0]["tie"], "mark");
    assert!(!is_dead(innocent.id().cast_signed()));
    sandbox
        .run(["destroy", "--strays", "ignore", "s"])
        .expect(0);
    assert!(!is_dead(bystander.pid().cast_signed()));
    for child in [&mut innocent, &mut other] {
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    drop(outside);
}

/// Whoever may mount can put one process's directory in /proc in the place of another's: that is nobody's then.
#[test]
fn a_process_whose_directory_is_anothers_is_neither() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut leader = sandbox.background("s", ["sh", "-c", "sleep 1000 & exec sleep 1001"]);
    let mut stranger = sandbox
        .command("setsid")
        .args(["sh", "-c", "sleep 1002 & sleep 1003; exit 9"])
        .spawn()
        .expect("start a stranger");
    let children = || {
        let id = stranger.id();
        let path = format!("/proc/{id}/task/{id}/children");
        std::fs::read_to_string(path).unwrap_or_default()
    };
    wait_until("its children", || {
        children().split_whitespace().count() == 2
    });
    let before = children();
    let script = format!(
        "mount --bind /proc/{} /proc/{} && exec cgleaf destroy s --strays kill",
        stranger.id(),
        leader.pid()
    );
    let mut command = sandbox.command("unshare");
    command.args(["--mount", "sh", "-c", &script]);
    let answer = finish(command);
    assert!(matches!(answer.code(), 0 | 5), "{answer:?}");
    assert_eq!(children(), before, "{answer:?}");
    assert!(stranger.try_wait().expect("wait").is_none());
    leader.wait();
    let ids: Vec<_> = before.split_whitespace().map(str::to_owned).collect();
    stranger.kill().expect("end it");
    let _ = stranger.wait();
    for id in ids {
        let pid = nix::unistd::Pid::from_raw(id.parse().expect("a number"));
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    }
}

/// Threads that somebody moved into a leaf, whose main thread had ended elsewhere before: no list of processes has them, and
/// what kills a leaf goes by that list. They are named.
#[test]
fn threads_without_their_main_thread_are_named() {
    let (Some(sandbox), Some(lair)) = (Sandbox::new(), Lair::new(0)) else {
        return;
    };
    let _leader = sandbox.background("s", ["sleep", "1000"]);
    let mut headless = lair.enrolled(&["headless", "enrol=x"]);
    assert!(headless.line().starts_with("refused"));
    let pid = headless.pid();
    fs::write(sandbox.leaf("s").join("cgroup.procs"), pid.to_string()).expect("move it");
    let answer = sandbox.run(["--json", "destroy", "s", "--timeout", "1s"]);
    answer.expect(5);
    let error = &answer.json()["error"];
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains(&format!("of process {pid}")), "{message}");
    assert_eq!(error["details"]["threads"][0]["pid"], pid);
    headless.child.kill().expect("kill it");
    wait_for(&mut headless.child);
    sandbox.run(["destroy", "s"]).expect(0);
}
