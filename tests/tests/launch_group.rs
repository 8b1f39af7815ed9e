//! run, exec and start in the group tier: where no leaf can be had, or none is asked for.

use std::process::Stdio;

use cgleaf_tests::frontend::{Sandbox, collect, finish, wait_for};
use cgleaf_tests::scratch::{skip, wait_until};
use cgleaf_tests::terminal::Terminal;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const GROUP: [&str; 2] = ["--tier", "group"];

fn with_tier<'a>(command: &'a str, words: &[&'a str]) -> Vec<&'a str> {
    [&[command][..], &GROUP, words].concat()
}

/// Whether a process runs: neither gone nor a zombie.
fn runs(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn statuses_are_the_programs_own() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for command in ["run", "exec"] {
        for (script, status) in [
            ("exit 7", 7),
            ("kill -TERM $$", 143),
            ("kill -KILL $$", 137),
        ] {
            sandbox
                .run(with_tier(command, &["--", "sh", "-c", script]))
                .expect(status);
        }
        sandbox
            .run(with_tier(command, &["--", "/no/such"]))
            .expect(127);
        sandbox
            .run(with_tier(command, &["--", "/etc/passwd"]))
            .expect(126);
    }
    assert!(
        sandbox.helper_pid().is_none(),
        "no helper is needed, and none was started"
    );
}

#[test]
fn the_record_says_what_it_is() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox
        .run(with_tier(
            "run",
            &["--session", "r", "--", "sh", "-c", "exit 4"],
        ))
        .expect(4);
    let record = sandbox.record("r").expect("a record");
    assert_eq!(
        (&record["tier"], &record["phase"]),
        (&"group".into(), &"ended".into()),
        "{record}"
    );
    assert_eq!(record["exit"]["code"], 4);
    let answer = sandbox.run(with_tier(
        "exec",
        &[
            "--session",
            "e",
            "--",
            "sh",
            "-c",
            "echo $CGLEAF_SESSION $CGLEAF_MARK",
        ],
    ));
    let record = sandbox.record("e").expect("a record");
    let mark = record["group"]["mark"].as_str().expect("a mark").to_owned();
    assert_eq!(answer.expect(0), format!("e {mark}"));
}

/// With nothing said, there is one line, and the program runs.
#[test]
fn where_no_leaf_can_be_had_it_is_what_there_is() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for command in ["run", "exec", "start"] {
        let mut cgleaf = sandbox.cgleaf([command, "--", "sh", "-c", "exit 0"]);
        cgleaf.env("CGLEAF_SCOPE_DIR", "/sys/fs");
        let answer = finish(cgleaf);
        answer.expect(0);
        let told = answer
            .stderr
            .lines()
            .find(|line| line.contains("kept by its processes"));
        assert!(
            told.is_some_and(|line| line.contains("/sys/fs")),
            "{answer:?}"
        );
    }
    let mut cgleaf = sandbox.cgleaf(["run", "--parent", "x", "--tier", "group", "--", "true"]);
    cgleaf.env("CGLEAF_SCOPE_DIR", "/sys/fs");
    finish(cgleaf).expect(125);
}

#[test]
fn leftovers() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let script = "setsid sh -c 'echo $$; exec sleep 1000 >/dev/null 2>&1' & sleep .3";
    let run = |leftovers| {
        sandbox.run(with_tier(
            "run",
            &[
                "--session",
                leftovers,
                "--leftovers",
                leftovers,
                "--",
                "sh",
                "-c",
                script,
            ],
        ))
    };
    let answer = run("kill");
    let left = answer.expect(0);
    assert!(!runs(left), "{left} lives");
    let told = "session kill: 1 process outlived the program and was ended";
    assert!(answer.stderr.contains(told), "{answer:?}");
    let answer = run("keep");
    let left = answer.expect(0).to_owned();
    let told = "session keep goes on without its first program";
    assert!(answer.stderr.contains(told), "{answer:?}");
    assert!(runs(&left), "{left} was ended");
    kill(Pid::from_raw(left.parse().expect("a pid")), Signal::SIGKILL).expect("end it");
    wait_until("the end in the record", || {
        sandbox
            .record("keep")
            .is_some_and(|record| record["phase"] == "ended")
    });
    let script = "(sleep .5; echo late) & exit 3";
    let answer = sandbox.run(with_tier(
        "run",
        &["--leftovers", "wait", "--", "sh", "-c", script],
    ));
    assert_eq!(answer.expect(3), "late");
}

