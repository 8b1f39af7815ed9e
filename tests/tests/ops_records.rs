//! Records, names and leaves that somebody else has changed, or that are lost: never a success while something lives, and
//! nobody else is met.

use cgleaf_tests::frontend::Sandbox;
use cgleaf_tests::scratch::wait_until;

/// Changes a record as whoever has the user's rights could.
fn edited(sandbox: &Sandbox, session: &str, change: impl FnOnce(&mut serde_json::Value)) {
    let path = sandbox.sessions().join(format!("{session}.json"));
    let mut record = sandbox.record(session).expect("a record");
    change(&mut record);
    std::fs::write(path, record.to_string()).expect("write it back");
}

/// Each part of a record may be true by itself; one whose parts do not fit is worth nothing, and the helper is asked.
#[test]
fn a_record_that_contradicts_itself_leads_to_no_false_success() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let start = |session: &str| {
        let words = ["start", "--session", session, "--", "sleep", "1000"];
        sandbox.run(words).expect(0);
    };
    start("bystander");
    let other = sandbox.record("bystander").expect("a record")["attestation"].clone();
    type Change = Box<dyn FnOnce(&mut serde_json::Value)>;
    let changes: Vec<(&str, Change)> = vec![
        ("tier", Box::new(|record| record["tier"] = "group".into())),
        (
            "no-leaf",
            Box::new(|record| {
                record["tier"] = "group".into();
                record.as_object_mut().unwrap().remove("attestation");
            }),
        ),
        (
            "boot",
            Box::new(|record| record["attestation"]["boot_id"] = "0".repeat(32).into()),
        ),
        (
            "others",
            Box::new(move |record| record["attestation"] = other),
        ),
    ];
    for (session, change) in changes {
        start(session);
        let program = sandbox.members(session);
        edited(&sandbox, session, change);
        assert_eq!(sandbox.state(session), "damaged", "{session}");
        sandbox.run(["destroy", session]).expect(0);
        for pid in program {
            assert!(cgleaf_tests::session::is_dead(pid), "{session}");
        }
        assert_eq!(sandbox.members("bystander").len(), 1, "{session}");
    }
    sandbox.run(["destroy", "bystander"]).expect(0);
}

/// A name's file alone leads to nobody: the record has the last word.
#[test]
fn a_name_that_was_pointed_elsewhere_ends_nobody_else() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for (session, name) in [("victim", "vn"), ("meant", "mn")] {
        let words = [
            "start",
            "--session",
            session,
            "--name",
            name,
            "--",
            "sleep",
            "1000",
        ];
        sandbox.run(words).expect(0);
    }
    let names = sandbox.sessions().with_file_name("names");
    std::fs::write(names.join("mn"), "victim").expect("point it elsewhere");
    sandbox.run(["destroy", "mn"]).expect(0);
    assert_eq!(sandbox.members("victim").len(), 1);
    assert!(!sandbox.leaf("meant").exists());
    sandbox.run(["destroy", "victim"]).expect(0);
}

#[test]
fn gc_takes_only_a_sessions_own_log() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let words = [
        "start",
        "--session",
        "kept",
        "--",
        "sh",
        "-c",
        "echo precious; exec sleep 1000",
    ];
    sandbox.run(words).expect(0);
    sandbox
        .run(["start", "--session", "goes", "--", "sleep", "1000"])
        .expect(0);
    let log = sandbox.sessions().join("kept.log");
    edited(&sandbox, "goes", |record| {
        record["log"] = log.to_str().into();
    });
    sandbox.run(["destroy", "goes"]).expect(0);
    wait_until("gc to take it", || {
        sandbox.run(["gc"]).expect(0);
        sandbox.record("goes").is_none()
    });
    assert!(log.exists());
    sandbox.run(["destroy", "kept"]).expect(0);
}

/// An old record that somebody put back: its leaf is gone, and another one has that id, whose helper has died.
#[test]
fn an_old_record_does_not_hide_the_leaf_that_has_its_id_now() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let start = || {
        let words = ["start", "--session", "again", "--", "sleep", "1000"];
        sandbox.run(words).expect(0);
    };
    start();
    let old = sandbox.record("again").expect("a record").to_string();
    sandbox.run(["destroy", "again"]).expect(0);
    wait_until("gc to take it", || {
        sandbox.run(["gc"]).expect(0);
        sandbox.record("again").is_none()
    });
    start();
    let program = sandbox.members("again");
    std::fs::write(sandbox.sessions().join("again.json"), old).expect("put it back");
    let helper = sandbox.helper_pid().expect("a helper");
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(helper),
        nix::sys::signal::Signal::SIGKILL,
    )
    .expect("kill the helper");
    wait_until("its end", || cgleaf_tests::session::is_dead(helper));
    sandbox.run(["destroy", "again"]).expect(0);
    assert!(cgleaf_tests::session::is_dead(program[0]));
}

/// Neither record nor helper: that is no proof of an end.
#[test]
fn a_leaf_without_record_and_helper_is_found_where_leaves_are_made() {
    for options in [
        &["destroy", "lost", "--if-exists"][..],
        &["destroy", "lost"],
    ] {
        let Some(sandbox) = Sandbox::new() else {
            return;
        };
        let words = ["start", "--session", "lost", "--", "sleep", "1000"];
        sandbox.run(words).expect(0);
        let program = sandbox.members("lost");
        let helper = sandbox.helper_pid().expect("a helper");
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(helper),
            nix::sys::signal::Signal::SIGKILL,
        )
        .expect("kill the helper");
        wait_until("its end", || cgleaf_tests::session::is_dead(helper));
        std::fs::remove_file(sandbox.sessions().join("lost.json")).expect("lose the record");
        sandbox.run(options).expect(0);
        assert!(cgleaf_tests::session::is_dead(program[0]));
    }
}
