//! No entry of the allow-list is idle: a traced helper goes through everything that it is for, and what it called after the
//! lock-down is held against the list, both ways. The helper is built for the machine's own C library, so the list must be that
//! one's.
#![cfg(target_env = "gnu")]

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use cgleaf_helper::sandbox::seccomp::{Usage, table};
use cgleaf_shared::wire::{FreezeFlag, Reply, Request, Target};
use cgleaf_tests::frontend::{programs, wait_for};
use cgleaf_tests::helper::{Client, Lair, session};
use cgleaf_tests::lab::static_programs_dir;
use cgleaf_tests::scratch::{Sleeper, skip, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A helper under strace(1), which stays the test's own child.
struct Traced {
    lair: Lair,
    program: PathBuf,
    trace: PathBuf,
}

impl Traced {
    fn start(program: &Path) -> Option<Self> {
        if Command::new("strace")
            .arg("-V")
            .stdout(Stdio::null())
            .status()
            .is_err()
        {
            skip("strace is not installed");
            return None;
        }
        let lair = Lair::without_helper(0)?;
        let trace = lair.socket().with_extension("trace");
        let mut traced = Self {
            lair,
            program: program.join("cgleaf-helper"),
            trace,
        };
        traced.start_helper();
        Some(traced)
    }

    /// Starts a helper, a second one too: what it finds in the tree is work of its own.
    fn start_helper(&mut self) {
        let plain = self.lair.command(&[]);
        let mut command = Command::new("strace");
        // -D: strace is the grandchild, so that the helper's pid and its end are its own.
        command
            .args(["-D", "-qq", "--output-append-mode", "-o"])
            .arg(&self.trace);
        let built = programs().join("cgleaf-helper");
        let words = plain.get_args().map(|word| {
            if word == built {
                self.program.as_os_str()
            } else {
                word
            }
        });
        command
            .arg(plain.get_program())
            .args(words)
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        let mut helper = command.spawn().expect("start strace");
        let socket = self.lair.socket();
        wait_until("a helper that answers", || {
            assert!(
                helper.try_wait().expect("look at the helper").is_none(),
                "the helper ended"
            );
            Client::connect(&socket).is_ok()
        });
        self.lair.helper = Some(helper);
    }

    fn end_helper(&mut self) -> Child {
        self.lair.helper.take().expect("a helper")
    }

    /// What was called after each lock-down, by name.
    fn calls(&self) -> BTreeSet<String> {
        let text = fs::read_to_string(&self.trace).expect("read the trace");
        let mut calls = BTreeSet::new();
        let mut locked = false;
        for line in text.lines() {
            let Some((name, rest)) = line.split_once('(') else {
                continue;
            };
            // Each helper begins with its own execve.
            if name == "execve" {
                locked = false;
            } else if name == "seccomp" && rest.contains("SECCOMP_SET_MODE_FILTER") {
                locked = true;
            } else if locked && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                calls.insert(name.to_owned());
            }
        }
        calls
    }
}

/// Everything that a client can ask for, and what a helper does without being asked.
fn everything(traced: &mut Traced) {
    let lair = &traced.lair;
    let mut program = lair.enrolled(&["enrol=outer", "fork", "enrol=inner", "list"]);
    assert!(program.line().starts_with("enrolled /"));
    let client = lair.client();
    adopt(&client);
    freeze_thaw_and_hold(lair, &client);
    let _ = client.list();
    let outer = client.open("outer").attestation;
    let target = Target::from(&outer);
    for request in [
        Request::Members {
            target: target.clone(),
            after: None,
        },
        Request::Verify { attestation: outer },
        Request::Lease {
            target: target.clone(),
        },
        Request::Status,
    ] {
        let reply = client.call(&request);
        assert!(
            !matches!(reply, Reply::Refused(_)),
            "{request:?}: {reply:?}"
        );
    }
    client.destroy(&target);
    drop(program);
}

