//! The options of run, exec and start, one by one.

use cgleaf_tests::frontend::{Sandbox, finish};
use serde_json::Value;

const LEAVES_ONE: &str = "setsid sleep 1000 & sleep .2; echo ok";

/// B08: the pipe is free as soon as the program has ended.
#[test]
fn process_substitution_does_not_hold_the_pipe() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    // Whoever is still to copy something when the program ends is ended too: tee writes its file last.
    let copied = sandbox.runtime().join("copied");
    let script = format!(
        "cgleaf run -- bash -c 'exec > >(tee {copied}; sleep 1000); echo done; until [ -s {copied} ]; do sleep .05; done' \
         | cat; exit ${{PIPESTATUS[0]}}",
        copied = copied.display()
    );
    assert_eq!(finish(sandbox.bash(&script)).expect(0), "done");
}

/// B09: what left the program's POSIX session is not out of reach.
#[test]
fn leftovers_are_killed_with_a_word() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let answer = sandbox.run(["run", "--", "sh", "-c", LEAVES_ONE]);
    assert_eq!(answer.expect(0), "ok");
    assert_eq!(answer.stderr.lines().count(), 1, "{answer:?}");
    assert!(answer.stderr.contains("outlived the program"), "{answer:?}");
    assert_eq!(sandbox.leaves(), Vec::<String>::new());
    let quiet = sandbox.run(["run", "--quiet", "--", "sh", "-c", LEAVES_ONE]);
    assert_eq!((quiet.expect(0), quiet.stderr.as_str()), ("ok", ""));
}

#[test]
fn leftovers_may_be_kept() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    // The sleep holds neither stdout nor stderr, so that the command's outputs end.
    let script = "setsid sleep 1000 >/dev/null 2>&1 & exit 3";
    let answer = sandbox.run([
        "run",
        "--session",
        "k",
        "--leftovers",
        "keep",
        "--",
        "sh",
        "-c",
        script,
    ]);
    answer.expect(3);
    assert!(answer.stderr.contains("session k"), "{answer:?}");
    let listed = sandbox.run(["--json", "list"]).json();
    assert_eq!(listed["result"]["sessions"][0]["session"], "k", "{listed}");
    let shown = sandbox.run(["--json", "show", "k"]).json();
    assert_eq!(shown["result"]["exit"]["code"], 3, "{shown}");
    sandbox.run(["destroy", "k"]).expect(0);
    assert_eq!(sandbox.leaves(), Vec::<String>::new());
}

#[test]
fn leftovers_may_be_waited_for() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let script = "(sleep .5; echo late) & echo early; exit 4";
    let answer = sandbox.run([
        "run",
        "--session",
        "w",
        "--leftovers",
        "wait",
        "--",
        "sh",
        "-c",
        script,
    ]);
    assert_eq!(answer.expect(4), "early\nlate");
    assert_eq!(sandbox.record("w").expect("a record")["phase"], "ended");
    assert_eq!(sandbox.leaves(), Vec::<String>::new());
}

#[test]
fn a_timeout_ends_the_session_with_124() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let script = "setsid sleep 1000 & sleep 1000";
    sandbox
        .run(["run", "--timeout", "300ms", "--", "sh", "-c", script])
        .expect(124);
    assert_eq!(sandbox.leaves(), Vec::<String>::new());
    // One that ends in time has its own status.
    sandbox
        .run(["run", "--timeout", "1000", "--", "sh", "-c", "exit 5"])
        .expect(5);
    // What the leader left counts too.
    let script = "sleep 1000 & exit 5";
    sandbox
        .run([
            "run",
            "--leftovers",
            "wait",
            "--timeout",
            "300ms",
            "--",
            "sh",
            "-c",
            script,
        ])
        .expect(124);
    assert_eq!(sandbox.leaves(), Vec::<String>::new());
}

#[test]
fn the_grace_lets_a_program_tidy_up() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let script = "trap 'echo tidied; exit 0' TERM; echo ready; while :; do sleep .01; done";
    let answer = sandbox.run([
        "run",
        "--timeout",
        "1s",
        "--grace",
        "1000",
        "--",
        "sh",
        "-c",
        script,
    ]);
    assert_eq!(answer.expect(124), "ready\ntidied");
    // Without it there is none.
    let answer = sandbox.run(["run", "--timeout", "1s", "--", "sh", "-c", script]);
    assert_eq!(answer.expect(124), "ready");
}

