//! `start`: detached, with a log and an answer.

use std::process::Stdio;

use cgleaf_tests::frontend::{Sandbox, finish};
use cgleaf_tests::scratch::wait_until;

#[test]
fn start_is_detached_and_keeps_the_log() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let script = "echo out; echo err >&2; cat; readlink /proc/$$/fd/0; ps -o sid= -p $$; exit 6";
    let id = sandbox
        .run(["start", "--name", "s", "--", "sh", "-c", script])
        .expect(0)
        .to_owned();
    wait_until("its end", || {
        sandbox
            .record(&id)
            .is_some_and(|record| record["phase"] == "ended")
    });
    let record = sandbox.record(&id).expect("a record");
    assert_eq!(record["exit"]["code"], 6);
    let log = sandbox.run(["logs", &id]);
    let lines: Vec<&str> = log.expect(0).lines().map(str::trim).collect();
    assert_eq!(&lines[..3], ["out", "err", "/dev/null"], "{lines:?}");
    assert_eq!(
        lines[3],
        record["leader"]["pid"].to_string(),
        "its own POSIX session"
    );
    assert_eq!(sandbox.leaves(), Vec::<String>::new());
    sandbox.run(["wait", &id]).expect(6);
}

#[test]
fn a_log_may_be_named_and_followed() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let log = sandbox.runtime().join("out.log");
    let answer = sandbox.run([
        "--json",
        "start",
        "--session",
        "f",
        "--log",
        log.to_str().expect("UTF-8"),
        "--",
        "sh",
        "-c",
        "echo one; sleep 1; echo two",
    ]);
    let told = answer.json();
    assert_eq!(
        told["result"]["log"],
        log.to_str().expect("UTF-8"),
        "{told}"
    );
    assert_eq!(told["result"]["survives_logout"], true, "{told}");
    assert_eq!(sandbox.run(["logs", "--follow", "f"]).expect(0), "one\ntwo");
    // A program that does not start leaves no log.
    let other = sandbox.runtime().join("other.log");
    sandbox
        .run([
            "start",
            "--log",
            other.to_str().expect("UTF-8"),
            "--",
            "/no/such",
        ])
        .expect(127);
    assert!(!other.exists());
    // run keeps none.
    sandbox
        .run(["run", "--session", "r", "--", "true"])
        .expect(0);
    let answer = sandbox.run(["logs", "r"]);
    answer.expect(3);
    assert!(answer.stderr.contains("no log"), "{answer:?}");
}

/// start's answer comes before the program's end, also where nobody reads what it writes.
#[test]
fn start_does_not_hold_the_callers_pipes() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut command = sandbox.cgleaf(["start", "--session", "p", "--", "sleep", "1000"]);
    command.stdin(Stdio::piped());
    assert_eq!(finish(command).expect(0), "p");
    sandbox.run(["destroy", "p"]).expect(0);
    wait_until("the exit in the record", || {
        sandbox
            .record("p")
            .is_some_and(|record| record["exit"]["signal"] == 9)
    });
}

#[test]
fn a_start_whose_answer_cannot_be_written_says_that_the_program_runs() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let cases = [
        ("", ">/dev/full"),
        ("--json", ">/dev/full"),
        ("--status-fd 3", "3>/dev/full"),
    ];
    for (number, (option, to)) in cases.into_iter().enumerate() {
        let session = format!("untold{number}");
        let script = format!("cgleaf start --session {session} {option} -- sleep 1000 {to}");
        let answer = finish(sandbox.bash(&script));
        assert!(![0, 125].contains(&answer.code()), "{answer:?}");
        assert!(answer.stderr.contains("was started and runs"), "{answer:?}");
        assert_eq!(sandbox.members(&session).len(), 1);
        sandbox.run(["destroy", &session]).expect(0);
    }
}

#[test]
fn a_log_that_nobody_reads_holds_nothing_up() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let pipe = sandbox.runtime().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let log = pipe.display().to_string();
    let answer = sandbox.run(["start", "--session", "piped", "--log", &log, "--", "true"]);
    answer.expect(125);
    assert!(
        answer.stderr.contains("nobody reads that pipe"),
        "{answer:?}"
    );
    assert!(sandbox.record("piped").is_none());
    // With a reader it is as good as a file.
    let mut reader = std::process::Command::new("cat");
    reader.arg(&pipe).stdout(Stdio::piped());
    let reader = reader.spawn().unwrap();
    wait_until("the reader", || {
        let words = [
            "start",
            "--session",
            "read",
            "--log",
            &log,
            "--",
            "echo",
            "hi",
        ];
        sandbox.run(words).code() == 0
    });
    let output = reader.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hi\n");
}
