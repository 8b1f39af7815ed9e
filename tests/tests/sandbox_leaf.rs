//! What a locked-down helper must still be able to do: keep a leaf from its making to its end, by file writes alone.

use std::fs;
use std::path::Path;

use cgleaf_tests::probe::{Probe, Tried};
use cgleaf_tests::scratch::{Scratch, Sleeper, cgroup_mount, wait_until};

const PROBE: &str = env!("CARGO_BIN_EXE_sandbox-probe");

fn probe(scope: &Path) -> Probe {
    Probe::new(
        PROBE,
        &cgroup_mount().expect("there is a scratch cgroup in it"),
        scope,
    )
    .arg("--require")
}

fn move_freeze_thaw_and_kill(uid: u32, options: &[&str]) {
    let Some(scratch) = Scratch::new(uid) else {
        return;
    };
    // A mover without capabilities needs to own the common ancestor of the member's old cgroup and its new one.
    let old = scratch.child("old", uid);
    let mut member = Sleeper::new(uid);
    fs::write(old.join("cgroup.procs"), member.pid().to_string()).expect("place the member");
    let probe = options.iter().fold(probe(scratch.path()), Probe::arg);
    let tried = probe
        .arg("leaf")
        .arg(scratch.path())
        .arg(member.pid().to_string())
        .run();
    assert_eq!(tried, Tried::Done("done".to_owned()));
    wait_until("the member's end", || !member.alive());
}

#[test]
fn root_without_capabilities_keeps_a_leaf() {
    move_freeze_thaw_and_kill(0, &[]);
}

#[test]
fn root_keeps_a_users_processes() {
    let Some(scratch) = Scratch::new(0) else {
        return;
    };
    let mut member = Sleeper::new(1000);
    let tried = probe(scratch.path())
        .arg("leaf")
        .arg(scratch.path())
        .arg(member.pid().to_string())
        .run();
    assert_eq!(tried, Tried::Done("done".to_owned()));
    wait_until("the member's end", || !member.alive());
}

#[test]
fn a_user_keeps_a_leaf_in_a_delegated_scope() {
    move_freeze_thaw_and_kill(1000, &["--uid", "1000"]);
}

#[test]
fn the_node_service_keeps_a_leaf_outside_its_scope_directory() {
    let Some(scratch) = Scratch::new(0) else {
        return;
    };
    let (own, container) = (scratch.child("own", 0), scratch.child("container", 0));
    let mut member = Sleeper::new(0);
    let tried = probe(&own)
        .arg("--node")
        .arg("leaf")
        .arg(&container)
        .arg(member.pid().to_string())
        .run();
    assert_eq!(tried, Tried::Done("done".to_owned()));
    wait_until("the member's end", || !member.alive());
}

#[test]
fn a_directory_of_leaves_is_listed() {
    let Some(scratch) = Scratch::new(0) else {
        return;
    };
    let listed = probe(scratch.path()).arg("list").arg(scratch.path()).run();
    let Tried::Done(count) = listed else {
        panic!("{listed:?}")
    };
    assert!(count.parse::<u32>().expect("a count") > 2);
}
