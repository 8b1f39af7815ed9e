//! What a helper finds that comes after another.

use std::fs;
use std::process::{Command, Stdio};

use cgleaf_shared::wire::{FreezeFlag, Reply, Request, Target};
use cgleaf_tests::frontend::{programs, wait_for};
use cgleaf_tests::helper::{Client, Lair, Other};
use cgleaf_tests::scratch::wait_until;

#[test]
fn after_a_kill_the_next_one_has_the_sessions_and_drops_the_holds() {
    let Some(mut lair) = Lair::new(0) else { return };
    let mut held = lair.enrolled(&["enrol=held"]);
    let mut frozen = lair.enrolled(&["enrol=frozen"]);
    assert!(held.line().starts_with("enrolled") && frozen.line().starts_with("enrolled"));
    let mut inner = lair.enrolled(&["enrol=inner,held"]);
    let inner_line = inner.line();
    assert!(
        inner_line.ends_with("cgleaf-held.leaf/cgleaf-inner.leaf"),
        "{inner_line}"
    );
    let client = lair.client();
    let freeze = |id: &str, flag| {
        let target = Target::from(&client.open(id).attestation);
        assert_eq!(
            client.call(&Request::Freeze { target, flag }),
            Reply::FreezeRequested
        );
        wait_until("a freeze", || client.open(id).state.frozen);
    };
    freeze("held", FreezeFlag::Hold);
    freeze("frozen", FreezeFlag::User);
    let before: Vec<_> = client
        .list()
        .into_iter()
        .map(|entry| (entry.attestation, entry.leader))
        .collect();
    // A half-made leaf, as one leaves it that dies between mkdir and the attributes.
    fs::create_dir(lair.scope().join("cgleaf-half.leaf")).unwrap();

    lair.kill_helper();
    lair.start(&[]);
    let client = lair.client();
    let after: Vec<_> = client
        .list()
        .into_iter()
        .map(|entry| (entry.attestation, entry.leader))
        .collect();
    assert_eq!(before, after);
    wait_until("the end of a hold that nobody has", || {
        let state = client.open("held").state;
        !state.held && !state.frozen
    });
    let state = client.open("frozen").state;
    assert!(state.user_frozen && state.frozen, "a user froze it");
    assert!(!lair.cgroups().contains(&"cgleaf-half.leaf".to_owned()));
    for (attestation, _) in after
        .iter()
        .filter(|(attestation, _)| attestation.session.as_str() != "inner")
    {
        client.destroy(&Target::from(attestation));
    }
    assert_eq!(lair.cgroups(), ["helper"]);
}

#[test]
fn a_thaw_that_was_not_finished_is_finished_by_the_next() {
    let Some(mut lair) = Lair::new(0) else { return };
    let mut program = lair.enrolled(&["enrol=one"]);
    assert!(program.line().starts_with("enrolled"));
    lair.kill_helper();
    let leaf = lair.scope().join("cgleaf-one.leaf");
    xattr::set(&leaf, "user.cgleaf.freeze", b"").unwrap();
    fs::write(leaf.join("cgroup.freeze"), "1").unwrap();
    lair.start(&[]);
    assert_eq!(
        fs::read_to_string(leaf.join("cgroup.freeze")).unwrap(),
        "0\n"
    );
    assert_eq!(xattr::get(&leaf, "user.cgleaf.freeze").unwrap(), None);
    // One that the program, or somebody else, froze is not ours to thaw.
    lair.kill_helper();
    fs::write(leaf.join("cgroup.freeze"), "1").unwrap();
    lair.start(&[]);
    assert_eq!(
        fs::read_to_string(leaf.join("cgroup.freeze")).unwrap(),
        "1\n"
    );
    let client = lair.client();
    client.destroy(&Target::from(&client.open("one").attestation));
}

#[test]
fn a_lease_ends_its_session_with_the_connection_and_waits_for_it_after_a_restart() {
    let Some(mut lair) = Lair::new(0) else { return };
    let mut program = lair.enrolled(&["enrol=one"]);
    assert!(program.line().starts_with("enrolled"));
    let holder = lair.client();
    let target = Target::from(&holder.open("one").attestation);
    let lease = Request::Lease {
        target: target.clone(),
    };
    assert_eq!(holder.call(&lease), Reply::Leased);
    assert!(holder.open("one").state.leased);
    lair.kill_helper();
    lair.start(&[]);
    let back = lair.client();
    assert!(back.open("one").state.populated);
    assert_eq!(back.call(&lease), Reply::Leased);
    drop(holder);
    drop(back);
    wait_until("the end of a leased session and of its leaf", || {
        lair.client().list().is_empty()
    });
    assert!(!wait_for(&mut program.child).success());

    let mut orphan = lair.enrolled(&["enrol=two"]);
    assert!(orphan.line().starts_with("enrolled"));
    let holder = lair.client();
    let target = Target::from(&holder.open("two").attestation);
    assert_eq!(holder.call(&Request::Lease { target }), Reply::Leased);
    lair.kill_helper();
    lair.start(&[]);
    wait_until(
        "the end of a session whose holder does not come back",
        || lair.client().list().is_empty(),
    );
}

