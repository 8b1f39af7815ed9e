//! What a helper in direct mode does with sessions, on the real tree.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};

use cgleaf_shared::attestation::{Verdict, verify};
use cgleaf_shared::cgroup::{CgroupRoot, Events};
use cgleaf_shared::id::Nonce;
use cgleaf_shared::process::Pid;
use cgleaf_shared::wire::{
    FreezeFlag, Opened, RefusalCode, Reply, Request, SessionEntry, Target, Thawed,
};
use cgleaf_tests::helper::{Client, Enrolled, Lair, session};
use cgleaf_tests::scratch::wait_until;

fn enrolled(lair: &Lair, words: &[&str]) -> Enrolled {
    let mut enrolled = lair.enrolled(words);
    let line = enrolled.line();
    assert!(line.starts_with("enrolled /"), "{line}: {}", lair.said());
    enrolled
}

fn events(fd: OwnedFd) -> impl FnMut() -> Option<Events> {
    use std::os::unix::fs::FileExt;
    let file = fs::File::from(fd);
    move || {
        let mut content = [0; 256];
        let length = file.read_at(&mut content, 0).ok()?;
        Events::parse(&content[..length])
    }
}

fn opened(client: &Client, id: &str) -> (SessionEntry, OwnedFd) {
    let request = Request::Open {
        session: id.parse().unwrap(),
    };
    match client.call_full(&request, None) {
        (Reply::Opened(Opened { entry }), mut descriptors) => {
            (entry, descriptors.pop().expect("the events' descriptor"))
        }
        other => panic!("open was answered with {other:?}"),
    }
}

#[test]
fn an_enrolled_process_is_listed_held_killed_and_gone() {
    for uid in [0, 1000] {
        let Some(lair) = Lair::new(uid) else { return };
        let mut program = enrolled(&lair, &["enrol=one", "fork"]);
        assert!(program.line().starts_with("forked"));
        let client = lair.client();

        let (entry, fd) = opened(&client, "one");
        assert_eq!(entry.attestation.owner_uid.0, uid);
        assert_eq!(
            u32::try_from(entry.leader.unwrap().pid.get()),
            Ok(program.pid())
        );
        assert!(entry.state.populated && !entry.state.frozen);
        let root = CgroupRoot::open().unwrap();
        assert!(matches!(
            verify(&entry.attestation, &root),
            Verdict::Proven(_)
        ));
        assert_eq!(client.list().len(), 1);
        let target = Target::from(&entry.attestation);
        match client.call(&Request::Members {
            target: target.clone(),
            after: None,
        }) {
            Reply::Members(page) => {
                assert_eq!((page.members.len(), page.total, page.more), (2, 2, false));
                let own = i32::try_from(program.pid()).unwrap();
                let leader = page
                    .members
                    .iter()
                    .find(|m| m.pid == Pid::new(own))
                    .unwrap();
                assert_eq!(
                    (leader.ns_pids.as_slice(), leader.cgroup.as_str()),
                    (&[own][..], "")
                );
            }
            other => panic!("{other:?}"),
        }

        let mut look = events(fd);
        assert!(look().unwrap().populated);
        client.destroy(&target);
        assert!(look().is_none_or(|events| !events.populated));
        assert!(client.list().is_empty());
        assert_eq!(lair.cgroups(), ["helper"]);
        assert_eq!(
            client.refused(&Request::Kill { target }),
            RefusalCode::NoSuchSession
        );
    }
}

