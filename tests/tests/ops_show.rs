//! What `list`, `show`, `ps`, `wait`, `doctor`, `helper` and `completions` tell.

use std::fs;
use std::process::Stdio;

use cgleaf_tests::frontend::{Sandbox, collect};
use cgleaf_tests::scratch::wait_until;
use serde_json::{Value, json};

#[test]
fn the_fields_that_others_rely_on_are_there() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox
        .run(["run", "--session", "over", "--", "sh", "-c", "exit 7"])
        .expect(7);
    let mut leader = sandbox.background_with(
        "runs",
        &["--name", "job"],
        ["sh", "-c", "sleep 1000 & sleep 1000"],
    );
    wait_until("three members", || sandbox.members("runs").len() == 3);

    let shown = sandbox.run(["--json", "show", "job"]).json();
    assert_eq!(
        (&shown["ok"], &shown["command"]),
        (&json!(true), &json!("show"))
    );
    let timestamp = shown["timestamp"].as_str().unwrap();
    assert!(
        timestamp.ends_with('Z') && timestamp.len() == 20,
        "{timestamp}"
    );
    let session = &shown["result"];
    assert_eq!(session["session"], "runs");
    assert_eq!(session["name"], "job");
    assert_eq!(session["tier"], "cgroup");
    assert_eq!(session["state"], "running");
    assert_eq!(session["leader"]["pid"], leader.pid());
    assert_eq!(session["leader"]["alive"], true);
    assert_eq!(session["leader"]["stopped"], false);
    assert!(session["leader"]["start"].as_u64() > Some(0));
    assert_eq!(session["exit"], Value::Null);
    assert_eq!(session["members"], 3);
    assert_eq!(
        session["leaf"]["directory"],
        sandbox.leaf("runs").to_str().unwrap()
    );
    assert!(session["leaf"]["id"].as_u64() > Some(0));
    assert!(session["created"].as_str().unwrap().ends_with('Z'));

    let over = sandbox.run(["--json", "show", "over"]).json()["result"].clone();
    assert_eq!(over["state"], "ended");
    assert_eq!(over["exit"], json!({"code": 7}));
    assert_eq!(over["members"], 0);

    let ids = |words: &[&str]| -> Vec<String> {
        let listed = sandbox.run(words).json()["result"]["sessions"].clone();
        listed
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["session"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids(&["--json", "list"]), ["runs"]);
    assert_eq!(
        ids(&["--json", "list", "--all"]),
        ["over", "runs"],
        "in the order of their making"
    );

    let ps = sandbox.run(["--json", "ps", "runs"]).json()["result"].clone();
    assert_eq!(ps["complete"], true);
    let members = ps["members"].as_array().unwrap();
    assert_eq!(members.len(), 3);
    let of_leader = members
        .iter()
        .find(|member| member["pid"] == leader.pid())
        .unwrap();
    assert_eq!(
        of_leader["argv"],
        json!(["sh", "-c", "sleep 1000 & sleep 1000"])
    );
    assert_eq!(of_leader["cgroup"], "");
    assert_eq!(of_leader["state"], "S");
    assert!(
        members
            .iter()
            .filter(|member| member["ppid"] == leader.pid())
            .count()
            == 2
    );

    let unknown = sandbox.run(["--json", "show", "nobody"]);
    unknown.expect(3);
    let error = &unknown.json()["error"];
    assert_eq!(
        (&error["code"], &error["retryable"]),
        (&json!("SESSION_NOT_FOUND"), &json!(false))
    );
    sandbox.run(["destroy", "job"]).expect(0);
    leader.wait();
}

/// B33: no control byte in a table, and valid JSON also for what is not UTF-8.
#[test]
fn arguments_of_any_bytes_are_shown_and_never_obeyed() {
    use std::os::unix::ffi::OsStrExt;
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let script = std::ffi::OsStr::from_bytes(b"sleep 1000; : \x1b[31m\r\n\xff\xfe end");
    let mut leader = sandbox.background("odd", ["sh".as_ref(), "-c".as_ref(), script]);
    wait_until("two members", || sandbox.members("odd").len() == 2);
    for words in [&["list"][..], &["ps", "odd"], &["show", "odd"]] {
        let answer = sandbox.run(words);
        answer.expect(0);
        assert!(
            answer.stdout.chars().all(|c| c == '\n' || !c.is_control()),
            "{answer:?}"
        );
        assert!(answer.stdout.contains("\\u{1b}[31m"), "{answer:?}");
        let rows = answer
            .stdout
            .lines()
            .filter(|line| line.contains("31m"))
            .count();
        assert!(rows <= 1, "{answer:?}");
    }
    let argv = sandbox.run(["--json", "show", "odd"]).json()["result"]["argv"].clone();
    assert!(argv[2].as_str().unwrap().contains('\u{fffd}'), "{argv}");
    sandbox.run(["destroy", "odd"]).expect(0);
    leader.wait();
}

