//! `exec` in the group tier on a real kernel: what is recorded, what is signalled, and what is left alone.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use cgleaf_shared::id::BootId;
use cgleaf_shared::process::{Pid, Pidfd, StartTicks, State};
use cgleaf_tests::group::{GroupCase, lives, pid_of, state};
use cgleaf_tests::require;
use cgleaf_tests::scratch::wait_until;

const HOST: &str = env!("CARGO_BIN_EXE_group-host");

fn signal(pid: Pid, signal: i32) {
    Pidfd::open(pid)
        .expect("a pidfd")
        .send_signal(signal)
        .expect("the right to");
}

#[test]
fn a_program_and_its_group_are_ended() {
    let case = GroupCase::new(HOST);
    let mut leader = case.exec("sh", &["-c", "sleep 300 & sleep 300 & wait"]);
    wait_until("three processes", || case.living().len() == 3);
    let identity = case.identity();
    assert_eq!(identity.pid, pid_of(&leader));
    assert_eq!(identity.pgid, Some(identity.pid));
    assert!(identity.autogroup.is_some() && identity.start.is_some() && identity.pid_ns.is_some());
    assert!(case.gc().starts_with("kept"));
    // The leader stays a zombie meanwhile: nobody reaps it.
    assert_eq!(case.destroy(10_000, "name"), (0, "ended []".to_owned()));
    assert!(case.living().is_empty());
    assert_eq!(state(identity.pid), Some(State::Zombie));
    assert_eq!(case.gc(), "over");
    leader.wait().expect("its end");
    assert_eq!(case.destroy(1_000, "name").0, 0);
    assert_eq!(case.gc(), "over");
}

#[test]
fn a_zombie_leader_with_live_members() {
    let case = GroupCase::new(HOST);
    let mut leader = case.exec("sh", &["-c", "sleep 300 & sleep 300 & exit 0"]);
    let pid = pid_of(&leader);
    wait_until("a zombie", || state(pid) == Some(State::Zombie));
    assert_eq!(case.living().len(), 2);
    assert!(case.gc().starts_with("kept"));
    assert_eq!(case.destroy(10_000, "name").0, 0);
    assert!(case.living().is_empty());
    leader.wait().expect("its end");
}

/// `kill(pid, 0)`, and the state in `stat`, both say nothing of this one.
#[test]
fn a_zombie_leader_with_a_live_thread() {
    let case = GroupCase::new(HOST);
    let mut leader = case.exec(HOST, &["thread-leader"]);
    let pid = pid_of(&leader);
    wait_until("a zombie main thread", || state(pid) == Some(State::Zombie));
    assert!(
        Pidfd::open(pid).expect("a pidfd").is_alive().expect("poll"),
        "its thread runs"
    );
    assert!(case.gc().starts_with("kept"), "gc keeps what runs");
    assert_eq!(case.destroy(10_000, "name").0, 0);
    assert!(!Pidfd::open(pid).expect("a pidfd").is_alive().expect("poll"));
    leader.wait().expect("its end");
}

#[test]
fn a_stopped_group_of_its_own_is_ended() {
    let case = GroupCase::new(HOST);
    let mut leader = case.exec("sleep", &["300"]);
    signal(pid_of(&leader), nix::libc::SIGSTOP);
    wait_until("the stop", || {
        state(pid_of(&leader)) == Some(State::Stopped)
    });
    assert_eq!(case.destroy(10_000, "name").0, 0);
    leader.wait().expect("its end");
}

