//! A helper that does not answer holds nobody up: who asks it can be ended, and nothing of what was asked for is left.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use cgleaf_tests::frontend::{Sandbox, collect, finish, instrumented_programs, wait_for};
use cgleaf_tests::scratch::wait_until;
use cgleaf_tests::steps::Stage;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept4, bind, connect, listen, socket,
};
use nix::unistd::Pid;

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

/// A process that is stopped for as long as this lives.
struct Stopped(Pid);

impl Stopped {
    fn helper(sandbox: &Sandbox) -> Self {
        let keeper = sandbox.run(["start", "--session", "keeper", "--", "sleep", "1000"]);
        keeper.expect(0);
        Self::process(sandbox.helper_pid().expect("a helper"))
    }

    fn process(pid: i32) -> Self {
        let pid = Pid::from_raw(pid);
        kill(pid, Signal::SIGSTOP).expect("stop it");
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

/// Starts a frontend, and waits until it has claimed its session: what comes next is the helper.
fn asking(sandbox: &Sandbox, arguments: &[&str], session: &str) -> Child {
    let child = sandbox.cgleaf(arguments).spawn().expect("start cgleaf");
    wait_until("the claim", || sandbox.record(session).is_some());
    child
}

fn require_nothing_left(sandbox: &Sandbox, session: &str) {
    wait_until("the leaf to go", || {
        !sandbox.leaves().iter().any(|leaf| leaf.contains(session))
    });
    let left = sandbox.record_files();
    assert!(!left.iter().any(|file| file.contains(session)), "{left:?}");
    sandbox.run(["destroy", "keeper"]).expect(0);
}

#[test]
fn an_interrupt_ends_a_run_whose_helper_does_not_answer() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let Some(sandbox) = Sandbox::new() else {
            return;
        };
        let stopped = Stopped::helper(&sandbox);
        let arguments = ["run", "--session", "asks", "--", "true"];
        let mut child = asking(&sandbox, &arguments, "asks");
        kill(pid_of(&child), signal).expect("send it");
        let ended = wait_for(&mut child);
        assert_eq!(ended.signal(), Some(signal as i32), "{ended:?}");
        drop(stopped);
        require_nothing_left(&sandbox, "asks");
    }
}

/// As `nohup` has it: a signal that would not end the program's caller does not end the wait either.
#[test]
fn an_ignored_signal_does_not_end_the_wait() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let stopped = Stopped::helper(&sandbox);
    let script = "exec env --ignore-signal=HUP cgleaf run --session ignores -- sh -c 'exit 7'";
    let mut child = sandbox.bash(script).spawn().expect("start cgleaf");
    wait_until("the claim", || sandbox.record("ignores").is_some());
    kill(pid_of(&child), Signal::SIGHUP).expect("send it");
    drop(stopped);
    assert_eq!(wait_for(&mut child).code(), Some(7));
    sandbox.run(["destroy", "keeper"]).expect(0);
}

/// The process that starts the program is another than the one that answers: it sees that nobody waits any more.
#[test]
fn a_start_whose_caller_was_killed_starts_nothing() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let stopped = Stopped::helper(&sandbox);
    let made = sandbox.runtime().join("made-by-the-program");
    let file = made.display().to_string();
    let arguments = ["start", "--session", "late", "--", "touch", &file];
    let mut child = asking(&sandbox, &arguments, "late");
    kill(pid_of(&child), Signal::SIGKILL).expect("kill it");
    wait_for(&mut child);
    wait_until("the claim to be given back", || {
        sandbox.record("late").is_none()
    });
    drop(stopped);
    require_nothing_left(&sandbox, "late");
    assert!(!made.exists(), "the program has run");
}

/// The helper has recorded the leader already, so that it keeps the leaf; who asked has not waited for that answer.
#[test]
fn an_interrupt_while_the_child_is_attested_leaves_no_leaf() {
    for command in ["run", "start"] {
        let Some(sandbox) = Sandbox::with(instrumented_programs()) else {
            return;
        };
        let mut creates = sandbox.cgleaf([command, "--session", "born", "--", "sleep", "1000"]);
        creates.stdout(Stdio::null()).stderr(Stdio::null());
        let never = |_| false;
        let socket = sandbox.runtime().join("steps");
        let mut stage = Stage::new(&socket, vec![creates], &never);
        while stage.at(0) != Some("create:born") {
            stage.step(0);
        }
        let asks = stage.pid(0).expect("it has come to a step");
        let helper = Stopped::process(sandbox.helper_pid().expect("a helper"));
        let child = Stopped::process(sandbox.members("born")[0]);
        match command {
            "run" => stage.signal(0, Signal::SIGHUP),
            _ => stage.kill_the_caller(0),
        }
        stage.go(0);
        // It has asked, was interrupted, and waits for the child to end at its closed gate.
        wait_until("a wait for the child", || is_in_call(asks, libc::SYS_wait4));
        drop(helper);
        wait_until("the leader", || leader_of(&sandbox, "born").is_some());
        drop(child);
        wait_until("its end", || {
            stage.look();
            stage.ended(0).is_some()
        });
        wait_until("the leaf to go", || sandbox.leaves().is_empty());
        wait_until("its record to go", || sandbox.record("born").is_none());
    }
}