#[test]
fn an_old_scope_directory_is_taken_over_if_it_is_the_recorded_one() {
    let Some(mut lair) = Lair::new(0) else { return };
    let mut program = lair.enrolled(&["enrol=old"]);
    assert!(program.line().starts_with("enrolled"));
    let attestation = lair.client().open("old").attestation;
    let told = lair.client().status();
    lair.kill_helper();

    let other = lair.scope().with_file_name("other");
    fs::create_dir(&other).unwrap();
    let boot = attestation.boot_id;
    let (root, id, path) = (told.root_id, told.scope_id, &told.scope_paths[0]);
    let start = |old: &str| {
        let mut command = Command::new(programs().join("cgleaf-helper"));
        command
            .args(["--mode", "direct", "--scope-dir"])
            .arg(&other)
            .args(["--take-over", old, "--socket"])
            .arg(lair.socket());
        let helper = Other(command.stdin(Stdio::null()).spawn().unwrap());
        wait_until("a helper that answers", || {
            Client::connect(&lair.socket()).is_ok()
        });
        helper
    };
    for wrong in [
        format!("{boot}:{root}:{}:{path}", id.0 + 1),
        format!("{boot}:{}:{id}:{path}", root.0 + 1),
        format!("00000000000000000000000000000000:{root}:{id}:{path}"),
    ] {
        let _helper = start(&wrong);
        let client = lair.client();
        assert!(client.list().is_empty(), "{wrong}");
        assert!(client.status().scope_paths[0].as_str().ends_with("/other"));
    }
    let _helper = start(&format!("{boot}:{root}:{id}:{path}"));
    let client = lair.client();
    assert_eq!(client.status().scope_paths, std::slice::from_ref(path));
    assert_eq!(client.open("old").attestation, attestation);
    let mut new = lair.enrolled(&["enrol=new"]);
    assert!(
        new.line().ends_with("/scope/cgleaf-new.leaf"),
        "new leaves go to the first"
    );

    // While its helper lives, nobody else takes it.
    let mut rival = Command::new(programs().join("cgleaf-helper"));
    let rival_socket = lair.socket().with_file_name("rival.sock");
    rival
        .args(["--mode", "direct", "--scope-dir"])
        .arg(&other)
        .args([
            "--take-over",
            &format!("{boot}:{root}:{id}:{path}"),
            "--socket",
        ])
        .arg(&rival_socket);
    let _rival = Other(rival.stdin(Stdio::null()).spawn().unwrap());
    wait_until("a rival that answers", || {
        Client::connect(&rival_socket).is_ok()
    });
    assert!(Client::connect(&rival_socket).unwrap().list().is_empty());
    for id in ["old", "new"] {
        client.destroy(&Target::from(&client.open(id).attestation));
    }
}

/// Its parent does not reap it: its number and its start are those of a helper, and nothing waits for it.
#[test]
fn a_helper_that_is_a_zombie_is_in_nobodys_way() {
    let Some(mut lair) = Lair::new(0) else { return };
    let mut program = lair.enrolled(&["enrol=one"]);
    assert!(program.line().starts_with("enrolled"));
    let told = lair.client().status();
    let boot = lair.client().open("one").attestation.boot_id;
    let mut zombie = Other(lair.helper.take().unwrap());
    zombie.0.kill().unwrap();
    let stat = format!("/proc/{}/stat", zombie.0.id());
    wait_until("a zombie", || {
        fs::read_to_string(&stat).unwrap().contains(") Z ")
    });
    let old = format!(
        "{boot}:{}:{}:{}",
        told.root_id, told.scope_id, told.scope_paths[0]
    );
    lair.start(&["--take-over", &old]);
    let client = lair.client();
    assert_eq!(client.list().len(), 1);
    client.destroy(&Target::from(&client.open("one").attestation));
    assert!(fs::read_to_string(&stat).unwrap().contains(") Z "));
}
