//! What a helper refuses because there is no more of it, or because the place is unfit, and how it says so.

use std::fs;
use std::os::fd::AsFd;
use std::process::Command;

use cgleaf_shared::process::Pid;
use cgleaf_shared::wire::{self, FreezeFlag, RefusalCode, Reply, Request, Target};
use cgleaf_tests::frontend::finish;
use cgleaf_tests::helper::{Client, Lair, session};
use cgleaf_tests::scratch::wait_until;

#[test]
fn quotas_are_for_each_domain() {
    let Some(mut lair) = Lair::without_helper(0) else {
        return;
    };
    lair.start(&["--max-sessions", "2", "--max-clients", "3"]);
    let client = lair.client();
    let one = client.create(session("one"));
    let _two = client.create(session("two"));
    assert_eq!(
        client.refused(&Request::Create {
            new: session("three")
        }),
        RefusalCode::QuotaSessions
    );
    assert_eq!(
        client.call(&Request::Remove {
            target: Target::from(&one)
        }),
        Reply::Removed(wire::Removal {
            removed: true,
            leftover: vec![]
        })
    );
    let _three = client.create(session("three"));
    let _others = [lair.client(), lair.client()];
    let socket = Client::connect_silently(&lair.socket()).unwrap();
    let packet = wire::receive(socket.as_fd(), wire::MAX_REPLY)
        .unwrap()
        .unwrap();
    match wire::decode_reply(&packet.bytes).unwrap() {
        Reply::Refused(refusal) => assert_eq!(refusal.kind(), RefusalCode::QuotaClients),
        other => panic!("{other:?}"),
    }
}

/// One that could take in nobody would only keep another from its place.
#[test]
fn without_descriptors_for_a_client_it_does_not_start() {
    let Some(lair) = Lair::without_helper(0) else {
        return;
    };
    let real = lair.command(&[]);
    let mut command = Command::new("prlimit");
    command
        .arg("--nofile=40:40")
        .arg(real.get_program())
        .args(real.get_args());
    let answer = finish(command);
    answer.expect(1);
    assert!(answer.stderr.contains("RLIMIT_NOFILE is 40"), "{answer:?}");
    assert!(!lair.socket().exists());
}

#[test]
fn a_limit_of_the_kernels_is_named_with_its_path() {
    let Some(lair) = Lair::new(0) else { return };
    fs::write(lair.scope().join("cgroup.max.descendants"), "3").unwrap();
    let client = lair.client();
    let one = client.create(session("one"));
    let _two = client.create(session("two"));
    let refusal = client.refusal(&Request::Create {
        new: session("three"),
    });
    assert_eq!(refusal.kind(), RefusalCode::CgroupLimit);
    let limit = lair.scope().join("cgroup.max.descendants");
    assert!(
        refusal
            .message
            .contains(&format!("{} = 3", limit.display())),
        "{}",
        refusal.message
    );
    assert_eq!(lair.cgroups().len(), 3);
    let removed = client.call(&Request::Remove {
        target: Target::from(&one),
    });
    assert!(matches!(removed, Reply::Removed(removal) if removal.removed));
    let _three = client.create(session("three"));
}

