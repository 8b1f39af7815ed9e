//! Taking in a process that runs already.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;

use cgleaf_shared::process::{Pid, Pidfd};
use cgleaf_shared::wire::{RefusalCode, Reply, Request, Target};
use cgleaf_tests::helper::{Client, Lair, session};
use cgleaf_tests::scratch::Sleeper;

fn pidfd(pid: u32) -> OwnedFd {
    let pid = Pid::new(i32::try_from(pid).unwrap()).unwrap();
    Pidfd::open(pid).unwrap().into()
}

fn adopt(client: &Client, target: &Target, descriptor: &OwnedFd) -> Reply {
    let request = Request::Adopt {
        target: target.clone(),
    };
    client.call_full(&request, Some(descriptor.as_fd())).0
}

fn refused(reply: Reply) -> RefusalCode {
    match reply {
        Reply::Refused(refusal) => refusal.kind(),
        other => panic!("{other:?}"),
    }
}

/// A user's own process in a place that was delegated to that user.
fn users_sleeper(lair: &Lair, uid: u32) -> std::process::Child {
    let mut command = lair.outside(std::path::Path::new("/usr/bin/sleep"), uid);
    let child = command.arg("1000").spawn().unwrap();
    cgleaf_tests::scratch::wait_until("the sleeper", || {
        fs::read(format!("/proc/{}/cmdline", child.id()))
            .is_ok_and(|line| line.starts_with(b"/usr/bin/sleep"))
    });
    child
}

#[test]
fn a_process_is_taken_in_by_its_pidfd_and_leads() {
    for uid in [0, 1000] {
        let Some(lair) = Lair::new(uid) else { return };
        let mut sleeper = users_sleeper(&lair, uid);
        // The client is a process of that user's too: the test asks as root, whose sessions are its own.
        if uid == 0 {
            let client = lair.client();
            let target = Target::from(&client.create(session("taken")));
            assert_eq!(
                adopt(&client, &target, &pidfd(sleeper.id())),
                Reply::Adopted
            );
            let entry = client.open("taken");
            assert_eq!(
                u32::try_from(entry.leader.unwrap().pid.get()),
                Ok(sleeper.id())
            );
            drop(client);
            let client = lair.client();
            assert_eq!(
                client.list().len(),
                1,
                "it outlives the connection that made it"
            );
            client.destroy(&target);
        } else {
            let mut user = lair.enrolled(&[
                "create=taken",
                &format!("adopt=taken,{}", sleeper.id()),
                "kill=taken",
            ]);
            assert!(user.line().starts_with("enrolled"));
            assert_eq!(user.line(), "Adopted", "{}", lair.said());
            assert_eq!(user.line(), "killed");
        }
        assert!(!cgleaf_tests::frontend::wait_for(&mut sleeper).success());
    }
}

#[test]
fn what_may_not_be_adopted_is_not() {
    let Some(lair) = Lair::new(0) else { return };
    let client = lair.client();
    let target = Target::from(&client.create(session("taken")));
    let code = |descriptor: &OwnedFd| refused(adopt(&client, &target, descriptor));

    assert_eq!(code(&pidfd(1)), RefusalCode::NotAdoptable, "PID 1");
    assert_eq!(
        code(&pidfd(lair.pid())),
        RefusalCode::NotAdoptable,
        "the helper"
    );
    let foreign = Sleeper::new(1000);
    assert_eq!(
        code(&pidfd(foreign.pid())),
        RefusalCode::NotAdoptable,
        "another's"
    );
    let mut ended = Command::new("true").spawn().unwrap();
    let held = pidfd(ended.id());
    ended.wait().unwrap();
    assert_eq!(code(&held), RefusalCode::NotAdoptable, "reaped");
    let mut zombie = Command::new("true").spawn().unwrap();
    let held = pidfd(zombie.id());
    cgleaf_tests::scratch::wait_until("a zombie", || {
        fs::read_to_string(format!("/proc/{}/stat", zombie.id()))
            .is_ok_and(|stat| stat.contains(") Z "))
    });
    assert_eq!(code(&held), RefusalCode::NotAdoptable, "a zombie");
    zombie.wait().unwrap();
    let mut inside = lair.enrolled(&["enrol=other"]);
    assert!(inside.line().starts_with("enrolled"));
    assert_eq!(
        code(&pidfd(inside.pid())),
        RefusalCode::NotAdoptable,
        "in a session"
    );
    let (held, thread) = std::sync::mpsc::channel();
    let (live, ends) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        held.send(cgleaf_tests::sys::own_thread_pidfd()).unwrap();
        let _ = ends.recv();
    });
    match thread.recv().unwrap() {
        Ok(held) => assert_eq!(code(&held), RefusalCode::NotAdoptable, "a thread"),
        Err(why) => println!("no pidfd of a thread before Linux 6.9: {why}"),
    }
    drop(live);
    for wrong in ["/dev/null", "/proc/self/status"] {
        let file: OwnedFd = fs::File::open(wrong).unwrap().into();
        assert_eq!(code(&file), RefusalCode::BadDescriptor, "{wrong}");
    }
    let request = Request::Adopt {
        target: target.clone(),
    };
    assert_eq!(
        client.refused(&request),
        RefusalCode::BadDescriptor,
        "none at all"
    );
    assert_eq!(
        fs::read_to_string(lair.scope().join("cgleaf-taken.leaf/cgroup.procs")).unwrap(),
        ""
    );
}

#[test]
fn what_was_killed_takes_nobody_in() {
    let Some(lair) = Lair::new(0) else { return };
    let mut first = users_sleeper(&lair, 0);
    let mut second = users_sleeper(&lair, 0);
    let client = lair.client();
    let target = Target::from(&client.create(session("taken")));
    assert_eq!(adopt(&client, &target, &pidfd(first.id())), Reply::Adopted);
    let kill = Request::Kill {
        target: target.clone(),
    };
    assert_eq!(client.call(&kill), Reply::Killed);
    assert!(!cgleaf_tests::frontend::wait_for(&mut first).success());
    // Whoever killed it may be about to say that all of it has ended.
    assert_eq!(
        refused(adopt(&client, &target, &pidfd(second.id()))),
        RefusalCode::NotAdoptable
    );
    second.kill().unwrap();
    second.wait().unwrap();
    client.destroy(&target);
}
