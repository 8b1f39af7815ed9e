//! What people see: on a real terminal, and where there is none.

use std::process::{Command, Output};

use cgleaf_tests::frontend::Sandbox;
use cgleaf_tests::require;
use cgleaf_tests::scratch::{start_tmux, wait_until};

/// A terminal of its own. It ends with the value.
struct Terminal {
    socket: String,
}

impl Terminal {
    /// Runs a command line in a shell of the sandbox, 100 columns wide.
    fn run(sandbox: &Sandbox, line: &str) -> Self {
        let socket = sandbox.runtime().join("tmux").display().to_string();
        let terminal = Self { socket };
        let mut command = sandbox.command("tmux");
        command.args([
            "-f",
            "/dev/null",
            "-S",
            &terminal.socket,
            "new-session",
            "-d",
            "-x",
            "100",
            "-y",
            "24",
        ]);
        command.args(["sh", "-c", line]);
        let started = start_tmux(|| {
            let answer = command.output().expect("run tmux");
            let stderr = String::from_utf8_lossy(&answer.stderr).into_owned();
            (answer, stderr)
        });
        assert!(
            started.status.success(),
            "{}",
            String::from_utf8_lossy(&started.stderr)
        );
        terminal
    }

    fn tmux(&self, words: &[&str]) -> Output {
        Command::new("tmux")
            .args(["-S", &self.socket])
            .args(words)
            .output()
            .expect("run tmux")
    }

    /// What it shows; with its colours, as escape sequences.
    fn shows(&self) -> String {
        let screen = self.tmux(&["capture-pane", "-p", "-e"]);
        String::from_utf8_lossy(&screen.stdout).into_owned()
    }

    fn wait_for(&self, text: &str) -> String {
        wait_until(&format!("the terminal shows {text:?}"), || {
            self.shows().contains(text)
        });
        self.shows()
    }