/// A job of a shell: its group's leader, and not its POSIX session's. No group is recorded, and none is signalled.
#[test]
fn a_shells_job_has_no_group_to_be_signalled() {
    let case = GroupCase::new(HOST);
    let file = case.file();
    let script = format!(
        "sleep 300 & echo $! >'{}/job'; '{HOST}' exec '{}' '{}' sh -c 'sleep 300 & exec sleep 300'; echo over >'{}/over'; wait",
        case.dir().display(),
        file.display(),
        case.mark(),
        case.dir().display()
    );
    // A process group of its own, in the POSIX session of this test; with a terminal or without one.
    let mut command = Command::new("sh");
    command.args([
        "-c",
        &format!(
            "exec '{HOST}' exec '{}' '{}' sh -c \"$0\"",
            file.display(),
            case.mark()
        ),
    ]);
    command
        .arg(format!("sleep 300 & exec sleep 300; {script}"))
        .stdin(Stdio::null());
    let mut leader = command.process_group(0).spawn().expect("sh");
    wait_until("the program and its child", || case.living().len() == 2);
    let identity = case.identity();
    assert_eq!(identity.pid, pid_of(&leader));
    assert_eq!(identity.pgid, None, "it shares its POSIX session");
    let (code, said) = case.destroy(10_000, "name");
    assert_eq!(code, 5, "{said}");
    assert!(said.contains("no process group of its own"), "{said}");
    assert!(
        case.living().is_empty(),
        "what was beneath the leader is proven by parentage"
    );
    leader.wait().expect("its end");
}

#[test]
fn a_record_of_another_boot_is_refused() {
    let case = GroupCase::new(HOST);
    let mut leader = case.exec("sleep", &["300"]);
    let mut identity = case.identity();
    identity.boot_id = BootId::from_bytes([9; 16]);
    case.record(&identity);
    let (code, said) = case.destroy(1_000, "name");
    assert_eq!(code, 7, "{said}");
    assert!(said.contains("earlier boot"), "{said}");
    assert!(lives(pid_of(&leader)), "nobody was signalled");
    assert_eq!(case.gc(), "over");
    leader.kill().expect("SIGKILL");
    leader.wait().expect("its end");
}

/// The record's number belongs to a stranger: another autogroup, another start, no mark.
#[test]
fn a_strangers_group_is_refused_and_spared() {
    let case = GroupCase::new(HOST);
    let mut leader = case.exec("true", &[]);
    leader.wait().expect("its end");
    let mut stranger = Command::new("setsid")
        .args(["sleep", "300"])
        .stdin(Stdio::null())
        .spawn()
        .expect("a stranger");
    let number = pid_of(&stranger);
    wait_until("its POSIX session", || {
        nix::unistd::getsid(Some(nix::unistd::Pid::from_raw(number.get())))
            .is_ok_and(|sid| sid.as_raw() == number.get())
    });
    let mut identity = case.identity();
    (identity.pid, identity.pgid, identity.sid) = (number, Some(number), Some(number));
    identity.start = identity
        .start
        .map(|start| StartTicks(start.0.saturating_sub(1_000)));
    case.record(&identity);
    let (code, said) = case.destroy(1_000, "name");
    assert_eq!(code, 7, "{said}");
    assert!(
        lives(number) && state(number) != Some(State::Stopped),
        "the stranger was touched"
    );
    assert!(case.gc().starts_with("kept"));
    // Without a recorded autogroup the mark decides, and it has none.
    identity.autogroup = None;
    case.record(&identity);
    assert_eq!(case.destroy(1_000, "name").0, 7);
    assert!(
        lives(number) && state(number) != Some(State::Stopped),
        "the stranger was touched"
    );
    stranger.kill().expect("SIGKILL");
    stranger.wait().expect("its end");
}

/// Without an autogroup record the mark proves a member, and a program that cleared its environment is not proven.
#[test]
fn the_mark_proves_where_there_is_no_autogroup() {
    let case = GroupCase::new(HOST);
    let mut leader = case.exec("sh", &["-c", "sleep 300 & exit 0"]);
    leader.wait().expect("its end");
    let mut identity = case.identity();
    identity.autogroup = None;
    case.record(&identity);
    assert_eq!(case.destroy(10_000, "name").0, 0);
    assert!(case.living().is_empty());
}

/// A process that left the group is named, and ended only if that was asked for and it is proven.
#[test]
fn strays_are_named_and_never_a_plain_success() {
    let case = GroupCase::new(HOST);
    let mut leader = case.exec("sh", &["-c", "setsid sleep 300 & sleep 300"]);
    wait_until("three processes", || case.living().len() == 3);
    let (code, said) = case.destroy(10_000, "name");
    assert_eq!(code, 5, "{said}");
    let left = case.living();
    assert_eq!(left.len(), 1);
    assert!(
        said.contains(&left[0].to_string()),
        "{left:?} is not named in {said}"
    );
    leader.wait().expect("its end");
    // By now only its mark ties it to the session, and a mark alone never kills.
    assert_eq!(case.destroy(1_000, "kill").0, 5);
    assert!(lives(left[0]));
    assert_eq!(case.destroy(1_000, "ignore").0, 0);
}

