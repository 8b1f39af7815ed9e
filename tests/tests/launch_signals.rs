//! Signals: what a program inherits, what reaches it through `run`, and what is left when the frontend is killed.

use std::process::{Child, Stdio};

use cgleaf_shared::process::State;
use cgleaf_tests::frontend::{Sandbox, collect, finish, wait_for};
use cgleaf_tests::group::state;
use cgleaf_tests::scratch::wait_until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// B06: what a program finds in its signal state through `command` and without it.
fn signal_state(sandbox: &Sandbox, env: &str, command: &str) -> String {
    let script =
        format!("env {env} {command} grep -E '^(SigBlk|SigIgn|SigPnd|ShdPnd)' /proc/self/status");
    finish(sandbox.bash(&script)).expect(0).to_owned()
}

#[test]
fn a_programs_signal_state_is_the_callers() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for env in [
        "",
        "--block-signal=TERM --ignore-signal=PIPE",
        "--ignore-signal=CHLD --ignore-signal=HUP",
        "--block-signal=CHLD --block-signal=USR1 --ignore-signal=INT",
        "--default-signal=PIPE --block-signal",
    ] {
        let without = signal_state(&sandbox, env, "");
        for command in ["cgleaf run --", "cgleaf exec --"] {
            assert_eq!(
                signal_state(&sandbox, env, command),
                without,
                "{env} {command}"
            );
        }
    }
}

/// Where SIGCHLD is ignored, the kernel throws a child's status away unless somebody sees to it.
#[test]
fn an_ignored_sigchld_loses_no_status() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for command in ["run", "exec"] {
        let script = format!("env --ignore-signal=CHLD cgleaf {command} -- sh -c 'exit 7'");
        finish(sandbox.bash(&script)).expect(7);
    }
}

/// A run of a program that sleeps, once that program itself is running.
fn running(sandbox: &Sandbox, session: &str, words: &[&str]) -> Child {
    let mut arguments = vec!["run", "--session", session, "--"];
    arguments.extend(words);
    let child = sandbox.cgleaf(arguments).spawn().expect("start cgleaf");
    await_program(sandbox, session, words[0]);
    child
}

fn await_program(sandbox: &Sandbox, session: &str, program: &str) {
    wait_until("the program", || {
        sandbox.members(session).iter().any(|pid| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.starts_with(program.as_bytes()))
        })
    });
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

/// B05: a signal that somebody sends to the frontend is meant for the program.
#[test]
fn a_signal_that_is_sent_reaches_the_program() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for (number, (signal, status)) in [
        (Signal::SIGINT, 130),
        (Signal::SIGTERM, 143),
        (Signal::SIGHUP, 129),
        (Signal::SIGQUIT, 131),
        (Signal::SIGUSR1, 138),
    ]
    .into_iter()
    .enumerate()
    {
        use std::os::unix::process::ExitStatusExt;
        let mut child = running(&sandbox, &format!("s{number}"), &["sleep", "1000"]);
        kill(pid_of(&child), signal).expect("send it");
        let ended = wait_for(&mut child);
        assert_eq!(
            (ended.code(), ended.signal()),
            (Some(status), None),
            "{signal}"
        );
    }
}

/// Delivered once: a program that counts.
#[test]
fn a_signal_that_is_sent_is_delivered_once() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let script = "trap 'n=$((n+1)); echo term' TERM; trap 'echo $n; exit' USR1; n=0; echo ready; while :; do sleep .01; done";
    let mut command = sandbox.cgleaf(["run", "--session", "once", "--", "sh", "-c", script]);
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("start cgleaf");
    let mut output = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut output, &mut line).expect("read");
    assert_eq!(line, "ready\n");
    kill(pid_of(&child), Signal::SIGTERM).expect("send it");
    line.clear();
    std::io::BufRead::read_line(&mut output, &mut line).expect("read");
    assert_eq!(line, "term\n");
    kill(pid_of(&child), Signal::SIGUSR1).expect("send it");
    line.clear();
    std::io::BufRead::read_line(&mut output, &mut line).expect("read");
    wait_for(&mut child);
    assert_eq!(line.trim(), "1");
}