#[test]
fn wait_answers_like_the_program_where_its_end_was_seen() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox
        .run(["run", "--session", "seven", "--", "sh", "-c", "exit 7"])
        .expect(7);
    sandbox.run(["wait", "seven"]).expect(7);
    sandbox
        .run([
            "run",
            "--session",
            "term",
            "--",
            "sh",
            "-c",
            "kill -TERM $$",
        ])
        .expect(143);
    sandbox.run(["wait", "term"]).expect(143);
    // Nobody saw how an exec ended.
    sandbox
        .run(["exec", "--session", "e", "--", "sh", "-c", "exit 7"])
        .expect(7);
    sandbox.run(["wait", "e"]).expect(0);

    let mut leader = sandbox.background("runs", ["sleep", "1000"]);
    let late = sandbox.run(["--json", "wait", "--timeout", "50ms", "runs"]);
    late.expect(11);
    assert_eq!(late.json()["error"]["code"], "WAIT_TIMEOUT");
    let waiter = sandbox
        .cgleaf(["--json", "wait", "runs"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    sandbox.run(["destroy", "runs"]).expect(0);
    leader.wait();
    let waited = collect(waiter);
    waited.expect(0);
    assert_eq!(waited.json()["result"]["exit"], Value::Null);
    sandbox.run(["wait", "nobody"]).expect(3);
}

#[test]
fn wait_goes_on_until_the_last_process_has_ended() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let file = sandbox.runtime().join("go");
    let script = format!(
        "(until [ -e {} ]; do sleep 0.01; done) >/dev/null 2>&1 & exit 3",
        file.display()
    );
    sandbox
        .run([
            "run",
            "--session",
            "s",
            "--leftovers",
            "keep",
            "--",
            "sh",
            "-c",
            &script,
        ])
        .expect(3);
    sandbox.run(["wait", "--timeout", "50ms", "s"]).expect(11);
    assert_eq!(sandbox.state("s"), "running");
    fs::write(&file, "").unwrap();
    sandbox.run(["wait", "s"]).expect(3);
}

#[test]
fn doctor_tries_and_tells() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let answer = sandbox.run(["--json", "doctor"]);
    answer.expect(0);
    let result = answer.json()["result"].clone();
    assert_eq!(result["tier"], "cgroup");
    assert!(
        result["reason"]
            .as_str()
            .unwrap()
            .contains("a leaf was made and removed")
    );
    let helper = &result["helper"];
    assert_eq!(helper["mode"], "direct");
    assert_eq!(helper["pid"].as_i64(), sandbox.helper_pid().map(i64::from));
    assert!(
        helper["socket"]
            .as_str()
            .unwrap()
            .ends_with("/run/direct.sock")
    );
    assert!(!helper["enforced"].as_array().unwrap().is_empty());
    for name in [
        "layout",
        "cgroup",
        "pidfd",
        "seccomp",
        "landlock",
        "autogroup",
        "leaf",
        "cgroup.kill",
        "freezer",
        "records",
        "init",
        "sandbox",
        "children",
        "base",
    ] {
        let checks = result["checks"].as_array().unwrap();
        assert!(
            checks.iter().any(|check| check["name"] == name),
            "no check {name}"
        );
    }
    assert_eq!(result["looked"].as_array().unwrap().len(), 5);
    assert_eq!(
        sandbox.leaves(),
        Vec::<String>::new(),
        "nothing stays of the trial"
    );
    sandbox.run(["doctor"]).expect(0);

    // Where no leaf can be had: why, what would raise it, and 12.
    let mut command = sandbox.cgleaf(["--json", "doctor"]);
    command.env("CGLEAF_SCOPE_DIR", "/proc/self");
    let mut stop = sandbox.cgleaf(["helper", "stop"]);
    assert!(stop.status().unwrap().success());
    wait_until("the helper's end", || sandbox.helper_pid().is_none());
    let answer = cgleaf_tests::frontend::finish(command);
    answer.expect(12);
    let result = answer.json()["result"].clone();
    assert_eq!(
        (&result["tier"], &result["helper"]),
        (&json!("group"), &Value::Null)
    );
    assert!(!result["reason"].as_str().unwrap().is_empty());
    assert!(!result["advice"].as_str().unwrap().is_empty());
}