    fn type_key(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

const GREEN: &str = "\u{1b}[32mrunning";

#[test]
fn top_shows_what_runs_until_it_is_left_and_gives_the_screen_back() {
    require!(Cgroup2, Terminal);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox
        .run([
            "start",
            "--name",
            "busy",
            "--",
            "sh",
            "-c",
            "while :; do :; done",
        ])
        .expect(0);
    sandbox
        .run(["start", "--name", "idle", "--", "sleep", "600"])
        .expect(0);
    let program = sandbox.program().display().to_string();
    let terminal = Terminal::run(
        &sandbox,
        &format!("echo before; {program} top --interval 100ms; echo left; exec cat"),
    );
    let screen = terminal.wait_for("idle");
    assert!(screen.contains("2 sessions, 2 processes"), "{screen}");
    assert!(screen.contains(GREEN), "{screen}");
    assert!(!screen.contains("before"), "{screen}");
    let busy = |screen: &str| screen.find("busy") < screen.find("idle");
    wait_until("who uses most comes first", || busy(&terminal.shows()));

    sandbox.run(["freeze", "busy"]).expect(0);
    terminal.wait_for("frozen");
    terminal.type_key("q");
    let screen = terminal.wait_for("left");
    assert!(
        screen.contains("before") && !screen.contains("busy"),
        "{screen}"
    );
}

#[test]
fn ctrl_c_leaves_top_as_a_person_expects() {
    require!(Cgroup2, Terminal);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let program = sandbox.program().display().to_string();
    let terminal = Terminal::run(
        &sandbox,
        &format!("{program} top; echo left $?; stty -a; echo shown; exec cat"),
    );
    terminal.wait_for("0 sessions");
    terminal.type_key("C-c");
    let screen = terminal.wait_for("shown");
    assert!(screen.contains("left 0"), "{screen}");
    for setting in [" icanon", " echo ", "isig"] {
        assert!(
            screen.contains(setting),
            "{setting:?} is not set again: {screen}"
        );
    }
}

#[test]
fn colours_are_for_terminals_and_not_for_those_who_want_none() {
    require!(Cgroup2, Terminal);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox.run(["start", "--", "sleep", "600"]).expect(0);
    let program = sandbox.program().display().to_string();
    for (line, coloured) in [
        (format!("{program} list; exec cat"), true),
        (format!("NO_COLOR=1 {program} list; exec cat"), false),
        (format!("TERM=dumb {program} list; exec cat"), false),
        (format!("{program} list | cat; exec cat"), false),
    ] {
        let terminal = Terminal::run(&sandbox, &line);
        let screen = terminal.wait_for("sleep 600");
        assert_eq!(screen.contains(GREEN), coloured, "{line}: {screen}");
    }
}

#[test]
fn a_table_ends_where_the_terminal_does() {
    require!(Cgroup2, Terminal);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let long = format!("sleep 600; : {}", "x".repeat(300));
    sandbox.run(["start", "--", "sh", "-c", &long]).expect(0);
    let program = sandbox.program().display().to_string();
    let terminal = Terminal::run(&sandbox, &format!("{program} list; echo done; exec cat"));
    let screen = terminal.wait_for("done");
    let lines: Vec<&str> = screen
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    assert_eq!(
        lines.len(),
        3,
        "a head, one line, and the shell's: {screen}"
    );
    assert!(lines[1].ends_with('…'), "{screen}");
}

/// Who ignores SIGTERM makes a destroy with a grace take as long as that. Nothing is said where nobody looks.
#[test]
fn what_takes_long_is_told_on_a_terminal() {
    require!(Cgroup2, Terminal);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let names = ["one", "two", "three", "four"];
    let start = || {
        for name in names {
            let stubborn = "trap '' TERM; while :; do sleep 1; done";
            sandbox
                .run(["start", "--name", name, "--", "sh", "-c", stubborn])
                .expect(0);
        }
    };
    start();
    let program = sandbox.program().display().to_string();
    for (words, told) in [
        ("one", "ending one … "),
        ("two three four", "ending two, three, four … "),
    ] {
        let line = format!("{program} destroy --grace 3s {words}; echo status $?; exec cat");
        let terminal = Terminal::run(&sandbox, &line);
        terminal.wait_for(told);
        let screen = terminal.wait_for("status 0");
        assert!(
            !screen.contains("ending"),
            "the line is taken back: {screen}"
        );
    }
    start();
    let line = format!(
        "{program} destroy --grace 3s {}; echo status $?; exec cat",
        names.join(" ")
    );
    let terminal = Terminal::run(&sandbox, &line);
    terminal.wait_for("ending 4 sessions, 0 done … ");
    terminal.wait_for("status 0");
    start();
    let answer = sandbox.run([&["destroy", "--grace", "2s"], &names[..]].concat());
    answer.expect(0);
    assert_eq!(answer.stderr, "");
}

#[test]
fn verbose_tells_each_operation_and_only_when_it_is_asked_for() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let answer = sandbox.run(["-v", "start", "--session", "s", "--", "sleep", "600"]);
    assert_eq!(answer.expect(0), "s");
    let operations = [
        "renameat2(2), RENAME_NOREPLACE: ",
        "create s: mkdir(2) cgleaf-s.leaf",
        "clone3(2) with CLONE_INTO_CGROUP: ",
        "becomes /usr/bin/sleep",
    ];
    for operation in operations {
        assert!(answer.stderr.contains(operation), "{operation}: {answer:?}");
    }
    let answer = sandbox.run(["signal", "s", "CONT", "--verbose"]);
    answer.expect(0);
    for operation in [
        "hold s: 1 to cgroup.freeze",
        "pidfd_send_signal(2): SIGCONT to pid ",
        "let go of s: 0 to cgroup.freeze",
    ] {
        assert!(answer.stderr.contains(operation), "{operation}: {answer:?}");
    }
    let answer = sandbox.run(["--json", "-v", "destroy", "s"]);
    assert_eq!(answer.json()["result"]["destroyed"], true);
    assert!(
        answer.stderr.contains("kill s: 1 to cgroup.kill"),
        "{answer:?}"
    );
    let answer = sandbox.run(["run", "--", "true"]);
    answer.expect(0);
    assert_eq!(answer.stderr, "");
}

#[test]
fn a_slip_in_a_name_is_answered_with_the_name() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox
        .run(["start", "--name", "deploy", "--", "sleep", "600"])
        .expect(0);
    let answer = sandbox.run(["show", "deplyo"]);
    assert_eq!(answer.code(), 3);
    assert!(
        answer.stderr.contains("did you mean deploy?"),
        "{}",
        answer.stderr
    );
    let answer = sandbox.run(["--json", "destroy", "deplyo", "--if-exists"]);
    assert_eq!(
        answer.code(),
        0,
        "a suggestion is no session: {}",
        answer.stdout
    );
    sandbox.run(["show", "deploy"]).expect(0);
    let answer = sandbox.run(["sohw", "deploy"]);
    assert_eq!(answer.code(), 2);
    assert!(answer.stderr.contains("'show'"), "{}", answer.stderr);
}

#[test]
fn what_sessions_use_is_told_in_numbers() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox
        .run([
            "start",
            "--name",
            "busy",
            "--",
            "sh",
            "-c",
            "while :; do :; done",
        ])
        .expect(0);
    let usage = || {
        let answer = sandbox.run(["--json", "top", "--interval", "50ms"]);
        let session = answer.json()["result"]["sessions"][0].clone();
        assert_eq!(session["name"], "busy", "{session}");
        assert_eq!(session["members"], 1);
        session
    };
    let first = usage();
    assert!(
        first["memory"]
            .as_u64()
            .is_some_and(|bytes| bytes > 100_000),
        "{first}"
    );
    let spent = |usage: &serde_json::Value| usage["cpu_usec"].as_u64().expect("a number");
    // A processor's time goes one way, however little of it a loaded machine gives.
    wait_until("it uses its processor", || spent(&usage()) > spent(&first));
}