#[test]
fn a_timeout_with_and_without_grace() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let script = "setsid sh -c 'echo $$; exec sleep 1000 >/dev/null 2>&1' & sleep 1000";
    let answer = sandbox.run(with_tier(
        "run",
        &["--timeout", "1s", "--", "sh", "-c", script],
    ));
    assert!(!runs(answer.expect(124)));
    let script = "trap 'echo tidied; exit 0' TERM; while :; do sleep .01; done";
    let answer = sandbox.run(with_tier(
        "run",
        &[
            "--timeout",
            "1s",
            "--grace",
            "1000",
            "--",
            "sh",
            "-c",
            script,
        ],
    ));
    assert_eq!(answer.expect(124), "tidied");
}

/// What the leader leaves has the time too that `--grace` gives, whichever way its end comes.
#[test]
fn leftovers_have_their_grace() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let leftover = "trap 'sleep .3; echo tidied; exit' TERM; : >$0; while :; do sleep .01; done";
    let leader = |more: &str| {
        format!("setsid sh -c \"$1\" $0 & until [ -e $0 ]; do sleep .01; done; {more}")
    };
    for (case, leader, options, status) in [
        ("end", leader("exit 3"), &["--grace", "60s"][..], 3),
        (
            "timeout",
            leader("exec sleep 300"),
            &["--grace", "60s", "--timeout", "3s"],
            124,
        ),
    ] {
        let ready = sandbox.runtime().join(case).display().to_string();
        let mut words = with_tier("run", options);
        words.extend(["--", "sh", "-c", &leader, &ready, leftover]);
        assert_eq!(sandbox.run(words).expect(status), "tidied", "{case}");
    }
    // Whoever does not end by itself is ended.
    let ready = sandbox.runtime().join("deaf").display().to_string();
    let deaf = "trap '' TERM; echo $$ >$0; exec sleep 300 >&- 2>&-";
    let leader = leader("cat $0");
    let mut words = with_tier("run", &["--grace", "100ms"]);
    words.extend(["--", "sh", "-c", &leader, &ready, deaf]);
    let answer = sandbox.run(words);
    assert!(!runs(answer.expect(0)));
    assert!(answer.stderr.contains("1 process outlived"), "{answer:?}");
}

/// Nobody is forgotten whose parent ends first, and nobody has less time since the leader does.
#[test]
fn a_destroy_with_grace_asks_everybody() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let child =
        "trap 'sleep .2; : >$0.tidied; exit' TERM; : >$0.ready; while :; do sleep .05; done";
    let leader = "for i in $(seq 12); do sh -c 'sh -c \"$1\" $0 & wait' $0/$i \"$1\" & done; wait";
    for command in ["start", "run"] {
        let files = sandbox.other_runtime(command);
        let count = |what: &str| {
            let entries = std::fs::read_dir(&files).expect("the files");
            entries
                .filter(|entry| {
                    let name = entry.as_ref().expect("a file").file_name();
                    name.to_string_lossy().ends_with(what)
                })
                .count()
        };
        let path = files.display().to_string();
        let mut words = with_tier(command, &["--session", command, "--"]);
        words.extend(["sh", "-c", leader, &path, child]);
        let mut cgleaf = sandbox.cgleaf(words).spawn().expect("start cgleaf");
        wait_until("all of them", || count(".ready") == 12);
        sandbox
            .run(["destroy", "--grace", "60s", command])
            .expect(0);
        wait_for(&mut cgleaf);
        assert_eq!(count(".tidied"), 12, "{command}");
    }
}

#[test]
fn signals_and_a_killed_frontend() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let start = |session: &str, more: &[&str]| {
        let mut words = vec!["run", "--tier", "group", "--session", session];
        words.extend(more);
        words.extend(["--", "sleep", "1000"]);
        let child = sandbox.cgleaf(words).spawn().expect("start cgleaf");
        let mut leader = String::new();
        wait_until("the program", || {
            leader = sandbox
                .record(session)
                .map_or_else(String::new, |record| record["leader"]["pid"].to_string());
            std::fs::read(format!("/proc/{leader}/cmdline"))
                .is_ok_and(|line| line.starts_with(b"sleep"))
        });
        (child, leader)
    };
    let (mut child, _) = start("t", &[]);
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).expect("send it");
    assert_eq!(wait_for(&mut child).code(), Some(143));
    // Without a lease the program goes on when the frontend is killed, with one it does not.
    let (mut child, leader) = start("k", &[]);
    child.kill().expect("kill it");
    wait_for(&mut child);
    assert!(runs(&leader));
    kill(
        Pid::from_raw(leader.parse().expect("a pid")),
        Signal::SIGTERM,
    )
    .expect("end it");
    wait_until("its end in the record", || {
        sandbox
            .record("k")
            .is_some_and(|record| record["exit"]["signal"] == 15)
    });
    let (mut child, leader) = start("l", &["--die-with-frontend"]);
    child.kill().expect("kill it");
    wait_for(&mut child);
    wait_until("the program's end", || !runs(&leader));
}