/// Whoever says how long a command may take does not wait longer for the helper: it is done before one that said nothing, which was
/// asked first and still waits.
#[test]
fn a_deadline_counts_for_a_helper_that_does_not_answer_too() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let stopped = Stopped::helper(&sandbox);
    let mut patient = sandbox.cgleaf(["freeze", "keeper"]).spawn().expect("start");
    sandbox
        .run(["wait", "keeper", "--timeout", "10ms"])
        .expect(11);
    let destroy = sandbox.run(["destroy", "keeper", "--timeout", "10ms"]);
    destroy.expect(6);
    assert!(destroy.stderr.contains("does not answer"), "{destroy:?}");
    assert_eq!(patient.try_wait().expect("look at it"), None);
    drop(stopped);
    assert_eq!(wait_for(&mut patient).code(), Some(0));
    sandbox.run(["destroy", "keeper"]).expect(0);
}

/// Where only a helper could tell and it does not answer, nothing is said of the session: neither that there is none, nor that it has
/// been ended. By its name it is found in its record.
#[test]
fn what_only_a_mute_helper_knows_is_not_said_to_be_unknown() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox
        .run([
            "start",
            "--session",
            "named",
            "--name",
            "word",
            "--",
            "sleep",
            "1000",
        ])
        .expect(0);
    let stopped = Stopped::helper(&sandbox);
    let record = sandbox.sessions().join("keeper.json");
    let socket = sandbox.record("keeper").expect("a record")["helper"]["socket"].clone();
    std::fs::remove_file(&record).expect("lose the record");
    let elsewhere = |words: &[&str]| {
        let named = ["--socket", socket.as_str().expect("a socket")];
        let mut command = sandbox.cgleaf([&named, words].concat());
        command
            .env("XDG_RUNTIME_DIR", sandbox.other_runtime("other"))
            .env_remove("CGLEAF_SCOPE_DIR");
        finish(command)
    };
    elsewhere(&["wait", "keeper", "--timeout", "10ms"]).expect(6);
    let destroy = ["destroy", "keeper", "--timeout", "10ms"];
    elsewhere(&destroy).expect(6);
    elsewhere(&[&destroy[..], &["--if-exists"]].concat()).expect(6);
    sandbox
        .run(["wait", "word", "--timeout", "10ms"])
        .expect(11);
    drop(stopped);
    sandbox.run(["destroy", "word"]).expect(0);
    sandbox.run(["destroy", "keeper"]).expect(0);
}

/// Connections that nobody accepts fill the queue of a stopped helper's socket, and connect(2) itself waits.
#[test]
fn a_full_queue_at_a_helper_that_does_not_answer_holds_nobody_up() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let stopped = Stopped::helper(&sandbox);
    let record = sandbox.record("keeper").expect("a record");
    let socket = PathBuf::from(record["helper"]["socket"].as_str().expect("a socket"));
    let queue: Vec<_> = std::iter::from_fn(|| connect_at_once(&socket))
        .take(10_000)
        .collect();
    assert!(queue.len() < 10_000, "the queue has no end");
    let destroy = sandbox.run(["destroy", "keeper", "--timeout", "10ms"]);
    destroy.expect(6);
    assert!(destroy.stderr.contains("does not answer"), "{destroy:?}");
    drop(queue);
    drop(stopped);
    sandbox.run(["destroy", "keeper"]).expect(0);
}

/// A helper hangs up on who says nothing for some seconds, as happens on a machine that is full of processes: it is asked anew.
#[test]
fn a_client_that_was_hung_up_on_before_a_word_asks_once_more() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let start = ["start", "--session", "keeper", "--", "sleep", "1000"];
    sandbox.run(start).expect(0);
    let path = sandbox.runtime().join("hangs-up.sock");
    let flags = SockFlag::SOCK_CLOEXEC;
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).expect("a socket");
    bind(listener.as_raw_fd(), &UnixAddr::new(&path).expect("a path")).expect("bind");
    listen(&listener, Backlog::new(4).expect("a backlog")).expect("listen");
    let mut status = sandbox.cgleaf(["helper", "status", "--socket"]);
    let status = status.arg(&path).stdout(Stdio::piped()).spawn();
    let client = accept4(&listener, flags).expect("a client");
    std::fs::remove_file(&path).expect("remove it");
    let helper = sandbox.runtime().join("cgleaf/run/direct.sock");
    std::os::unix::fs::symlink(helper, &path).expect("put the helper's in its place");
    drop(client);
    collect(status.expect("start cgleaf")).expect(0);
    sandbox.run(["destroy", "keeper"]).expect(0);
}

/// Connects if there is room in the queue.
fn connect_at_once(path: &Path) -> Option<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).expect("a socket");
    let address = UnixAddr::new(path).expect("an address");
    match connect(socket.as_raw_fd(), &address) {
        Ok(()) => Some(socket),
        Err(Errno::EAGAIN) => None,
        Err(errno) => panic!("connect to {}: {errno}", path.display()),
    }
}

/// Whether a process waits in a system call.
fn is_in_call(process: u32, number: i64) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/syscall"))
        .is_ok_and(|text| text.split(' ').next() == Some(&number.to_string()))
}

/// Who leads a session, as its helper has it.
fn leader_of(sandbox: &Sandbox, session: &str) -> Option<i64> {
    let listed = sandbox.run(["--json", "list", "--all"]).json();
    let sessions = listed["result"]["sessions"].as_array()?.clone();
    let entry = sessions.iter().find(|entry| entry["session"] == session)?;
    entry["leader"]["pid"].as_i64()
}
