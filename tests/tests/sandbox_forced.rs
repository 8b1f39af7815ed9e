//! The entries of the allow-list that ordinary service does not use: each case is brought about under the real filter and
//! ends as it should; under the same filter without that one entry it ends in SIGSYS.

use std::io::{BufRead, BufReader, Write};
use std::process::{Output, Stdio};

use cgleaf_helper::sandbox::seccomp::{Force, Usage, table};
use cgleaf_tests::probe::{Probe, Tried, judge};
use cgleaf_tests::scratch::{Scratch, cgroup_mount, wait_until};
use nix::libc::{SIGABRT, SIGSEGV, SIGSYS};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PROBE: &str = env!("CARGO_BIN_EXE_sandbox-probe");

fn probe(scratch: &Scratch) -> Probe {
    Probe::new(
        PROBE,
        &cgroup_mount().expect("there is a scratch cgroup in it"),
        scratch.path(),
    )
}

/// Runs the case; the standard error output too, for what a dying process still says.
fn bring_about(force: Force, probe: Probe) -> (Tried, String) {
    let output = match force {
        Force::StopAndContinue => stopped_during_a_poll(probe),
        other => probe
            .arg(format!("{other:?}"))
            .command()
            .output()
            .expect("start the probe"),
    };
    (
        judge(&output),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

fn expected(force: Force) -> Tried {
    match force {
        Force::Panic | Force::HeapDamage => Tried::Died(SIGABRT),
        Force::Segfault => Tried::Died(SIGSEGV),
        Force::HeapGrowth | Force::BigAllocation | Force::Return | Force::NoVdsoClock => {
            Tried::Done("done".to_owned())
        }
        Force::StopAndContinue => Tried::Done("served".to_owned()),
    }
}

/// A stop while it waits in poll(2) with a timeout: on the continuation the kernel resumes it by restart_syscall(2).
fn stopped_during_a_poll(probe: Probe) -> Output {
    let mut probe = probe.arg("serve");
    let mut child = probe
        .command()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start the probe");
    let pid = Pid::from_raw(child.id().try_into().expect("a pid"));
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("read from the probe");
    assert_eq!(line, "ready\n");
    wait_until("the probe sleeps", || state(pid) == 'S');
    kill(pid, Signal::SIGSTOP).expect("stop the probe");
    wait_until("the probe has stopped", || state(pid) == 'T');
    kill(pid, Signal::SIGCONT).expect("continue the probe");
    wait_until("the probe goes on", || state(pid) != 'T');
    // Where it may not go on it is dead by now, and there is nobody to tell.
    let _ = child.stdin.take().expect("piped").write_all(b"\n");
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut output, &mut rest).expect("read from the probe");
    Output {
        status: child.wait().expect("wait for the probe"),
        stdout: rest,
        stderr: Vec::new(),
    }
}

fn state(pid: Pid) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("read the probe's stat");
    stat.rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next())
        .expect("a state")
}

#[test]
fn each_conditional_entry_is_needed_and_is_enough() {
    let Some(scratch) = Scratch::new(0) else {
        return;
    };
    for allowed in table() {
        let Usage::Conditional(force) = allowed.usage else {
            continue;
        };
        let (with, said) = bring_about(force, probe(&scratch));
        assert_eq!(with, expected(force), "{force:?}: {said}");
        let (without, said) =
            bring_about(force, probe(&scratch).arg("--without").arg(allowed.name));
        assert_eq!(
            without,
            Tried::Died(SIGSYS),
            "{force:?} without {}: {said}",
            allowed.name
        );
    }
}

/// The message comes out, in one line and without a backtrace, whatever the environment asks for.
#[test]
fn a_panic_is_told() {
    let Some(scratch) = Scratch::new(0) else {
        return;
    };
    let mut probe = probe(&scratch).arg("Panic");
    let output = probe
        .command()
        .env("RUST_BACKTRACE", "full")
        .output()
        .expect("start the probe");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("cgleaf-helper: panic at "), "{said}");
    assert!(said.ends_with(": on purpose\n"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(judge(&output), Tried::Died(SIGABRT));
}

/// glibc's and std's own last words come out (musl has none for either: it lets the process fault).
#[cfg(target_env = "gnu")]
#[test]
fn a_damaged_heap_and_a_stack_overflow_are_told() {
    let Some(scratch) = Scratch::new(0) else {
        return;
    };
    let (_, said) = bring_about(Force::HeapDamage, probe(&scratch));
    assert!(said.contains("free(): double free"), "{said}");
    let output = probe(&scratch)
        .arg("StackOverflow")
        .command()
        .output()
        .expect("start the probe");
    assert_eq!(judge(&output), Tried::Died(SIGABRT));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("has overflowed its stack"), "{said}");
}