/// B11: stdin is the program's.
#[test]
fn stdin_is_left_to_the_program() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let stdout = |script: &str| finish(sandbox.bash(script)).expect(0).to_owned();
    for command in ["run", "exec"] {
        let script = format!("printf 'a\\nb\\n' | {{ cgleaf {command} -- true; cat; }}");
        assert_eq!(stdout(&script), "a\nb", "{command}");
        let script = format!("cgleaf {command} -- cat <<< text");
        assert_eq!(stdout(&script), "text", "{command}");
        // A writer that never writes and never closes.
        let script = format!(
            "exec 8< <(exec sleep 1000 >/dev/null 2>&1); p=$!; cgleaf {command} -- true <&8; s=$?; kill $p; exit $s"
        );
        assert_eq!(stdout(&script), "");
    }
}

/// A standard descriptor that is closed stays closed, and nothing of ours takes its place.
#[test]
fn closed_standard_descriptors_stay_closed() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for command in ["run", "exec"] {
        for closed in ["<&-", "2>&-", "<&- 2>&-"] {
            let script = format!("cgleaf {command} -- ls /proc/self/fd {closed} | tr '\\n' ' '");
            let without = format!("ls /proc/self/fd {closed} | tr '\\n' ' '");
            assert_eq!(
                finish(sandbox.bash(&script)).stdout,
                finish(sandbox.bash(&without)).stdout,
                "{command} {closed}"
            );
        }
        finish(sandbox.bash(&format!("cgleaf {command} -- sh -c 'exit 9' <&- >&- 2>&-"))).expect(9);
    }
}

/// No descriptor of ours is inherited, the caller's own are.
#[test]
fn a_program_has_the_callers_descriptors_and_no_other() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let script = |command: &str| {
        format!(
            "exec 7</dev/null; {command} bash -c 'for f in /proc/$$/fd/*; do echo ${{f##*/}}=$(readlink $f); done' | grep -v pipe: | grep -v /proc/"
        )
    };
    let without = finish(sandbox.bash(&script(""))).stdout;
    assert!(without.contains("7=/dev/null"), "{without}");
    for command in ["cgleaf run --", "cgleaf exec --"] {
        assert_eq!(
            finish(sandbox.bash(&script(command))).stdout,
            without,
            "{command}"
        );
    }
}

#[test]
fn after_exec_the_program_has_no_children() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    // The first command here starts the helper; a subreaper would get it as a child.
    let script = "import ctypes, os, sys\n\
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n\
        os.execvp('cgleaf', ['cgleaf', 'exec', '--', 'python3', '-c', \
        'import os, time\\ntime.sleep(.3)\\ntry:\\n print(os.waitpid(-1, os.WNOHANG))\\nexcept ChildProcessError: print(\"none\")'])";
    let mut command = sandbox.command("python3");
    command.arg("-c").arg(script);
    assert_eq!(finish(command).expect(0), "none");
    assert!(sandbox.helper_pid().is_some());
}

/// The status line: one JSON line when the session is enrolled, or why it is not, on a descriptor that the program does not
/// get.
#[test]
fn the_status_descriptor_tells_once() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let status = sandbox.runtime().join("status");
    let told = || -> Value {
        let text = std::fs::read_to_string(&status).expect("the status");
        assert_eq!(text.lines().count(), 1, "{text}");
        serde_json::from_str(&text).expect("JSON")
    };
    for command in ["run", "exec", "start"] {
        let script = format!(
            "cgleaf --json {command} --session {command}1 --status-fd 9 -- sh -c '(echo x >&9) 2>/dev/null; exit 0' 9>{}",
            status.display()
        );
        finish(sandbox.bash(&script)).expect(0);
        let line = told();
        assert_eq!(line["ok"], true, "{line}");
        assert_eq!(line["command"], command);
        assert_eq!(line["result"]["session"], format!("{command}1"));
        assert_eq!(line["result"]["tier"], "cgroup");
        assert!(line["result"]["leader"]["pid"].is_number(), "{line}");
        assert!(line["result"]["leaf"]["path"].is_string(), "{line}");
        let script = format!(
            "cgleaf {command} --status-fd 9 --session {command}1 -- true 9>{}",
            status.display()
        );
        finish(sandbox.bash(&script)).expect(125);
        let line = told();
        assert_eq!(
            (&line["ok"], &line["error"]["code"]),
            (&Value::Bool(false), &"USAGE".into()),
            "{line}"
        );
    }
}

