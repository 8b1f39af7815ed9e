//! What a session is found by is lost: its helper's socket, its record, both; by accident, or by somebody who tidies up.

use std::fs;
use std::path::{Path, PathBuf};

use cgleaf_tests::frontend::{Sandbox, finish, instrumented_programs, wait_for};
use cgleaf_tests::lab::{Guest, GuestOptions};
use cgleaf_tests::require;
use cgleaf_tests::scratch::wait_until;
use cgleaf_tests::session::is_dead;
use cgleaf_tests::steps::Stage;

fn sockets(sandbox: &Sandbox) -> Vec<PathBuf> {
    let run = sandbox.runtime().join("cgleaf/run");
    let entries = fs::read_dir(run).expect("list the sockets");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .filter(|path| path.extension().is_some_and(|end| end == "sock"))
        .collect()
}

/// A helper keeps its lock, so that no other may take its place, and nobody can ask it anything: it is ended, and the next one has
/// its sessions.
#[test]
fn a_helper_whose_socket_is_gone_is_replaced() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for session in ["one", "two"] {
        sandbox
            .run(["start", "--session", session, "--", "sleep", "1000"])
            .expect(0);
    }
    let lost = sandbox.helper_pid().expect("a helper");
    let members = sandbox.members("two");
    for socket in sockets(&sandbox) {
        fs::remove_file(socket).expect("remove the socket");
    }
    let shown = sandbox.run(["--json", "ps", "two"]);
    shown.expect(0);
    assert_eq!(sandbox.members("two"), members, "it goes on");
    assert!(is_dead(lost), "the one without a socket has ended");
    assert_ne!(sandbox.helper_pid(), Some(lost));
    sandbox.run(["destroy", "one", "two"]).expect(0);
    assert_eq!(sandbox.leaves(), Vec::<String>::new());
}

#[test]
fn helper_stop_ends_one_whose_socket_is_gone() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox
        .run(["start", "--session", "s", "--", "sleep", "1000"])
        .expect(0);
    let lost = sandbox.helper_pid().expect("a helper");
    for socket in sockets(&sandbox) {
        fs::remove_file(socket).expect("remove the socket");
    }
    let stopped = sandbox.run(["--json", "helper", "stop"]);
    stopped.expect(0);
    let stopped = stopped.json();
    assert_eq!(
        stopped["result"]["stopped"].as_array().map(Vec::len),
        Some(1),
        "{stopped}"
    );
    wait_until("its end", || is_dead(lost));
    assert_eq!(sandbox.members("s").len(), 1, "it goes on");
    sandbox.run(["destroy", "s"]).expect(0);
}

/// A lock is no helper: whoever holds one of that name is left alone.
#[test]
fn a_stranger_with_the_lock_is_not_signalled() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox.run(["run", "--", "true"]).expect(0);
    sandbox.run(["helper", "stop"]).expect(0);
    let lock = fs::read_dir(sandbox.runtime().join("cgleaf/run"))
        .expect("list the locks")
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path.extension().is_some_and(|end| end == "lock"))
        .expect("a lock");
    let mut stranger = sandbox.command("flock");
    let mut stranger = stranger
        .arg("--no-fork")
        .arg(lock)
        .args(["sleep", "1000"])
        .spawn()
        .expect("start flock");
    wait_until("the lock", || {
        let answer = sandbox.run(["--json", "helper", "stop"]);
        answer.expect(0);
        is_locked_by_another(&sandbox)
    });
    sandbox.run(["helper", "stop"]).expect(0);
    assert!(stranger.try_wait().expect("wait").is_none());
    stranger.kill().expect("end it");
    wait_for(&mut stranger);
}

fn is_locked_by_another(sandbox: &Sandbox) -> bool {
    let lock = sandbox.runtime().join("cgleaf/run/direct.sock.lock");
    let file = fs::File::open(lock).expect("open the lock");
    file.try_lock_shared().is_err()
}

/// The record was named before its log was made; when it is lost all the same, gc takes the log, and no other file.
#[test]
fn gc_takes_the_log_of_a_lost_record() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for session in ["lost", "kept"] {
        sandbox
            .run(["start", "--session", session, "--", "sleep", "1000"])
            .expect(0);
    }
    let records = sandbox.sessions();
    let log = |session: &str| records.join(format!("{session}.log"));
    fs::remove_file(records.join("lost.json")).expect("remove a record");
    fs::write(records.join("no session.log"), "somebody's").expect("write");
    // Where no file can be taken the others are all the same, and nothing is left of the attempt.
    fs::create_dir(records.join("directory.log")).expect("make a directory");
    sandbox.run(["gc"]).expect(0);
    assert!(log("lost").exists(), "its helper still has the session");
    sandbox.run(["destroy", "lost"]).expect(0);
    let tried = sandbox.run(["--json", "gc", "--dry-run"]).json();
    let expected = serde_json::json!(["directory", "lost"]);
    assert_eq!(tried["result"]["logs"], expected);
    assert!(log("lost").exists());
    let done = sandbox.run(["--json", "gc"]).json();
    assert_eq!(done["result"]["logs"], serde_json::json!(["lost"]));
    assert!(!log("lost").exists() && !records.join("directory.json").exists());
    assert!(log("kept").exists() && records.join("no session.log").exists());
    sandbox.run(["destroy", "kept"]).expect(0);
}

