//! `run` and `start` in the group tier: the monitor is the program's parent and reaper, and nobody else is touched.

use std::fs;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::Duration;

use cgleaf_shared::process::{Pid, Pidfd, Proc, State};
use cgleaf_tests::group::{GroupCase, lives, pid_of, state};
use cgleaf_tests::scratch::wait_until;

const HOST: &str = env!("CARGO_BIN_EXE_group-host");

fn status_of(program: &str, arguments: &[&str]) -> Option<i32> {
    let case = GroupCase::new(HOST);
    let status = case
        .run("kill", program, arguments)
        .status()
        .expect("start run");
    assert!(status.signal().is_none(), "run itself died: {status}");
    wait_until("the monitor's word", || {
        case.file().with_extension("end").exists()
            || !case.file().exists()
            || case.living().is_empty()
    });
    status.code()
}

#[test]
fn the_status_is_the_programs() {
    assert_eq!(status_of("sh", &["-c", "exit 7"]), Some(7));
    assert_eq!(status_of("true", &[]), Some(0));
    assert_eq!(status_of("sh", &["-c", "kill -TERM $$"]), Some(143));
    assert_eq!(status_of("sh", &["-c", "kill -KILL $$"]), Some(137));
    assert_eq!(status_of("/no/such", &[]), Some(127));
    assert_eq!(status_of("/etc/passwd", &[]), Some(126));
}

/// SIGCHLD ignored by the caller: the status is still to be had, and the program finds SIGCHLD as the caller left it.
#[test]
fn signals_are_found_as_they_were() {
    let with_signals = |program: &str, arguments: &[&str]| {
        let case = GroupCase::new(HOST);
        let run = case.run("kill", program, arguments);
        let mut command = Command::new("env");
        command.args(["--ignore-signal=CHLD", "--block-signal=TERM"]);
        command.arg(run.get_program()).args(run.get_args());
        command.output().expect("env")
    };
    assert_eq!(with_signals("sh", &["-c", "exit 7"]).status.code(), Some(7));
    // Not by way of a shell, which has its own ideas about SIGCHLD.
    let output = with_signals("grep", &["-E", "SigBlk|SigIgn", "/proc/self/status"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let mask = |name: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("{name} in {text}"));
        u64::from_str_radix(line.rsplit('\t').next().unwrap_or_default(), 16).expect("a mask")
    };
    assert_ne!(
        mask("SigIgn") & (1 << (nix::libc::SIGCHLD - 1)),
        0,
        "{text}"
    );
    // The standard library, which executes the program here, clears the mask; the monitor must have added nothing.
    let terminate = 1_u64 << (nix::libc::SIGTERM - 1);
    assert_eq!(mask("SigBlk") & !terminate, 0, "{text}");
}

/// What `run` inherited is not the session's: it is neither waited for nor ended.
#[test]
fn inherited_children_are_never_touched() {
    let case = GroupCase::new(HOST);
    let run = case.run("kill", "true", &[]);
    let words: Vec<String> = run
        .get_args()
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    let script = format!(
        "sleep 30 >&- 2>&- & echo $!; exec '{HOST}' {}",
        words.join(" ")
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .output()
        .expect("sh");
    assert!(output.status.success(), "{output:?}");
    let sleeper: i32 = String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .expect("a pid");
    let sleeper = Pid::new(sleeper).expect("a pid");
    assert!(lives(sleeper), "the inherited child was ended");
    Pidfd::open(sleeper)
        .expect("a pidfd")
        .send_signal(nix::libc::SIGKILL)
        .expect("SIGKILL");
}

/// A script without job control: the script, the rest of the pipeline and a background job share the program's group.
#[test]
fn a_script_and_its_pipeline_survive_a_destroy() {
    let case = GroupCase::new(HOST);
    let run = case.run("kill", "sleep", &["300"]);
    let words: Vec<String> = run
        .get_args()
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    let script = format!(
        "sleep 300 >&- 2>&- & job=$!; '{HOST}' {} | {{ cat; echo pipeline; }}; kill -0 $job && echo job; kill $job; echo script",
        words.join(" ")
    );
    let mut command = Command::new("sh");
    command
        .args(["-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let child = command.process_group(0).spawn().expect("sh");
    let identity = case.identity();
    assert_eq!(identity.pgid, None, "a shell's job has no group of its own");
    wait_until("the program", || lives(identity.pid));
    let (code, said) = case.destroy(30_000, "name");
    assert_eq!(code, 0, "{said}");
    assert!(!lives(identity.pid));
    let output = child.wait_with_output().expect("the script ends");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "pipeline\njob\nscript\n"
    );
    assert!(output.status.success());
}

/// B08 and B09: nothing of ours, and no leftover, keeps the pipe open.
#[test]
fn leftovers_are_ended_and_hold_no_pipe() {
    let case = GroupCase::new(HOST);
    let output = case
        .run("kill", "sh", &["-c", "setsid sleep 60 & sleep .3; echo ok"])
        .output()
        .expect("run");
    assert_eq!(
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).as_ref()
        ),
        (Some(0), "ok\n")
    );
    assert!(case.living().is_empty(), "{:?}", case.living());
}

