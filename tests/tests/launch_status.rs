//! What a program's end looks like through `run` and `exec`: the status is the program's, and cgleaf's own failures are
//! 125, 126 and 127.

use cgleaf_tests::frontend::Sandbox;
use serde_json::json;

/// B01: death by a signal is never success.
#[test]
fn the_status_is_the_programs_own() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for command in ["run", "exec"] {
        for (script, status) in [
            ("exit 0", 0),
            ("exit 7", 7),
            ("exit 255", 255),
            ("kill -TERM $$", 143),
            ("kill -KILL $$", 137),
            ("kill -SEGV $$", 139),
        ] {
            let answer = sandbox.run([command, "--", "sh", "-c", script]);
            assert_eq!(answer.code(), status, "{command} {script}: {answer:?}");
            assert_eq!(answer.stderr, "", "{command} {script}");
        }
    }
}

#[test]
fn the_record_says_how_a_run_ended() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for (id, script, exit) in [
        ("seven", "exit 7", json!({"code": 7})),
        ("term", "kill -TERM $$", json!({"signal": 15})),
        ("segv", "kill -SEGV $$", json!({"signal": 11})),
    ] {
        let _ = sandbox.run(["run", "--session", id, "--", "sh", "-c", script]);
        let record = sandbox.record(id).expect("a record");
        assert_eq!(record["exit"], exit, "{record}");
        assert_eq!(record["phase"], "ended", "{record}");
    }
    assert_eq!(sandbox.leaves(), Vec::<String>::new());
}

#[test]
fn a_program_that_cannot_start_leaves_nothing() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let bad = sandbox.runtime().join("bad-interpreter");
    std::fs::write(&bad, "#!/no/such/interpreter\n").expect("write a script");
    std::process::Command::new("chmod")
        .arg("755")
        .arg(&bad)
        .status()
        .expect("chmod");
    let bad = bad.to_str().expect("UTF-8").to_owned();
    for command in ["run", "exec"] {
        for (program, status) in [
            ("/no/such", 127),
            ("no-such-program", 127),
            ("/etc/passwd", 126),
            ("/etc", 126),
            // It is there and may be executed: only execve(2) finds out, when all is made already.
            (bad.as_str(), 127),
        ] {
            let answer = sandbox.run([command, "--name", "n", "--", program]);
            assert_eq!(answer.code(), status, "{command} {program}: {answer:?}");
            assert!(answer.stderr.contains(program), "{answer:?}");
            assert_eq!(
                sandbox.record_files(),
                Vec::<String>::new(),
                "{command} {program}"
            );
            assert!(!sandbox.runtime().join("cgleaf/names/n").exists());
            cgleaf_tests::scratch::wait_until("the leaf's removal", || sandbox.leaves().is_empty());
        }
    }
}

/// A script without an interpreter line is the shell's, as with execvp(3).
#[test]
fn a_script_without_an_interpreter_line_runs() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let script = sandbox.runtime().join("script");
    std::fs::write(&script, "echo script $1; exit 5\n").expect("write a script");
    std::process::Command::new("chmod")
        .arg("755")
        .arg(&script)
        .status()
        .expect("chmod");
    for command in ["run", "exec"] {
        let words = [command, "--", script.to_str().expect("UTF-8"), "word"];
        let answer = sandbox.run(words);
        assert_eq!(
            (answer.code(), answer.stdout.as_str()),
            (5, "script word\n"),
            "{answer:?}"
        );
    }
}

/// For run, exec and start a usage error is 125: the statuses below are the program's.
#[test]
fn a_usage_error_is_125_and_makes_nothing() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for words in [
        &["run"][..],
        &["exec", "--no-such-option", "--", "true"],
        &["run", "--session", "..", "--", "true"],
        &["exec", "--json", "--", "true"],
        &["run", "--status-fd", "999", "--", "true"],
        &[
            "run",
            "--leftovers",
            "keep",
            "--die-with-frontend",
            "--",
            "true",
        ],
    ] {
        let answer = sandbox.run(words);
        assert_eq!(answer.code(), 125, "{words:?}: {answer:?}");
        assert!(!answer.stderr.is_empty(), "{words:?}");
        assert_eq!(sandbox.record_files(), Vec::<String>::new());
    }
}

/// B14: a program that is over before anybody could look at it.
#[test]
fn short_programs_are_never_missed() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let answer = cgleaf_tests::frontend::finish(
        sandbox
            .bash("n=0; for i in $(seq 500); do cgleaf run -- true && n=$((n+1)); done; echo $n"),
    );
    assert_eq!(answer.stdout, "500\n", "{answer:?}");
    assert_eq!(sandbox.leaves(), Vec::<String>::new());
}