#[test]
fn a_helper_is_shown_and_stops_only_without_a_session() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let none = sandbox.run(["--json", "helper", "status"]);
    none.expect(6);
    assert_eq!(none.json()["error"]["code"], "HELPER_UNREACHABLE");
    sandbox.run(["helper", "stop"]).expect(0);

    let mut leader = sandbox.background("s", ["sleep", "1000"]);
    let status = sandbox.run(["--json", "helper", "status"]).json()["result"]["helpers"][0].clone();
    assert_eq!(
        (&status["mode"], &status["sessions"]),
        (&json!("direct"), &json!(1))
    );
    assert_eq!(status["pid"].as_i64(), sandbox.helper_pid().map(i64::from));
    let refused = sandbox.run(["helper", "stop"]);
    refused.expect(7);
    assert!(refused.stderr.contains("destroy them first"), "{refused:?}");
    assert!(leader.lives());
    sandbox.run(["destroy", "s"]).expect(0);
    leader.wait();
    sandbox.run(["helper", "stop"]).expect(0);
    wait_until("the helper's end", || sandbox.helper_pid().is_none());
}

/// `cgleaf helper serve` is the helper where none is installed.
#[test]
fn the_frontend_can_be_the_helper() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let version = sandbox.run(["helper", "serve", "--version"]);
    version.expect(0);
    assert!(version.stdout.starts_with("cgleaf-helper "), "{version:?}");
    sandbox.run(["helper", "serve", "--no-such"]).expect(2);
}

#[test]
fn completions_load_in_their_shells() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for shell in ["bash", "zsh", "fish"] {
        let answer = sandbox.run(["completions", shell]);
        answer.expect(0);
        for word in ["destroy", "freeze", "if-exists"] {
            assert!(answer.stdout.contains(word), "{shell} has no {word}");
        }
    }
    let script = "eval \"$(cgleaf completions bash)\"; complete -p cgleaf; \
        COMP_WORDS=(cgleaf des) COMP_CWORD=1; _cgleaf cgleaf des cgleaf; echo \"${COMPREPLY[@]}\"";
    let loaded = cgleaf_tests::frontend::finish(sandbox.bash(script));
    loaded.expect(0);
    assert!(
        loaded.stdout.lines().any(|line| line == "destroy"),
        "{loaded:?}"
    );
    sandbox.run(["completions", "no-such-shell"]).expect(2);
}

/// Nobody reads, or nobody can: no panic, and an error that says what could not be written.
#[test]
fn a_closed_or_full_stdout_is_no_panic() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let closed = cgleaf_tests::frontend::finish(
        sandbox.bash("cgleaf doctor | true; cgleaf list >&-; echo $?"),
    );
    assert!(!closed.stderr.contains("panicked"), "{closed:?}");
    for (words, code) in [
        ("doctor", 1),
        ("doctor --json", 1),
        ("list --json", 1),
        ("gc --json", 1),
        ("start --json -- true", 1),
        ("show nobody --json", 3),
        ("no-such-command --json", 2),
        ("completions bash", 1),
        ("--help", 1),
        ("--version", 1),
    ] {
        let script = format!("cgleaf {words} >/dev/full");
        let full = cgleaf_tests::frontend::finish(sandbox.bash(&script));
        full.expect(code);
        let said = "writing standard output: No space left on device";
        assert!(full.stderr.contains(said), "{words}: {full:?}");
        // As lost, where there is none at all.
        if !matches!(words, "completions bash" | "--help" | "--version") {
            let closed =
                cgleaf_tests::frontend::finish(sandbox.bash(&format!("cgleaf {words} >&-")));
            closed.expect(code);
            assert!(
                closed.stderr.contains("writing standard output: "),
                "{words}: {closed:?}"
            );
        }
        assert!(!full.stderr.contains("panicked"), "{words}: {full:?}");
    }
}