fn adopt(client: &Client) {
    let target = Target::from(&client.create(session("adopted")));
    let sleeper = Sleeper::new(0);
    let raw = i32::try_from(sleeper.pid()).expect("a pid");
    let pid = cgleaf_shared::process::Pid::new(raw).expect("a pid");
    let pidfd = cgleaf_shared::process::Pidfd::open(pid).expect("a pidfd");
    let (reply, _) = client.call_full(
        &Request::Adopt {
            target: target.clone(),
        },
        Some(pidfd.as_fd()),
    );
    assert_eq!(reply, Reply::Adopted);
    client.destroy(&target);
}

fn freeze_thaw_and_hold(lair: &Lair, client: &Client) {
    let target = Target::from(&client.open("outer").attestation);
    let freeze = |flag| Request::Freeze {
        target: target.clone(),
        flag,
    };
    let holder = lair.client();
    assert_eq!(
        holder.call(&freeze(FreezeFlag::Hold)),
        Reply::FreezeRequested
    );
    assert_eq!(
        client.call(&freeze(FreezeFlag::User)),
        Reply::FreezeRequested
    );
    wait_until("the freeze", || {
        client.call(&Request::IsFrozen {
            target: target.clone(),
        }) == Reply::Frozen { not_yet: None }
    });
    drop(holder);
    let thawed = client.call(&Request::Thaw {
        target: target.clone(),
        flag: FreezeFlag::User,
    });
    assert!(matches!(thawed, Reply::Thawed(_)), "{thawed:?}");
}

/// A helper that dies with sessions, the next that finds them, and that one's end by a signal.
fn die_and_come_back(traced: &mut Traced) {
    let client = traced.lair.client();
    let target = Target::from(&client.create(session("left")));
    let sleeper = Sleeper::new(0);
    let leaf = traced.lair.scope().join("cgleaf-left.leaf/cgroup.procs");
    fs::write(leaf, sleeper.pid().to_string()).expect("place a member");
    let leader = i32::try_from(sleeper.pid())
        .ok()
        .and_then(cgleaf_shared::process::Pid::new)
        .expect("a pid");
    assert!(matches!(
        client.call(&Request::Attest {
            target: target.clone(),
            leader
        }),
        Reply::Attested(_)
    ));
    traced.lair.kill_helper();
    traced.start_helper();
    traced.lair.client().destroy(&target);
    let mut helper = traced.end_helper();
    kill(
        Pid::from_raw(i32::try_from(helper.id()).expect("a pid")),
        Signal::SIGTERM,
    )
    .expect("end the helper");
    assert!(wait_for(&mut helper).success());
}

#[test]
fn every_entry_is_used_and_nothing_else_is() {
    hold_against_the_list(programs());
}

/// As releases are: the C library's code for a case can be another one there.
#[test]
fn every_entry_is_used_by_a_static_helper_too() {
    if let Some(programs) = static_programs_dir() {
        hold_against_the_list(programs);
    }
}

fn hold_against_the_list(programs: &Path) {
    let Some(mut traced) = Traced::start(programs) else {
        return;
    };
    everything(&mut traced);
    die_and_come_back(&mut traced);
    let calls = traced.calls();
    let allowed = table();
    let known: BTreeSet<_> = allowed.iter().map(|entry| entry.name.to_owned()).collect();
    let foreign: Vec<_> = calls.difference(&known).collect();
    assert!(foreign.is_empty(), "called and not allowed: {foreign:?}");
    let always = allowed.iter().filter(|entry| entry.usage == Usage::Always);
    let idle: Vec<_> = always
        .map(|entry| entry.name)
        .filter(|name| !calls.contains(*name))
        .collect();
    assert!(
        idle.is_empty(),
        "allowed always and never called: {idle:?}; called: {calls:?}"
    );
}

/// The test of the test: the trace is cut at the lock-down, and before it there are calls that must not be there after it.
#[test]
fn the_trace_shows_the_lock_down() {
    let Some(traced) = Traced::start(programs()) else {
        return;
    };
    let text = fs::read_to_string(Path::new(&traced.trace)).expect("read the trace");
    assert!(text.contains("\nbind(") && text.contains("\nprctl("));
    let calls = traced.calls();
    assert!(
        calls.contains("epoll_wait") || calls.contains("epoll_pwait"),
        "{calls:?}"
    );
    assert!(
        !calls.contains("bind") && !calls.contains("prctl") && !calls.contains("seccomp"),
        "{calls:?}"
    );
}
