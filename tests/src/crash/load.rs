//! The load: what users of cgleaf do, each command at random on a session at random.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Place;
use crate::frontend::wait_for;
use crate::scratch::DEADLINE;

/// One command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Run,
    RunToTheEnd,
    Exec,
    Start,
    Signal,
    Freeze,
    Thaw,
    Hold,
    Ps,
    Destroy,
    DestroyWithGrace,
    Gc,
}

/// As often as each is to come up.
const OPS: [Op; 16] = [
    Op::Run,
    Op::RunToTheEnd,
    Op::RunToTheEnd,
    Op::Exec,
    Op::Exec,
    Op::Start,
    Op::Start,
    Op::Signal,
    Op::Signal,
    Op::Freeze,
    Op::Thaw,
    Op::Hold,
    Op::Ps,
    Op::Destroy,
    Op::DestroyWithGrace,
    Op::Gc,
];

impl Op {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Run | Self::RunToTheEnd => "run",
            Self::Exec => "exec",
            Self::Start => "start",
            Self::Signal => "signal",
            Self::Freeze => "freeze",
            Self::Thaw => "thaw",
            Self::Hold => "hold",
            Self::Ps => "ps",
            Self::Destroy | Self::DestroyWithGrace => "destroy",
            Self::Gc => "gc",
        }
    }
}

/// The users of a place.
#[derive(Debug)]
pub(super) struct Load<'a> {
    place: &'a Place,
    /// The argument by which every program of this series is known: a time to sleep that nobody else sleeps.
    pub(super) time: String,
    /// The sessions that a user asked to be frozen, answered or not.
    pub(super) frozen: Mutex<BTreeSet<String>>,
    next: AtomicU64,
    random: AtomicU64,
    /// How long a command takes here.
    usual: Duration,
}

impl<'a> Load<'a> {
    pub(super) fn new(place: &'a Place) -> Self {
        let tag = crate::scratch::tag();
        let number = u64::from_str_radix(&tag, 16).expect("a random number");
        let mut load = Self {
            place,
            time: format!("{}", 1_000_000_000 + number),
            frozen: Mutex::default(),
            next: AtomicU64::new(0),
            random: AtomicU64::new(number),
            usual: Duration::ZERO,
        };
        place
            .run(["exec", "--tier", "cgroup", "--", "true"])
            .expect(0);
        let start = Instant::now();
        place
            .run(["exec", "--tier", "cgroup", "--", "true"])
            .expect(0);
        load.usual = start.elapsed();
        load
    }

    /// Sessions that are there for whatever comes.
    pub(super) fn some_sessions(&self) {
        for _ in 0..3 {
            assert_eq!(self.one(Op::Start), 0);
        }
    }

    /// Splitmix64.
    fn random(&self, below: u64) -> u64 {
        let mut value = self
            .random
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % below.max(1)
    }

    pub(super) fn any(&self) -> Op {
        let index = self.random(u64::try_from(OPS.len()).expect("a small number"));
        OPS[usize::try_from(index).expect("a small number")]
    }

    /// A moment at which a command that was started just now is likely to be still at it.
    pub(super) fn moment(&self) -> Duration {
        let most = u64::try_from(self.usual.as_micros() * 3 / 2).expect("a short time");
        Duration::from_micros(self.random(most))
    }