/// Neither records nor helper tell of the scope that systemd still has.
#[test]
fn a_scope_whose_helper_and_records_are_lost_is_found_again() {
    require!(Systemd, Cc);
    let guest = Guest::up(&GuestOptions::new()).expect("a guest");
    let script = "
        cgleaf=/cgleaf/cgleaf
        for session in torn lost bystander; do $cgleaf start --session $session -- sleep 1000; done
        helper=$($cgleaf --json helper status | sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/')
        scope=$(findmnt --noheadings --first-only --types cgroup2 --output TARGET)$(dirname $(grep ^0:: /proc/$helper/cgroup | cut -d: -f3))
        kill -9 $helper
        until [ -z \"$(cat $scope/helper/cgroup.procs)\" ]; do sleep 0.1; done
        records=$XDG_RUNTIME_DIR/cgleaf/sessions
        : >$records/torn.json
        rm $records/lost.json $records/bystander.json
        $cgleaf destroy lost
        $cgleaf destroy torn
        ls $scope | grep leaf
        $cgleaf --json list --all | grep -o '\"session\":\"[a-z]*\"' | sort
        $cgleaf destroy bystander
        rm $records/torn.json
        $cgleaf helper stop";
    let answer = finish(guest.user(["sh", "-ec", script]));
    let said = answer.expect(0);
    assert!(
        said.ends_with("cgleaf-bystander.leaf\n\"session\":\"bystander\"\n\"session\":\"torn\""),
        "{answer:?}"
    );
    wait_until("the end of the scope", || {
        scopes_in(&guest.cgroup()).is_empty()
    });
}

fn scopes_in(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("cgleaf-helper-") {
            found.push(path.clone());
        }
        if path.is_dir() {
            found.extend(scopes_in(&path));
        }
    }
    found
}

fn is_frozen(sandbox: &Sandbox, session: &str) -> bool {
    let events = fs::read_to_string(sandbox.leaf(session).join("cgroup.events"));
    events.expect("read the events").contains("frozen 1")
}

/// A hold ends with who has it: also when its helper dies first, and when both do.
#[test]
fn a_hold_whose_holder_and_helper_die_ends_all_the_same() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let words = ["start", "--session", "s", "--", "sleep", "1000"];
    sandbox.run(words).expect(0);
    let mut holds = sandbox.cgleaf(["freeze", "s", "--for", "1h"]);
    let mut holds = holds.spawn().expect("start cgleaf");
    wait_until("the hold", || is_frozen(&sandbox, "s"));
    holds.kill().expect("kill cgleaf");
    sandbox.kill_helper();
    wait_for(&mut holds);
    sandbox.run(["gc"]).expect(0);
    wait_until("the thaw", || !is_frozen(&sandbox, "s"));
    sandbox.run(["destroy", "s"]).expect(0);
}

/// What the holder answers whose helper was killed, and whether the session goes on then, with what it said: where nobody let it go
/// on meanwhile, and where somebody did, as the next helper does.
#[test]
fn a_hold_whose_helper_dies_is_as_long_as_it_was_to_be_or_no_success() {
    let Some(sandbox) = Sandbox::with(instrumented_programs()) else {
        return;
    };
    for (session, let_go, status) in [("whole", false, 0), ("short", true, 6)] {
        let words = ["start", "--session", session, "--", "sleep", "1000"];
        sandbox.run(words).expect(0);
        let said = sandbox.runtime().join("said");
        let mut holds = sandbox.cgleaf(["freeze", session, "--for", "10ms"]);
        holds.stderr(fs::File::create(&said).expect("a file"));
        let not_held = |_| false;
        let mut stage = Stage::new(&sandbox.runtime().join("steps"), vec![holds], &not_held);
        while stage.at(0) != Some("freeze:held") {
            assert_eq!(stage.ended(0), None, "{:?}", fs::read_to_string(&said));
            stage.step(0);
        }
        sandbox.kill_helper();
        if let_go {
            fs::write(sandbox.leaf(session).join("cgroup.freeze"), "0").expect("thaw it");
            wait_until("the thaw", || !is_frozen(&sandbox, session));
        }
        while stage.ended(0).is_none() {
            stage.step(0);
        }
        let said = fs::read_to_string(&said).expect("what it said");
        assert_eq!(stage.ended(0), Some(status), "{session}: {said}");
        assert!(!is_frozen(&sandbox, session), "{session}");
        assert_eq!(said.contains("before the time was over"), let_go, "{said}");
        sandbox.run(["destroy", session]).expect(0);
    }
}

/// It hears nothing, and that is said, with who it is.
#[test]
fn helper_stop_tells_of_one_that_does_not_answer() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox.run(["run", "--", "true"]).expect(0);
    let pid = sandbox.helper_pid().expect("a helper");
    let signal = |signal| {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).expect("send it");
    };
    signal(nix::sys::signal::Signal::SIGSTOP);
    let stopped = sandbox.run(["helper", "stop"]);
    signal(nix::sys::signal::Signal::SIGCONT);
    stopped.expect(6);
    assert!(
        stopped.stderr.contains(&format!("pid {pid}")),
        "{stopped:?}"
    );
}