#[test]
fn nothing_is_made_beneath_what_is_frozen_or_threaded() {
    let Some(lair) = Lair::new(0) else { return };
    let mut program = lair.enrolled(&["enrol=one"]);
    assert!(program.line().starts_with("enrolled"));
    let client = lair.client();
    let nested = || {
        let mut new = session("nested");
        new.parent = Some("one".parse().unwrap());
        Request::Create { new }
    };
    let leaf = lair.scope().join("cgleaf-one.leaf");
    fs::write(leaf.join("cgroup.freeze"), "1").unwrap();
    assert_eq!(client.refused(&nested()), RefusalCode::ParentFrozen);
    fs::write(leaf.join("cgroup.freeze"), "0").unwrap();
    let mut beneath = lair.enrolled(&["enrol=two,one"]);
    assert!(beneath.line().starts_with("enrolled"));
    fs::write(leaf.join("cgroup.freeze"), "1").unwrap();
    let mut new = session("nested");
    new.parent = Some("two".parse().unwrap());
    let refusal = client.refusal(&Request::Create { new });
    assert_eq!(refusal.kind(), RefusalCode::ParentFrozen);
    assert!(
        refusal.message.contains("cgleaf-one.leaf is frozen"),
        "{}",
        refusal.message
    );
    fs::write(leaf.join("cgroup.freeze"), "0").unwrap();
    client.destroy(&Target::from(&client.open("two").attestation));
    // A program that makes itself a threaded cgroup is still listed where the kernel lists it, and is killed.
    fs::create_dir(leaf.join("threads")).unwrap();
    fs::write(leaf.join("threads/cgroup.type"), "threaded").unwrap();
    assert_eq!(client.refused(&nested()), RefusalCode::Unsupported);
    fs::write(
        leaf.join("threads/cgroup.threads"),
        program.pid().to_string(),
    )
    .unwrap();
    let target = Target::from(&client.open("one").attestation);
    match client.call(&Request::Members {
        target: target.clone(),
        after: None,
    }) {
        Reply::Members(page) => {
            let pids: Vec<_> = page.members.iter().map(|member| member.pid).collect();
            assert_eq!(pids, [Pid::new(i32::try_from(program.pid()).unwrap())]);
        }
        other => panic!("{other:?}"),
    }
    client.destroy(&target);
}

