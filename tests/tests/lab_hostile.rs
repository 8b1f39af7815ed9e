//! The hostile programs are what they say: each outlives what ends an ordinary program, and none outlives its cgroup.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

use cgleaf_tests::lab::{CHAINS, Counter, HOSTILE, hostile_program};
use cgleaf_tests::require;
use cgleaf_tests::scratch::{Scratch, kill_all, wait_until};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

/// A hostile program in a cgroup of its own.
struct Case {
    // In this order: the cgroup is killed and removed before the counter's file goes.
    scratch: Scratch,
    child: Child,
    counter: Counter,
    _dir: tempfile::TempDir,
}

impl Case {
    fn start(name: &str) -> Option<Self> {
        let scratch = Scratch::new(0)?;
        let dir = tempfile::tempdir().unwrap();
        let counter = Counter::new(dir.path(), "counter").unwrap();
        let child = enter_and_exec(
            scratch.path(),
            Command::new(hostile_program(name))
                .arg(counter.path())
                .arg("200"),
        );
        counter.wait_for_more(50);
        Some(Self {
            scratch,
            child,
            counter,
            _dir: dir,
        })
    }

    fn populated(&self) -> bool {
        fs::read_to_string(self.scratch.path().join("cgroup.events"))
            .unwrap()
            .contains("populated 1")
    }

    fn end(&mut self) {
        wait_until("populated 0", || {
            kill_all(self.scratch.path());
            !self.populated()
        });
        let _ = self.child.wait();
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        self.end();
    }
}

/// The shell writes its own pid, then becomes the program.
fn enter_and_exec(cgroup: &Path, program: &Command) -> Child {
    Command::new("/bin/sh")
        .args(["-c", "echo $$ >\"$0\" && exec \"$@\""])
        .arg(cgroup.join("cgroup.procs"))
        .arg(program.get_program())
        .args(program.get_args())
        .process_group(0)
        .spawn()
        .unwrap()
}

#[test]
fn each_lives_on_until_its_cgroup_is_killed() {
    require!(Cgroup2, Cc);
    for name in HOSTILE {
        let Some(mut case) = Case::start(name) else {
            return;
        };
        case.end();
        assert!(case.counter.stands_still(), "{name} lives on");
    }
}

#[test]
fn killing_the_leader_and_its_group_does_not_end_a_chain_that_left_it() {
    require!(Cgroup2, Cc);
    for name in [
        "chain-setpgid",
        "chain-setsid-once",
        "chain-setsid",
        "chain-daemon",
    ] {
        let Some(case) = Case::start(name) else {
            return;
        };
        let leader = Pid::from_raw(case.child.id().cast_signed());
        // In a crowd the first link ticks for long before it forks: whoever ticks when that has ended has left its group.
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(leader), flags).unwrap();
        case.counter.wait_for_more(50);
        let _ = killpg(leader, Signal::SIGKILL);
        case.counter.wait_for_more(50);
    }
}

#[test]
fn a_chain_is_never_the_process_that_was_started() {
    require!(Cgroup2, Cc);
    for name in CHAINS {
        let Some(mut case) = Case::start(name) else {
            return;
        };
        // The first link has ended by itself, and the program goes on.
        assert!(case.child.wait().unwrap().success(), "{name}");
        case.counter.wait_for_more(50);
    }
}

#[test]
fn the_deaf_one_ignores_what_can_be_ignored() {
    require!(Cgroup2, Cc);
    let Some(case) = Case::start("deaf") else {
        return;
    };
    let pid = Pid::from_raw(case.child.id().cast_signed());
    for signal in Signal::iterator().filter(|s| !matches!(s, Signal::SIGKILL | Signal::SIGSTOP)) {
        kill(pid, signal).unwrap();
    }
    case.counter.wait_for_more(50);
}

#[test]
fn the_headless_one_is_a_zombie_with_a_living_thread() {
    require!(Cgroup2, Cc);
    let Some(case) = Case::start("headless") else {
        return;
    };
    let status = format!("/proc/{}/status", case.child.id());
    wait_until("the main thread's end", || {
        fs::read_to_string(&status).unwrap().contains("State:\tZ")
    });
    case.counter.wait_for_more(50);
    assert!(case.populated());
}

/// On 6.1 and 6.18 `cgroup.kill` sends its signal to the main thread alone and not to the process; on 6.12.118 and 7.3 it does not
/// miss. (5.10 has none.) A SIGKILL by pid or pidfd is for the whole process, and ends it everywhere.
#[test]
fn what_cgroup_kill_leaves_of_the_headless_one_a_signal_ends() {
    require!(Cgroup2, Cc);
    let Some(mut case) = Case::start("headless") else {
        return;
    };
    let status = format!("/proc/{}/status", case.child.id());
    wait_until("the main thread's end", || {
        fs::read_to_string(&status).unwrap().contains("State:\tZ")
    });
    fs::write(case.scratch.path().join("cgroup.kill"), "1").unwrap();
    if !case.counter.stands_still() {
        let members = fs::read_to_string(case.scratch.path().join("cgroup.procs")).unwrap();
        assert_eq!(
            members.trim(),
            case.child.id().to_string(),
            "it is still listed"
        );
        kill(
            Pid::from_raw(case.child.id().cast_signed()),
            Signal::SIGKILL,
        )
        .unwrap();
    }
    wait_until("populated 0", || !case.populated());
    case.child.wait().unwrap();
}

#[test]
fn the_bomb_keeps_its_bound() {
    require!(Cgroup2, Cc);
    let Some(case) = Case::start("bomb") else {
        return;
    };
    wait_until("two hundred processes", || case.counter.live() == 200);
    case.counter.wait_for_more(2000);
    let members = fs::read_to_string(case.scratch.path().join("cgroup.procs")).unwrap();
    // One that replaces itself is there twice for a moment.
    assert!(members.lines().count() <= 400);
}

#[test]
fn the_nester_spreads_over_cgroups_of_its_own() {
    require!(Cgroup2, Cc);
    let Some(case) = Case::start("nester") else {
        return;
    };
    assert_eq!(case.counter.live(), 12);
    let inner = case.scratch.path().join("nested-2/nested-2");
    wait_until("a member far below", || {
        !fs::read_to_string(inner.join("cgroup.procs"))
            .unwrap()
            .is_empty()
    });
}

#[test]
fn all_end_when_their_counter_goes() {
    require!(Cgroup2, Cc);
    for name in HOSTILE.into_iter().chain(["sleepers"]) {
        let scratch = Scratch::new(0);
        let Some(scratch) = scratch else { return };
        let dir = tempfile::tempdir().unwrap();
        let counter = Counter::new(dir.path(), "counter").unwrap();
        let mut child = enter_and_exec(
            scratch.path(),
            Command::new(hostile_program(name))
                .arg(counter.path())
                .arg("200"),
        );
        counter.wait_for_more(50);
        drop(counter);
        let events = scratch.path().join("cgroup.events");
        wait_until(&format!("the end of {name}"), || {
            let _ = child.try_wait();
            fs::read_to_string(&events).unwrap().contains("populated 0")
        });
    }
}