/// How the program ends nobody can tell then: it is ended, and that is said whoever wants to hear nothing.
#[test]
fn a_killed_monitor_is_told_of_and_nothing_goes_on_unkept() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let script = "setsid sleep 300 & echo $!; exec sleep 300";
    let words = ["--quiet", "--session", "s", "--", "sh", "-c", script];
    let mut command = sandbox.cgleaf(with_tier("run", &words));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let cgleaf = command.spawn().expect("start cgleaf");
    let running = |pid: &str| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"sleep"))
    };
    let mut record = serde_json::Value::Null;
    wait_until("the program", || {
        record = sandbox.record("s").unwrap_or_default();
        running(&record["leader"]["pid"].to_string())
    });
    let monitor = Pid::from_raw(sandbox.monitor("s"));
    kill(monitor, Signal::SIGKILL).expect("kill it");
    let answer = collect(cgleaf);
    let child = answer.expect(137);
    for pid in [child, &record["leader"]["pid"].to_string()] {
        assert!(!runs(pid), "{pid} lives");
    }
    let told = "monitor of session s was killed by somebody else";
    assert!(answer.stderr.contains(told), "{answer:?}");
}

/// Whoever ends just behind a look at the children is seen all the same. strace(1) holds the monitor there.
#[test]
fn an_end_behind_the_look_at_the_children_is_seen() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    if sandbox.command("strace").arg("-V").output().is_err() {
        return skip("strace is not installed");
    }
    let mut command = sandbox.command("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=wait4"]);
    command.args(["-e", "inject=wait4:delay_exit=800000"]);
    command.arg(sandbox.program());
    command.args(with_tier("run", &["--", "sleep", ".3"]));
    finish(command).expect(0);
}

#[test]
fn start_keeps_log_and_status() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let words = with_tier(
        "start",
        &[
            "--session",
            "s",
            "--name",
            "n",
            "--",
            "sh",
            "-c",
            "echo out; ps -o sid= -p $$; exit 6",
        ],
    );
    assert_eq!(sandbox.run(words).expect(0), "s");
    wait_until("its end", || {
        sandbox
            .record("s")
            .is_some_and(|record| record["phase"] == "ended")
    });
    let record = sandbox.record("s").expect("a record");
    assert_eq!(record["exit"]["code"], 6);
    let log = std::fs::read_to_string(record["log"].as_str().expect("a log")).expect("read it");
    let lines: Vec<&str> = log.lines().map(str::trim).collect();
    assert_eq!(lines, ["out", &record["leader"]["pid"].to_string()]);
    // The name is free again.
    sandbox
        .run(with_tier("run", &["--name", "n", "--", "true"]))
        .expect(0);
}

#[test]
fn on_a_terminal() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut terminal = Terminal::new(&sandbox);
    terminal.type_in("cgleaf run --tier group --session z -- sh -c 'echo rea\"\"dy; read x; echo got-$x; exit 5'\r");
    terminal.expect("ready");
    terminal.type_in("\u{1a}");
    terminal.expect("Stopped");
    let leader = sandbox.record("z").expect("a record")["leader"]["pid"].to_string();
    let stopped = || {
        std::fs::read_to_string(format!("/proc/{leader}/stat"))
            .is_ok_and(|stat| stat.contains(") T "))
    };
    assert!(stopped());
    terminal.type_in("fg\r");
    // What is typed before that is the shell's.
    wait_until("the program going on", || !stopped());
    terminal.type_in("hello\r");
    terminal.expect("got-hello");
    wait_until("the record", || {
        sandbox
            .record("z")
            .is_some_and(|record| record["exit"]["code"] == 5)
    });
    terminal.type_in("cgleaf run --tier group -- sh -c 'echo sleep\"\"ing; exec sleep 1000'\r");
    terminal.expect("sleeping");
    terminal.type_in("\u{3}");
    // What is typed before the shell is back is lost with the interrupted line.
    terminal.expect("$ ");
    let (_, status) = terminal.line("true");
    assert_eq!(status, 0);
}

/// `run` comes back when nothing of the session is there any more, its monitor included: whoever looks next, as `list --all`, would take
/// that for a session that runs.
#[test]
fn no_monitor_outlives_run() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let script = "for _ in {1..40}; do cgleaf run --tier group -- true; them=(/proc/[0-9]*); echo ${#them[@]}; done; exit 0";
    let mut command = sandbox.command("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["bash", "-c", script]);
    let counted = finish(command);
    let others = counted
        .expect(0)
        .lines()
        .filter(|count| *count != "1")
        .count();
    assert_eq!(others, 0, "{counted:?}");
}
