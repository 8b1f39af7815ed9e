//! What the kernel says of a locked-down process, seen from outside, as root and as a user.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use cgleaf_tests::probe::{Probe, Tried};
use cgleaf_tests::scratch::{Scratch, cgroup_mount};

const PROBE: &str = env!("CARGO_BIN_EXE_sandbox-probe");

fn probe(scratch: &Scratch) -> Probe {
    Probe::new(
        PROBE,
        &cgroup_mount().expect("there is a scratch cgroup in it"),
        scratch.path(),
    )
}

/// Reads what `look` wants to know about a probe that has locked itself down and waits.
fn while_it_serves<T>(mut probe: Probe, look: impl FnOnce(u32) -> T) -> T {
    let mut child = probe
        .command()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start the probe");
    // Kept until the end: a probe that cannot print what came of it panics.
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("read from the probe");
    let seen = (line == "ready\n").then(|| look(child.id()));
    let _ = child.stdin.take().expect("piped").write_all(b"\n");
    let ended = child.wait().expect("wait for the probe");
    assert!(ended.success(), "{ended}");
    seen.expect("the probe was ready")
}

fn status(pid: u32) -> HashMap<String, String> {
    fs::read_to_string(format!("/proc/{pid}/status"))
        .expect("read the probe's status")
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

fn limits(pid: u32, name: &str) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/limits")).expect("read the probe's limits");
    let line = text
        .lines()
        .find(|line| line.starts_with(name))
        .expect("a line for it");
    line[name.len()..]
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

fn assert_locked(status: &HashMap<String, String>) {
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(status[set], "0000000000000000", "{set}");
    }
    assert_eq!(status["NoNewPrivs"], "1");
    assert_eq!(status["Seccomp"], "2");
    assert_eq!(status["Threads"], "1");
}

#[test]
fn root_keeps_no_capability_not_even_in_the_bounding_set() {
    let Some(scratch) = Scratch::new(0) else {
        return;
    };
    for mode in [vec!["--require"], vec!["--require", "--node"]] {
        let probe = mode.iter().fold(probe(&scratch), Probe::arg).arg("serve");
        let status = while_it_serves(probe, status);
        assert_locked(&status);
        assert_eq!(status["CapBnd"], "0000000000000000");
    }
}

#[test]
fn a_user_is_held_to_the_same() {
    let Some(scratch) = Scratch::new(1000) else {
        return;
    };
    let probe = probe(&scratch)
        .arg("--uid")
        .arg("1000")
        .arg("--require")
        .arg("serve");
    assert_locked(&while_it_serves(probe, status));
}

#[test]
fn no_core_is_written_and_all_descriptors_that_are_allowed_are_there() {
    let Some(scratch) = Scratch::new(0) else {
        return;
    };
    let (core, files) = while_it_serves(probe(&scratch).arg("serve"), |pid| {
        (
            limits(pid, "Max core file size"),
            limits(pid, "Max open files"),
        )
    });
    assert_eq!(core[..2], ["0", "0"]);
    assert_eq!(files[0], files[1]);
}

/// What the kernel gives a process that is not dumpable: its files in /proc belong to root (proc_pid(5)).
#[test]
fn a_users_helper_is_not_dumpable() {
    use std::os::unix::fs::MetadataExt;
    let Some(scratch) = Scratch::new(1000) else {
        return;
    };
    let probe = probe(&scratch).arg("--uid").arg("1000").arg("serve");
    let owner = while_it_serves(probe, |pid| {
        fs::metadata(format!("/proc/{pid}/environ"))
            .expect("stat")
            .uid()
    });
    assert_eq!(owner, 0);
}

#[test]
fn what_is_reported_is_what_holds() {
    let Some(scratch) = Scratch::new(1000) else {
        return;
    };
    let Tried::Done(root) = probe(&scratch).arg("--require").arg("enforced").run() else {
        panic!("it is only asked")
    };
    assert!(
        root.starts_with("enforced: capabilities bounding_set no_new_privs not_dumpable no_core "),
        "{root}"
    );
    let user = probe(&scratch)
        .arg("--uid")
        .arg("1000")
        .arg("--require")
        .arg("enforced")
        .run();
    let Tried::Done(user) = user else {
        panic!("it is only asked")
    };
    assert!(
        user.starts_with("enforced: capabilities no_new_privs not_dumpable no_core "),
        "{user}"
    );
    assert!(
        user.contains("not bounding_set: only a process with CAP_SETPCAP"),
        "{user}"
    );
}