/// `--parent`, and a session inside a session.
#[test]
fn a_session_may_lie_inside_another() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox
        .run([
            "start",
            "--session",
            "outer",
            "--name",
            "o",
            "--",
            "sleep",
            "1000",
        ])
        .expect(0);
    for (number, parent) in ["outer", "o"].into_iter().enumerate() {
        let session = format!("inner{number}");
        let answer = sandbox.run([
            "run",
            "--session",
            &session,
            "--parent",
            parent,
            "--",
            "grep",
            "0::",
            "/proc/self/cgroup",
        ]);
        let place = answer.expect(0);
        assert!(
            place.ends_with(&format!("cgleaf-outer.leaf/cgleaf-{session}.leaf")),
            "{place}"
        );
    }
    let answer = sandbox.run(["run", "--parent", "nobody", "--", "true"]);
    answer.expect(125);
    assert!(answer.stderr.contains("nobody"), "{answer:?}");
    // A caller that is inside is put inside, whatever it says, and carries both marks.
    let nested = "cgleaf exec -- sh -c 'grep 0:: /proc/self/cgroup; echo $CGLEAF_MARK'";
    let answer = sandbox.run(["run", "--session", "around", "--", "sh", "-c", nested]);
    let lines: Vec<&str> = answer.expect(0).lines().collect();
    assert!(lines[0].contains("cgleaf-around.leaf/cgleaf-"), "{lines:?}");
    assert_eq!(lines[1].split(':').count(), 2, "{lines:?}");
    sandbox.run(["destroy", "outer"]).expect(0);
    assert_eq!(sandbox.leaves(), Vec::<String>::new());
}

#[test]
fn programs_know_their_session() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for command in ["run", "exec"] {
        let session = format!("e{command}");
        let answer = sandbox.run([
            command,
            "--session",
            &session,
            "--",
            "sh",
            "-c",
            "echo $CGLEAF_SESSION $CGLEAF_MARK",
        ]);
        let mark = sandbox.record(&session).expect("a record")["mark"].clone();
        assert_eq!(
            answer.expect(0),
            format!("{session} {}", mark.as_str().expect("a mark"))
        );
    }
}

/// The rest of the environment, the working directory, the process group and the limits are the caller's.
#[test]
fn a_program_finds_what_its_caller_had() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let look = "pwd; umask; ulimit -S -n; env | grep -v '^CGLEAF_\\|^_=\\|^SHLVL=' | sort; ps -o pgid=,sid= -p $$ | tr -s ' '";
    let script = |command: &str| {
        format!("cd /usr; umask 027; ulimit -S -n 64; export ODD=$'a\\nb'; {command} sh -c \"$0\"")
    };
    let mut without = sandbox.bash(&script(""));
    without.arg(look);
    let without = finish(without);
    for command in ["cgleaf run --", "cgleaf exec --"] {
        let mut with = sandbox.bash(&script(command));
        with.arg(look);
        let with = finish(with);
        let rest = |text: &str| {
            text.lines()
                .rev()
                .skip(1)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(rest(&with.stdout), rest(&without.stdout), "{command}");
    }
}

#[test]
fn the_tier_that_is_asked_for_is_the_one_that_is_had() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for command in ["run", "exec"] {
        let answer = sandbox.run([command, "--tier", "cgroup", "--", "sh", "-c", "exit 8"]);
        answer.expect(8);
        // Where no helper can be had, nothing is started.
        let mut nowhere = sandbox.cgleaf([command, "--tier", "cgroup", "--", "sh", "-c", "exit 8"]);
        nowhere
            .env("CGLEAF_SCOPE_DIR", "/no/such/directory")
            .env("XDG_RUNTIME_DIR", sandbox.other_runtime("t"));
        let answer = finish(nowhere);
        answer.expect(125);
        assert!(answer.stderr.contains("/no/such/directory"), "{answer:?}");
    }
}

/// Whoever names a socket means that one.
#[test]
fn a_named_socket_is_the_only_one_that_is_asked() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox.run(["run", "--", "true"]).expect(0);
    let socket = sandbox.runtime().join("cgleaf/run/direct.sock");
    sandbox
        .run([
            "--socket",
            socket.to_str().expect("UTF-8"),
            "run",
            "--",
            "true",
        ])
        .expect(0);
    let answer = sandbox.run(["--socket", "/no/such.sock", "run", "--", "true"]);
    answer.expect(125);
    assert!(answer.stderr.contains("/no/such.sock"), "{answer:?}");
    assert_eq!(sandbox.leaves(), Vec::<String>::new());
}
