//! What may still live is named, and what was done to it is told as it was: in the text too, that a person reads.

use std::path::Path;

use cgleaf_tests::frontend::{Sandbox, collect, finish};
use cgleaf_tests::scratch::{skip, wait_until};
use cgleaf_tests::session::is_dead;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).expect("send a signal");
}

/// The process that a script wrote down, as it writes it.
fn written(file: &Path) -> i32 {
    let mut pid = None;
    wait_until("a pid that is written down", || {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        pid = text.strip_suffix('\n').and_then(|text| text.parse().ok());
        pid.is_some()
    });
    pid.expect("a pid")
}

fn parent(pid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("PPid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// A monitor that is killed leaves what had left the program's group to its mark alone.
#[test]
fn a_survivor_of_the_monitor_is_named() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let file = sandbox.runtime().join("survivor");
    let words = ["run", "--quiet", "--tier", "group", "--session", "m", "--"];
    let mut command = sandbox.cgleaf(words);
    let script = "setsid -f sh -c 'echo $$ >\"$0\"; exec sleep 301' \"$0\"; exec sleep 300";
    command.args(["sh", "-c", script]).arg(&file);
    let run = command.spawn().expect("start cgleaf run");
    let survivor = written(&file);
    let monitor = sandbox.monitor("m");
    wait_until("an orphan of the program", || {
        parent(survivor) == Some(monitor)
    });
    send(monitor, Signal::SIGKILL);
    assert_eq!(collect(run).code(), 137);

    let named =
        |text: &str| text.contains(&format!("pid {survivor} (")) && text.contains("sleep 301");
    let signalled = sandbox.run(["signal", "m", "TERM"]);
    signalled.expect(5);
    assert!(signalled.stderr.contains("to nobody"), "{signalled:?}");
    let partial = sandbox.run(["destroy", "m"]);
    partial.expect(5);
    assert!(named(&partial.stderr), "{partial:?}");
    let nobody = "no member can be seen";
    assert!(!partial.stderr.contains(nobody), "{partial:?}");

    send(survivor, Signal::SIGKILL);
    wait_until("its end", || is_dead(survivor));
}

/// It is cgleaf's own process: somebody's stop keeps it from nothing.
#[test]
fn a_stopped_monitor_ends_everything_all_the_same() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let words = [
        "start",
        "--quiet",
        "--tier",
        "group",
        "--session",
        "m",
        "--",
    ];
    let script = "setsid sleep 300 & exec sleep 300";
    let words = words.into_iter().chain(["sh", "-c", script]);
    sandbox.run(words).expect(0);
    send(sandbox.monitor("m"), Signal::SIGSTOP);
    sandbox.run(["destroy", "--timeout", "30s", "m"]).expect(0);
}

/// Who ended is said to have ended, and no signal is said to have been sent to nobody where nobody is left.
#[test]
fn a_signal_to_what_has_ended_says_so() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut command = sandbox.command("setsid");
    command.arg(sandbox.program());
    command.args([
        "exec",
        "--quiet",
        "--tier",
        "group",
        "--session",
        "e",
        "--",
        "true",
    ]);
    finish(command).expect(0);
    // Where others make processes faster than they are read it cannot be told just now.
    wait_until("a look that has read everybody", || {
        let answer = sandbox.run(["signal", "e", "TERM"]);
        assert!([4, 5].contains(&answer.code()), "{answer:?}");
        answer.code() == 4
    });
    sandbox.run(["destroy", "e"]).expect(0);
}

/// A member whose autogroup cannot be read is not proven, and so not killed. It is named, and nothing is said of it that is not so.
#[test]
fn whose_cannot_be_read_is_named_and_let_alone() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let file = sandbox.runtime().join("member");
    let script = format!(
        "echo nothing to be read >{0}.text
         setsid cgleaf exec --quiet --tier group --session a -- \
             sh -c 'env -i sh -c \"echo \\$\\$ >{0}; exec sleep 300\" >/dev/null 2>&1 & exit 0'
         until [ -s {0} ]; do sleep 0.01; done
         until grep -q sleep /proc/$(cat {0})/comm; do sleep 0.01; done
         mount --bind {0}.text /proc/$(cat {0})/autogroup || exit 99
         cgleaf destroy --timeout 10s a; s=$?
         umount /proc/$(cat {0})/autogroup; exit $s",
        file.display()
    );
    let mut command = sandbox.command("unshare");
    command.args(["--mount", "bash", "-c", &script]);
    let answer = finish(command);
    let member = written(&file);
    if answer.code() == 99 {
        skip(&format!("no mount of our own: {answer:?}"));
        send(member, Signal::SIGKILL);
        return;
    }
    answer.expect(5);
    let named = format!("pid {member} (sleep 300)");
    assert!(answer.stderr.contains(&named), "{answer:?}");
    for untrue in [
        "is stopped",
        "nothing was signalled",
        "no member can be seen",
    ] {
        assert!(!answer.stderr.contains(untrue), "{answer:?}");
    }
    assert!(!is_dead(member), "it is not proven to be the session's");
    sandbox.run(["destroy", "--timeout", "10s", "a"]).expect(0);
    assert!(is_dead(member));
}