#[test]
fn a_freeze_has_two_flags_and_the_last_to_go_thaws() {
    let Some(lair) = Lair::new(0) else { return };
    let _program = enrolled(&lair, &["enrol=one"]);
    let (holder, other) = (lair.client(), lair.client());
    let target = Target::from(&holder.open("one").attestation);
    let freeze = |flag| Request::Freeze {
        target: target.clone(),
        flag,
    };
    let thaw = |flag| Request::Thaw {
        target: target.clone(),
        flag,
    };
    let is_frozen = || {
        other.call(&Request::IsFrozen {
            target: target.clone(),
        }) == Reply::Frozen { not_yet: None }
    };

    assert_eq!(
        holder.call(&freeze(FreezeFlag::Hold)),
        Reply::FreezeRequested
    );
    wait_until("the freeze", is_frozen);
    assert!(other.open("one").state.held);
    // Somebody else's hold is not mine to end.
    match other.call(&thaw(FreezeFlag::Hold)) {
        Reply::Thawed(Thawed { still_flagged, .. }) => {
            assert_eq!(still_flagged, [FreezeFlag::Hold]);
        }
        reply => panic!("{reply:?}"),
    }
    assert!(is_frozen());
    assert_eq!(
        other.call(&freeze(FreezeFlag::User)),
        Reply::FreezeRequested
    );
    drop(holder);
    wait_until("the end of the hold", || !other.open("one").state.held);
    assert!(
        is_frozen() && other.open("one").state.user_frozen,
        "a user froze it"
    );
    match other.call(&thaw(FreezeFlag::User)) {
        Reply::Thawed(thawed) => {
            assert!(thawed.still_flagged.is_empty() && thawed.frozen_ancestor.is_none());
        }
        reply => panic!("{reply:?}"),
    }
    wait_until("the thaw", || !other.open("one").state.frozen);

    // The hold of a connection that ends is the last flag here.
    let holder = lair.client();
    assert_eq!(
        holder.call(&freeze(FreezeFlag::Hold)),
        Reply::FreezeRequested
    );
    wait_until("the freeze", is_frozen);
    drop(holder);
    wait_until("the thaw", || !other.open("one").state.frozen);
}

#[test]
fn a_child_is_born_in_a_leaf_and_attested() {
    let Some(lair) = Lair::new(0) else { return };
    let client = lair.client();
    let attestation = client.create(session("born"));
    let leaf = lair.scope().join("cgleaf-born.leaf");
    let target = Target::from(&attestation);
    let own = Pid::own();
    let attest = |leader| Request::Attest {
        target: target.clone(),
        leader,
    };
    assert_eq!(client.refused(&attest(own)), RefusalCode::NotAMember);
    let sleeper = cgleaf_tests::scratch::Sleeper::new(0);
    fs::write(leaf.join("cgroup.procs"), sleeper.pid().to_string()).unwrap();
    let leader = Pid::new(i32::try_from(sleeper.pid()).unwrap()).unwrap();
    assert_eq!(client.call(&attest(leader)), Reply::Attested(attestation));
    assert_eq!(client.open("born").leader.unwrap().pid, leader);
    drop(client);
    let client = lair.client();
    assert_eq!(
        client.list().len(),
        1,
        "an attested leaf outlives its maker"
    );
    client.destroy(&target);
}

#[test]
fn an_unborn_leaf_goes_with_its_connection() {
    let Some(lair) = Lair::new(0) else { return };
    let client = lair.client();
    let _ = client.create(session("never"));
    assert_eq!(lair.cgroups(), ["cgleaf-never.leaf", "helper"]);
    drop(client);
    wait_until("the end of the leaf", || lair.cgroups() == ["helper"]);
    assert!(lair.client().list().is_empty());
}

#[test]
fn sessions_nest_and_a_member_keeps_off_what_it_is_in() {
    let Some(lair) = Lair::new(0) else { return };
    let mut outer = enrolled(
        &lair,
        &[
            "enrol=outer",
            "freeze=outer",
            "thaw=outer",
            "enrol=inner",
            "freeze=outer",
            "list",
        ],
    );
    assert_eq!(outer.line(), "refused AncestorOfCaller");
    assert_eq!(outer.line(), "refused AncestorOfCaller");
    let inner = outer.line();
    assert!(
        inner.ends_with("/cgleaf-outer.leaf/cgleaf-inner.leaf"),
        "{inner}"
    );
    assert_eq!(outer.line(), "refused AncestorOfCaller");
    assert_eq!(outer.line(), "sessions inner,outer");
    let client = lair.client();
    let target = Target::from(&client.open("outer").attestation);
    client.destroy(&target);
    assert!(
        client.list().is_empty(),
        "the inner one went with the outer one"
    );
    assert_eq!(lair.cgroups(), ["helper"]);
}