#[test]
fn kept_leftovers_go_on_until_they_are_destroyed() {
    let case = GroupCase::new(HOST);
    let script = "setsid sleep 300 >&- 2>&- & (sleep 300 >&- 2>&- &) ; exit 3";
    let output = case
        .run("keep", "sh", &["-c", script])
        .output()
        .expect("run");
    assert_eq!(output.status.code(), Some(3));
    wait_until("two sleepers", || case.living().len() == 2);
    assert!(case.gc().starts_with("kept"), "gc keeps what runs");
    assert_eq!(case.destroy(30_000, "name"), (0, "ended []".to_owned()));
    assert!(case.living().is_empty());
    assert_eq!(case.gc(), "over");
}

/// B05: `run` is killed; the session is still there, and destroy ends all of it.
#[test]
fn a_killed_run_leaves_its_monitor() {
    let case = GroupCase::new(HOST);
    let mut run = case
        .run("kill", "sh", &["-c", "setsid sleep 300 & sleep 300"])
        .spawn()
        .expect("run");
    wait_until("two sleepers", || case.living().len() >= 3);
    run.kill().expect("SIGKILL");
    run.wait().expect("its end");
    let monitor = case.identity().monitor.expect("a monitor");
    assert!(lives(monitor.pid));
    let (code, said) = case.destroy(30_000, "name");
    assert_eq!(code, 0, "{said}");
    assert!(case.living().is_empty());
    wait_until("the monitor's end", || !lives(monitor.pid));
}

/// A monitor that somebody killed saw no end: its orphans are PID 1's, and only what carries the mark can be named.
#[test]
fn a_dead_monitor_is_no_proof() {
    let case = GroupCase::new(HOST);
    let mut run = case
        .run("keep", "sh", &["-c", "setsid sleep 300 >&- & sleep 300"])
        .spawn()
        .expect("run");
    wait_until("the session", || case.living().len() >= 3);
    let identity = case.identity();
    let monitor = identity.monitor.expect("a monitor");
    Pidfd::open(monitor.pid)
        .expect("a pidfd")
        .send_signal(nix::libc::SIGKILL)
        .expect("SIGKILL");
    run.wait().expect("run sees it");
    wait_until("the monitor's end", || !lives(monitor.pid));
    let (code, said) = case.destroy(10_000, "name");
    assert_eq!(code, 5, "{said}");
    assert!(
        said.contains("monitor was ended by somebody else"),
        "{said}"
    );
    assert!(
        !lives(identity.pid),
        "the leader is proven by its start, and ended"
    );
    let left = case.living();
    assert!(
        left.iter().all(|pid| said.contains(&pid.to_string())),
        "{left:?} are not all named: {said}"
    );
}