/// A program that signals its own process group, as vim does to stop, has the signal already.
#[test]
fn a_signal_of_the_program_itself_is_not_sent_back_to_it() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let script = "trap 'n=$((n+1))' USR1; n=0; kill -USR1 0; kill -USR1 $PPID; sleep .3; echo $n";
    // A group of its own, so that this test's own is spared.
    let mut command = sandbox.command("setsid");
    command
        .arg("-w")
        .arg(sandbox.program())
        .args(["run", "--", "sh", "-c", script]);
    assert_eq!(finish(command).expect(0), "1");
}

/// B05: the frontend is killed, and nothing of the session is lost.
#[test]
fn a_session_outlives_a_killed_frontend_and_is_ended_later() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut command = sandbox.cgleaf([
        "run",
        "--session",
        "j1",
        "--name",
        "j",
        "--",
        "sh",
        "-c",
        "setsid sleep 1000 & sleep 1000",
    ]);
    let mut child = command.spawn().expect("start cgleaf");
    wait_until("three members", || sandbox.members("j1").len() == 3);
    wait_until("the record", || {
        sandbox
            .record("j1")
            .is_some_and(|record| record["phase"] == "running")
    });
    child.kill().expect("kill it");
    wait_for(&mut child);
    let listed = sandbox.run(["--json", "list"]).json();
    assert_eq!(listed["result"]["sessions"][0]["name"], "j", "{listed}");
    assert_eq!(
        listed["result"]["sessions"][0]["state"], "running",
        "{listed}"
    );
    let members = sandbox.members("j1");
    sandbox.run(["destroy", "j"]).expect(0);
    for pid in members {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(
            state.is_empty() || state.contains(") Z "),
            "{pid} lives: {state}"
        );
    }
    assert_eq!(sandbox.leaves(), Vec::<String>::new());
}

/// `--die-with-frontend`: however it ends.
#[test]
fn a_session_with_a_lease_ends_with_its_frontend() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut command = sandbox.cgleaf([
        "run",
        "--session",
        "lease",
        "--die-with-frontend",
        "--",
        "sh",
        "-c",
        "setsid sleep 1000 & sleep 1000",
    ]);
    let mut child = command.spawn().expect("start cgleaf");
    wait_until("three members", || sandbox.members("lease").len() == 3);
    child.kill().expect("kill it");
    wait_for(&mut child);
    wait_until("the session's end", || !sandbox.leaf("lease").exists());
}

/// The same after the helper was killed meanwhile: the frontend comes back to its successor, which it starts.
#[test]
fn a_lease_outlives_the_helper() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut command = sandbox.cgleaf([
        "run",
        "--session",
        "lease",
        "--die-with-frontend",
        "--",
        "sh",
        "-c",
        "sleep 1000",
    ]);
    let mut child = command.spawn().expect("start cgleaf");
    await_program(&sandbox, "lease", "sleep");
    let helper = sandbox.helper_pid().expect("a helper");
    kill(Pid::from_raw(helper), Signal::SIGKILL).expect("kill the helper");
    wait_until("another helper", || {
        sandbox.helper_pid().is_some_and(|pid| pid != helper)
    });
    // It has the lease when the attribute is there and a client is connected.
    wait_until("the lease", || {
        let status = sandbox.run(["--json", "list"]).json();
        status["result"]["sessions"][0]["session"] == "lease"
    });
    assert!(!sandbox.members("lease").is_empty());
    child.kill().expect("kill it");
    wait_for(&mut child);
    wait_until("the session's end", || !sandbox.leaf("lease").exists());
}