#[test]
fn ids_and_names_are_taken_once() {
    let Some(lair) = Lair::new(0) else { return };
    let _program = enrolled(&lair, &["enrol=one"]);
    let client = lair.client();
    let create = |id: &str, name: Option<&str>| {
        let mut new = session(id);
        new.name = name.map(|name| name.parse().unwrap());
        Request::Create { new }
    };
    assert_eq!(
        client.refused(&create("one", None)),
        RefusalCode::SessionExists
    );
    assert_eq!(
        client.refused(&create("two", Some("one"))),
        RefusalCode::NameTaken
    );
    assert_eq!(
        client.refused(&create("two", Some("two"))),
        RefusalCode::NameTaken
    );
    assert!(matches!(
        client.call(&create("two", Some("n"))),
        Reply::Created(_)
    ));
    assert_eq!(
        client.refused(&create("three", Some("n"))),
        RefusalCode::NameTaken
    );
    assert_eq!(client.refused(&create("n", None)), RefusalCode::NameTaken);
    let named = client.open("two");
    assert_eq!(named.name.unwrap().as_str(), "n");
}

#[test]
fn a_target_that_is_another_leaf_is_not_touched() {
    let Some(lair) = Lair::new(0) else { return };
    let mut program = enrolled(&lair, &["enrol=one"]);
    let client = lair.client();
    let mut target = Target::from(&client.open("one").attestation);
    target.leaf_id.0 += 1;
    for request in [
        Request::Kill {
            target: target.clone(),
        },
        Request::Remove {
            target: target.clone(),
        },
        Request::Freeze {
            target: target.clone(),
            flag: FreezeFlag::User,
        },
    ] {
        assert_eq!(client.refused(&request), RefusalCode::TargetMismatch);
    }
    target.leaf_id.0 -= 1;
    target.nonce = Nonce::from_bytes([0; 16]);
    let refusal = client.refusal(&Request::Kill { target });
    assert_eq!(refusal.kind(), RefusalCode::NonceMismatch);
    assert!(refusal.message.contains("nonce"), "{refusal}");
    // And where it is the leaf that was changed.
    let target = Target::from(&client.open("one").attestation);
    let leaf = lair.scope().join("cgleaf-one.leaf");
    xattr::set(leaf, "user.cgleaf.nonce", "0".repeat(32).as_bytes()).unwrap();
    let refusal = client.refusal(&Request::Kill { target });
    assert_eq!(refusal.kind(), RefusalCode::NonceMismatch);
    assert!(program.child.try_wait().unwrap().is_none());
    assert_eq!(
        fs::read_to_string(lair.scope().join("cgleaf-one.leaf/cgroup.freeze")).unwrap(),
        "0\n"
    );
}

#[test]
fn a_descriptor_where_none_belongs_is_refused_and_closed() {
    let Some(lair) = Lair::new(0) else { return };
    let client = lair.client();
    let before = lair.descriptors();
    for _ in 0..20 {
        let file = fs::File::open("/dev/null").unwrap();
        match client.call_full(&Request::Status, Some(file.as_fd())) {
            (Reply::Refused(refusal), _) => assert_eq!(refusal.kind(), RefusalCode::BadDescriptor),
            other => panic!("{other:?}"),
        }
    }
    // A client of before may have been on its way out when they were counted.
    assert!(lair.descriptors() <= before);
}

#[test]
fn status_tells_and_stop_waits_for_the_last_session() {
    let Some(mut lair) = Lair::new(0) else { return };
    let _program = enrolled(&lair, &["enrol=one"]);
    let client = lair.client();
    match client.call(&Request::Status) {
        Reply::Status(status) => {
            assert_eq!(u32::try_from(status.pid.get()), Ok(lair.pid()));
            assert_eq!(status.sessions, 1);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(client.refused(&Request::Stop), RefusalCode::StillServing);
    let target = Target::from(&client.open("one").attestation);
    client.destroy(&target);
    assert_eq!(client.call(&Request::Stop), Reply::Stopping);
    let mut helper = lair.helper.take().unwrap();
    assert!(cgleaf_tests::frontend::wait_for(&mut helper).success());
    assert!(!lair.socket().exists());
}

/// cgroup.procs moves the threads that live. The main one, which has ended, stays; the leaf would then show nobody, and
/// cgroup.kill miss them.
#[test]
fn a_process_whose_main_thread_has_ended_is_not_moved() {
    let Some(lair) = Lair::new(0) else { return };
    let mut program = lair.enrolled(&["headless", "enrol=s"]);
    assert_eq!(program.line(), "refused IdentityUnproven");
    assert_eq!(lair.cgroups(), ["helper"]);
}