    fn new_id(&self) -> String {
        format!("s{}", self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// A session that is there, or one that never was.
    fn some_id(&self) -> String {
        let ids: Vec<String> = self.place.leaves().into_iter().map(|(id, _)| id).collect();
        let index = self.random(u64::try_from(ids.len()).expect("a small number"));
        let index = usize::try_from(index).expect("a small number");
        ids.get(index)
            .cloned()
            .unwrap_or_else(|| "nobody".to_owned())
    }

    fn command(&self, op: Op) -> Command {
        let (time, id) = (&self.time, self.some_id());
        let two = format!("sleep {time} & exec sleep {time}");
        let one = format!("sleep {time} & exit 0");
        let new = self.new_id();
        let named = format!("n-{new}");
        let words: Vec<&str> = match op {
            Op::Run => vec![
                "run",
                "--tier",
                "cgroup",
                "--session",
                &new,
                "--name",
                &named,
                "--",
                "sh",
                "-c",
                &two,
            ],
            Op::RunToTheEnd => vec![
                "run",
                "--tier",
                "cgroup",
                "--session",
                &new,
                "--",
                "sh",
                "-c",
                &one,
            ],
            Op::Exec => vec![
                "exec",
                "--tier",
                "cgroup",
                "--session",
                &new,
                "--name",
                &named,
                "--",
                "sh",
                "-c",
                &two,
            ],
            Op::Start => vec![
                "start",
                "--tier",
                "cgroup",
                "--session",
                &new,
                "--name",
                &named,
                "--",
                "sh",
                "-c",
                &two,
            ],
            Op::Signal => vec!["signal", &id, "WINCH"],
            Op::Freeze => {
                self.frozen.lock().expect("the frozen").insert(id.clone());
                vec!["freeze", &id]
            }
            Op::Thaw => vec!["thaw", &id],
            Op::Hold => vec!["freeze", "--for", "20ms", &id],
            Op::Ps => vec!["ps", &id],
            Op::Destroy => vec!["destroy", "--if-exists", &id],
            Op::DestroyWithGrace => vec!["destroy", "--grace", "50ms", &id],
            Op::Gc => vec!["gc"],
        };
        self.place.cgleaf(words)
    }

    /// Starts one and kills it. What it was, if it had not ended, nor become the program, by then.
    pub(super) fn one_killed(&self, op: Op) -> Option<&'static str> {
        let mut command = self.command(op);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("start cgleaf");
        std::thread::sleep(self.moment());
        let pid = child.id();
        let is_cgleaf = fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| {
            words.starts_with(self.place.program().as_os_str().as_encoded_bytes())
        });
        let still_runs = child.try_wait().expect("look at a child").is_none();
        let _ = child.kill();
        wait_for(&mut child);
        (is_cgleaf && still_runs).then(|| op.name())
    }

    /// Runs one to its end: its exit status. One whose program goes on is killed when that runs.
    pub(super) fn one(&self, op: Op) -> i32 {
        let mut command = self.command(op);
        if matches!(op, Op::Run | Op::Exec) {
            // The program would keep a pipe open.
            command.stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn().expect("start cgleaf");
            self.let_begin(&mut child);
            return status(wait_for(&mut child));
        }
        let (code, said) = finish(command);
        let fell_over = matches!(code, 1 | 101 | 134 | 139);
        assert!(!fell_over, "cgleaf {}: {code}, {said}", op.name());
        code
    }

    /// Waits until its program runs, and ends the waiting for that program.
    fn let_begin(&self, child: &mut Child) {
        let start = Instant::now();
        let program = self
            .place
            .program()
            .as_os_str()
            .as_encoded_bytes()
            .to_owned();
        loop {
            let words = fs::read(format!("/proc/{}/cmdline", child.id())).unwrap_or_default();
            let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id()));
            let runs = !words.starts_with(&program)
                || children.unwrap_or_default().split_whitespace().any(|pid| {
                    fs::read(format!("/proc/{pid}/cmdline"))
                        .is_ok_and(|words| words.starts_with(b"s"))
                });
            if runs || child.try_wait().expect("look at a child").is_some() {
                break;
            }
            assert!(start.elapsed() < DEADLINE, "a program does not begin");
            std::thread::sleep(Duration::from_millis(1));
        }
        let pid = i32::try_from(child.id()).expect("a pid");
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// Runs a command to its end: its exit status and what it said. Into a file: what it was to end and could not may keep a pipe open.
fn finish(mut command: Command) -> (i32, String) {
    let mut said = tempfile::tempfile().expect("make a file");
    let copy = || said.try_clone().expect("copy a descriptor");
    command.stdout(copy()).stderr(copy());
    let code = status(wait_for(&mut command.spawn().expect("start cgleaf")));
    let mut text = String::new();
    said.rewind().expect("rewind a file");
    said.read_to_string(&mut text).expect("read a file");
    (code, text)
}

/// As a shell shows it.
fn status(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