/// A member that this user may not signal: a set-uid program that became root.
#[test]
fn another_users_member_is_named() {
    require!(Root);
    let case = GroupCase::new(HOST);
    let become_root = case.dir().join("become-root");
    let setup = format!(
        "cp \"$(command -v setpriv)\" '{0}' && chown 0:0 '{0}' && chmod 4755 '{0}'",
        become_root.display()
    );
    assert!(
        Command::new("sh")
            .args(["-c", &setup])
            .status()
            .expect("sh")
            .success()
    );
    let user = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"];
    let script = format!(
        "{} --reuid=0 --regid=0 --clear-groups sleep 300 & exec sleep 300",
        become_root.display()
    );
    let case = case.by_way_of(&user);
    let mut leader = case.exec("sh", &["-c", &script]);
    let uid =
        |pid: &Pid| std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let is_root =
        |pid: &Pid| uid(pid).contains("Uid:\t0\t0\t0\t0") && uid(pid).contains("Name:\tsleep");
    wait_until("a root sleeper", || case.living().iter().any(is_root));
    let root = case
        .living()
        .into_iter()
        .find(is_root)
        .expect("the root sleeper");
    let (code, said) = case.destroy(300, "ignore");
    assert_eq!(code, 5, "{said}");
    assert!(lives(root));
    assert!(
        said.contains(&root.to_string()),
        "{root} is not named: {said}"
    );
    let why = format!("may not signal process {root} of uid 0 (EPERM)");
    assert!(said.contains(&why), "{said}");
    assert!(!said.contains("it was killed"), "{said}");
    leader.wait().expect("the leader was ended");
    // As root the same destroy goes on from there.
    let as_root = GroupCase::new(HOST);
    as_root.record(&case.identity());
    assert_eq!(as_root.destroy(10_000, "ignore").0, 0);
    assert!(!lives(root));
}

/// Who has left the group, and carries no mark, is still the child of a member when the destroy begins. That this has ended
/// afterwards takes nothing from it.
#[test]
fn a_child_that_left_the_group_and_took_its_mark_off_is_the_sessions() {
    let before_its_leader = "env -i setsid sleep 300 & sleep 300";
    let behind_its_leader = "sh -c 'env -i setsid sleep 300 & sleep 300' & sleep .1; exit 0";
    for (script, policy) in [
        (before_its_leader, "name"),
        (behind_its_leader, "name"),
        (before_its_leader, "kill"),
        (behind_its_leader, "kill"),
    ] {
        let case = GroupCase::new(HOST);
        let mut leader = case.exec("sh", &["-c", script]);
        let mut child = None;
        wait_until("the child that leaves", || {
            child = unmarked_child(&case);
            child.is_some()
        });
        let child = child.expect("a child");
        if script == behind_its_leader {
            wait_until("the leader's end", || !lives(pid_of(&leader)));
        }
        let (code, said) = case.destroy(10_000, policy);
        if policy == "name" {
            assert_eq!(code, 5, "{said}");
            assert!(said.contains(&child.to_string()), "{said}");
            assert!(lives(child));
            signal(child, nix::libc::SIGKILL);
        } else {
            assert_eq!(code, 0, "{said}");
            assert!(!lives(child));
        }
        leader.wait().expect("its end");
    }
}

/// The child of a marked process that is `sleep`, has no mark, and leads a group of its own.
fn unmarked_child(case: &GroupCase) -> Option<Pid> {
    let proc = cgleaf_shared::process::Proc::system().ok()?;
    let marked = case.living();
    let children = marked.iter().filter_map(|pid| {
        let process = proc.process(*pid).ok()?;
        process.children().ok()
    });
    children.flatten().find(|pid| {
        let stat = proc.process(*pid).and_then(|process| process.stat());
        stat.is_ok_and(|stat| {
            stat.comm == b"sleep" && stat.group == Some(*pid) && !marked.contains(pid)
        })
    })
}