/// Its own leaf a program cannot make threaded while the helper sits beside it; one that is nested it can. That one cannot
/// be killed at once, which is said as such, and its members are still found.
#[test]
fn a_threaded_leaf_is_listed_and_its_kill_is_left_to_others() {
    let Some(lair) = Lair::new(0) else { return };
    let mut program = lair.enrolled(&["enrol=one"]);
    assert!(program.line().starts_with("enrolled"));
    let client = lair.client();
    let mut new = session("inner");
    new.parent = Some("one".parse().unwrap());
    let inner = Target::from(&client.create(new));
    let leaf = lair.scope().join("cgleaf-one.leaf/cgleaf-inner.leaf");
    fs::write(leaf.join("cgroup.type"), "threaded").unwrap();
    fs::write(leaf.join("cgroup.threads"), program.pid().to_string()).unwrap();
    let members = |target: &Target| match client.call(&Request::Members {
        target: target.clone(),
        after: None,
    }) {
        Reply::Members(page) => page
            .members
            .into_iter()
            .map(|member| (member.pid, member.cgroup))
            .collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let pid = Pid::new(i32::try_from(program.pid()).unwrap());
    assert_eq!(members(&inner), [(pid, String::new())]);
    let kill = Request::Kill { target: inner };
    assert_eq!(client.refused(&kill), RefusalCode::Unsupported);
    let outer = Target::from(&client.open("one").attestation);
    assert_eq!(members(&outer).len(), 1);
    client.destroy(&outer);
}

/// A session that is over and was not removed makes room for a new one; one that has not begun does not.
#[test]
fn what_is_over_makes_room() {
    let Some(mut lair) = Lair::without_helper(0) else {
        return;
    };
    lair.start(&["--max-sessions", "3"]);
    let mut over = lair.enrolled(&["enrol=over"]);
    let mut alive = lair.enrolled(&["enrol=alive"]);
    assert!(over.line().starts_with("enrolled") && alive.line().starts_with("enrolled"));
    let client = lair.client();
    let _unborn = client.create(session("unborn"));
    let next = Request::Create {
        new: session("next"),
    };
    assert_eq!(client.refused(&next), RefusalCode::QuotaSessions);
    drop(over);
    wait_until("its end", || !client.open("over").state.populated);
    assert!(matches!(client.call(&next), Reply::Created(_)));
    let another = Request::Create {
        new: session("another"),
    };
    assert_eq!(client.refused(&another), RefusalCode::QuotaSessions);
    let leaves = ["alive", "next", "unborn"].map(|id| format!("cgleaf-{id}.leaf"));
    let mut there = lair.cgroups();
    there.retain(|name| name.ends_with(".leaf"));
    there.sort();
    assert_eq!(there, leaves);
    client.destroy(&Target::from(&client.open("alive").attestation));
}

/// The helper's limit of descriptors, which another process can lower to below what it has: then it gets no new one.
struct NoDescriptors {
    helper: u32,
    before: String,
}

impl NoDescriptors {
    fn of(helper: u32) -> Self {
        let limits = fs::read_to_string(format!("/proc/{helper}/limits")).unwrap();
        let line = limits
            .lines()
            .find(|line| line.starts_with("Max open files"));
        let before = line.unwrap().split_ascii_whitespace().nth(3).unwrap();
        let without = Self {
            helper,
            before: before.to_owned(),
        };
        without.limit("1");
        without
    }

    fn limit(&self, number: &str) {
        let mut command = Command::new("prlimit");
        command
            .args(["--pid", &self.helper.to_string()])
            .arg(format!("--nofile={number}:"));
        finish(command).expect(0);
    }

    fn end(self) {
        self.limit(&self.before);
    }
}

/// Only that it is not there ends a helper for its scope directory: whoever cannot look has not seen that.
#[test]
fn a_helper_that_cannot_look_at_its_scope_directory_goes_on() {
    let Some(mut lair) = Lair::new(0) else { return };
    let mut program = lair.enrolled(&["enrol=one"]);
    assert!(program.line().starts_with("enrolled"));
    let client = lair.client();
    let without = NoDescriptors::of(lair.pid());
    let requests = [
        Request::Status,
        Request::Open {
            session: "one".parse().unwrap(),
        },
        Request::Create {
            new: session("one"),
        },
        Request::Stop,
    ];
    for request in requests {
        assert_eq!(
            client.refused(&request),
            RefusalCode::Exhausted,
            "{request:?}"
        );
    }
    without.end();
    let target = Target::from(&client.open("one").attestation);
    client.destroy(&target);
    assert!(lair.helper.as_mut().unwrap().try_wait().unwrap().is_none());
}

/// What ends with a connection ends also where the helper had no descriptor for it when the connection ended: a hold, a lease,
/// and a leaf that nobody was born in.
#[test]
fn what_could_not_be_ended_with_its_connection_is_ended_later() {
    let Some(lair) = Lair::new(0) else { return };
    let client = lair.client();
    let mut held = lair.enrolled(&["enrol=held"]);
    let mut leased = lair.enrolled(&["enrol=leased"]);
    assert!(held.line().starts_with("enrolled") && leased.line().starts_with("enrolled"));
    let holder = lair.client();
    let target = |id: &str| Target::from(&client.open(id).attestation);
    let freeze = Request::Freeze {
        target: target("held"),
        flag: FreezeFlag::Hold,
    };
    assert_eq!(holder.call(&freeze), Reply::FreezeRequested);
    wait_until("the freeze", || client.open("held").state.frozen);
    let lease = Request::Lease {
        target: target("leased"),
    };
    assert_eq!(holder.call(&lease), Reply::Leased);
    let _unborn = holder.create(session("unborn"));

    let connected = lair.descriptors();
    let without = NoDescriptors::of(lair.pid());
    drop(holder);
    wait_until("the connection's end", || lair.descriptors() < connected);
    // It is answered after the whole of that end.
    assert_eq!(client.refused(&Request::Status), RefusalCode::Exhausted);
    without.end();
    wait_until("the thaw", || {
        let state = client.open("held").state;
        !state.held && !state.frozen
    });
    wait_until("the removal of the others", || {
        lair.cgroups()
            .iter()
            .all(|name| !name.contains("leased") && !name.contains("unborn"))
    });
    client.destroy(&target("held"));
}

/// Where the machine has no descriptor for the first client, no client's end makes room for it.
#[test]
fn who_came_while_there_was_no_descriptor_is_served_later() {
    let Some(lair) = Lair::new(0) else { return };
    let listened = || {
        let polled = |entry: fs::DirEntry| fs::read_to_string(entry.path()).unwrap_or_default();
        fs::read_dir(format!("/proc/{}/fdinfo", lair.pid()))
            .unwrap()
            .map(|entry| polled(entry.unwrap()).matches("tfd:").count())
            .max()
    };
    // Signals and the socket.
    wait_until("the end of all connections", || listened() == Some(2));
    let without = NoDescriptors::of(lair.pid());
    let socket = Client::connect_silently(&lair.socket()).unwrap();
    wait_until("that it stops to listen", || listened() == Some(1));
    without.end();
    let client = Client::greet(socket).expect("a welcome");
    assert!(client.list().is_empty());
}