/// It stops with its program, so that a shell sees it; and nobody has to know that to have it go on.
#[test]
fn a_run_that_stopped_with_its_program_goes_on_with_it() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for tier in ["cgroup", "group"] {
        let words = ["run", "--tier", tier, "--session", tier, "--"];
        let mut command = sandbox.cgleaf(words);
        let mut cgleaf = command.args(["sleep", "300"]).spawn().expect("start it");
        wait_until("the program", || {
            let record = sandbox.record(tier).unwrap_or_default();
            let line = format!("/proc/{}/cmdline", record["leader"]["pid"]);
            std::fs::read(line).is_ok_and(|line| line.starts_with(b"sleep"))
        });
        let pid = cgleaf_tests::group::pid_of(&cgleaf);
        let is_stopped = || state(pid) == Some(State::Stopped);
        for _ in 0..2 {
            sandbox.run(["signal", tier, "STOP"]).expect(0);
            wait_until("run to stop too", is_stopped);
            sandbox.run(["signal", tier, "CONT"]).expect(0);
            wait_until("run to go on", || !is_stopped());
        }
        sandbox.run(["signal", tier, "STOP"]).expect(0);
        wait_until("run to stop too", is_stopped);
        sandbox.run(["destroy", tier]).expect(0);
        assert_eq!(wait_for(&mut cgleaf).code(), Some(137), "{tier}");
    }
}

/// A program that stops itself again and again, and somebody who continues it each time: whoever sees a stop late stops for none that
/// is over. Nor does it wait for whom nobody keeps any more.
#[test]
fn a_run_comes_back_however_often_its_program_stops() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let script = "i=0; while [ $i -lt 20 ]; do kill -STOP $$; i=$((i+1)); done; exit 5";
    for tier in ["cgroup", "group"] {
        let words = ["run", "--tier", tier, "--session", tier, "--", "sh", "-c"];
        let mut cgleaf = sandbox.cgleaf(words).arg(script).spawn().expect("start it");
        let mut status = None;
        wait_until("its end", || {
            sandbox.run(["signal", tier, "CONT"]);
            status = cgleaf.try_wait().expect("ask for its end");
            status.is_some()
        });
        assert_eq!(status.and_then(|it| it.code()), Some(5), "{tier}");
    }
    let words = ["run", "--tier", "group", "--session", "m", "--", "sh", "-c"];
    let mut cgleaf = sandbox.cgleaf(words);
    let cgleaf = cgleaf.arg("kill -STOP $$").stderr(Stdio::piped()).spawn();
    let cgleaf = cgleaf.expect("start it");
    let pid = cgleaf_tests::group::pid_of(&cgleaf);
    wait_until("run to stop too", || state(pid) == Some(State::Stopped));
    let monitor = Pid::from_raw(sandbox.monitor("m"));
    kill(monitor, Signal::SIGKILL).expect("kill it");
    let answer = collect(cgleaf);
    answer.expect(137);
    assert!(
        answer.stderr.contains("was killed by somebody else"),
        "{answer:?}"
    );
}

/// A process that is stopped sees no time pass; a time that was set is over all the same.
#[test]
fn a_timeout_comes_also_while_the_program_is_stopped() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for tier in ["cgroup", "group"] {
        let options = ["run", "--tier", tier, "--timeout", "1s"];
        let script = "echo started; kill -STOP $$; echo never; sleep 1000";
        let words = [&options[..], &["--", "sh", "-c", script]].concat();
        assert_eq!(sandbox.run(words).expect(124), "started", "{tier}");
        // With time to tidy up it goes on for that.
        let script = "trap 'echo tidied; exit' TERM; kill -STOP $$; while :; do sleep .01; done";
        let more = ["--grace", "60s", "--", "sh", "-c", script];
        let words = [&options[..], &more].concat();
        assert_eq!(sandbox.run(words).expect(124), "tidied", "{tier}");
        // cgleaf itself.
        let words = [&options[..], &["--session", tier, "--", "sleep", "1000"]].concat();
        let mut cgleaf = sandbox.cgleaf(words).spawn().expect("start cgleaf");
        let mut ended = false;
        wait_until("the program", || {
            let record = sandbox.record(tier).unwrap_or_default();
            let line = format!("/proc/{}/cmdline", record["leader"]["pid"]);
            ended = cgleaf.try_wait().expect("ask for its end").is_some();
            ended || std::fs::read(line).is_ok_and(|line| line.starts_with(b"sleep"))
        });
        if !ended {
            kill(pid_of(&cgleaf), Signal::SIGSTOP).expect("stop it");
        }
        assert_eq!(wait_for(&mut cgleaf).code(), Some(124), "{tier}");
    }
}