/// Whatever proved the end, a member that is then seen alive is the better proof, and is ended.
#[test]
fn a_recorded_end_is_no_success_while_a_member_is_seen() {
    for strays in ["name", "kill", "ignore"] {
        let case = GroupCase::new(HOST);
        let mut leader = case.exec("sleep", &["300"]);
        let identity = case.identity();
        let mut gone = Command::new("true").spawn().expect("true");
        let monitor = Proc::system()
            .and_then(|proc| proc.process(pid_of(&gone))?.stat())
            .expect("an unreaped child");
        gone.wait().expect("its end");
        case.record(&cgleaf::group::GroupIdentity {
            monitor: Some(monitor.id),
            ..identity.clone()
        });
        fs::write(case.file().with_extension("end"), "").expect("say that it saw the end");
        let (code, said) = case.destroy(10_000, strays);
        assert_eq!(code, 0, "{said}");
        assert!(!lives(identity.pid), "a success although it lives");
        leader.wait().expect("its end");
    }
}

/// `start`: a POSIX session of its own, and the caller is gone.
#[test]
fn a_started_program_is_detached() {
    let case = GroupCase::new(HOST);
    case.start("sleep", &["300"]);
    let identity = case.identity();
    assert_eq!(
        (identity.pgid, identity.sid),
        (Some(identity.pid), Some(identity.pid))
    );
    assert!(lives(identity.pid));
    assert_eq!(case.destroy(30_000, "name"), (0, "ended []".to_owned()));
    assert!(!lives(identity.pid));
    assert_eq!(case.gc(), "over");
    // A second destroy finds the end recorded.
    assert_eq!(case.destroy(1_000, "name").0, 0);
}

/// The program is stopped, and a destroy ends it all the same.
#[test]
fn a_stopped_program_is_ended() {
    let case = GroupCase::new(HOST);
    let mut run = case.run("kill", "sleep", &["300"]).spawn().expect("run");
    let identity = case.identity();
    wait_until("the program", || {
        Proc::system().is_ok_and(|proc| {
            proc.process(identity.pid)
                .and_then(|process| process.stat())
                .is_ok_and(|stat| stat.comm == b"sleep")
        })
    });
    Pidfd::open(identity.pid)
        .expect("a pidfd")
        .send_signal(nix::libc::SIGSTOP)
        .expect("SIGSTOP");
    wait_until("the stop", || state(identity.pid) == Some(State::Stopped));
    assert_eq!(case.destroy(30_000, "name").0, 0);
    assert_eq!(run.wait().expect("run ends").code(), Some(137));
}

/// The monitor keeps no descriptor of its caller's, no terminal and no directory.
#[test]
fn the_monitor_holds_nothing_of_its_callers() {
    let case = GroupCase::new(HOST);
    let mut held = tempfile::tempfile().expect("a file");
    held.write_all(b"x").expect("write");
    let mut command = case.run("keep", "sleep", &["300"]);
    let mut run = command.stdout(Stdio::from(held)).spawn().expect("run");
    let monitor = case.identity().monitor.expect("a monitor").pid;
    wait_until("the program", || {
        case.living().iter().any(|&pid| pid == case.identity().pid)
    });
    let stdio =
        |number: i32| fs::read_link(format!("/proc/{monitor}/fd/{number}")).expect("a descriptor");
    for number in 0..3 {
        assert_eq!(stdio(number).to_string_lossy(), "/dev/null");
    }
    // A file of /proc that it reads just now is one more, for as long as that takes.
    wait_until("no more than three descriptors beside stdio", || {
        let all = fs::read_dir(format!("/proc/{monitor}/fd")).expect("its descriptors");
        all.count() <= 3 + 3
    });
    assert_eq!(
        fs::read_link(format!("/proc/{monitor}/cwd"))
            .expect("its directory")
            .to_string_lossy(),
        "/"
    );
    assert_ne!(
        Proc::system()
            .expect("/proc")
            .process(monitor)
            .and_then(|m| m.stat())
            .expect("stat")
            .session,
        {
            Proc::system()
                .expect("/proc")
                .process(pid_of(&run))
                .and_then(|r| r.stat())
                .expect("stat")
                .session
        }
    );
    assert_eq!(case.destroy(30_000, "name").0, 0);
    run.wait().expect("run ends");
    std::thread::sleep(Duration::ZERO);
}
