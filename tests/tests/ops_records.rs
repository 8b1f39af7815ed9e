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

/// With its helper dead there is nobody but the record to tell where the leaf is: one whose parts do not fit leads nowhere.
#[test]
fn an_edited_record_without_a_helper_is_no_proof_of_an_end() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    type Change = Box<dyn Fn(&mut serde_json::Value)>;
    let parent = |record: &serde_json::Value| {
        let path = record["attestation"]["domain_path"].as_str();
        path.expect("a path").to_owned()
    };
    let changes: Vec<(&str, Change)> = vec![
        (
            "none",
            Box::new(|record| {
                record
                    .as_object_mut()
                    .expect("an object")
                    .remove("attestation");
            }),
        ),
        (
            "namesake",
            Box::new(move |record| {
                let other = format!("{}/cgleaf-other.leaf", parent(record));
                record["attestation"]["leaf_path"] = other.into();
            }),
        ),
        (
            "elsewhere",
            Box::new(|record| {
                record["attestation"]["leaf_path"] = "/none/cgleaf-elsewhere.leaf".into();
            }),
        ),
        (
            "directory",
            Box::new(|record| {
                record["attestation"]["leaf_path"] = "/none/cgleaf-directory.leaf".into();
                record["attestation"]["domain_path"] = "/none".into();
            }),
        ),
        (
            "nobody",
            Box::new(|record| {
                record["attestation"]["leaf_id"] = 77.into();
                record.as_object_mut().expect("an object").remove("helper");
            }),
        ),
    ];
    for (session, change) in changes {
        let script = "env -i setsid sleep 1000 & sleep 0.05; exit 0";
        let words = ["start", "--session", session, "--", "sh", "-c", script];
        sandbox.run(words).expect(0);
        // Whoever waits for the program has written that down, and writes no more.
        wait_until("the leader's end", || {
            let record = sandbox.record(session).expect("a record");
            !record["exit"].is_null() && sandbox.members(session).len() == 1
        });
        edited(&sandbox, session, change);
        sandbox.kill_helper();
        // Where leaves are made here is not told either.
        let mut destroys = sandbox.cgleaf(["destroy", session]);
        destroys.env_remove("CGLEAF_SCOPE_DIR");
        let answer = cgleaf_tests::frontend::finish(destroys);
        assert_ne!(answer.code(), 0, "{session}: {answer:?}");
        assert_eq!(sandbox.members(session).len(), 1, "{session}");
        sandbox.run(["helper", "stop"]);
        sandbox.run(["destroy", session]).expect(0);
        assert_eq!(sandbox.leaves(), Vec::<String>::new(), "{session}");
    }
}

/// Attributes can be copied to a directory that is made again; what was recorded is another directory, and nobody in this one is met.
#[test]
fn a_copy_of_a_leaf_is_left_alone() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox
        .run(["start", "--session", "s", "--", "sleep", "1000"])
        .expect(0);
    edited(&sandbox, "s", |record| {
        let id = record["attestation"]["leaf_id"].as_u64().expect("an id");
        record["attestation"]["leaf_id"] = (id + 1).into();
    });
    for words in [
        &["freeze", "s"][..],
        &["signal", "s", "TERM"],
        &["destroy", "s"],
    ] {
        let refused = sandbox.run(words);
        refused.expect(7);
        assert!(refused.stderr.contains("copy"), "{refused:?}");
    }
    assert_eq!(sandbox.members("s").len(), 1);
    std::fs::remove_file(sandbox.sessions().join("s.json")).expect("remove the record");
    sandbox.run(["destroy", "s"]).expect(0);
}

/// What cannot be told is not the end: 4 would say that nothing runs.
#[test]
fn what_a_mount_hides_is_not_said_to_have_ended() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox
        .run(["start", "--session", "s", "--", "sleep", "1000"])
        .expect(0);
    sandbox.run(["helper", "status"]).expect(0);
    let leaf = sandbox.leaf("s");
    for words in ["freeze s", "thaw s", "ps s", "signal s TERM"] {
        let script = format!(
            "mount -t tmpfs none {} && exec cgleaf {words}",
            leaf.display()
        );
        let mut command = sandbox.command("unshare");
        command.args(["--mount", "sh", "-c", &script]);
        let answer = cgleaf_tests::frontend::finish(command);
        assert!(matches!(answer.code(), 0 | 6 | 7), "{words}: {answer:?}");
    }
    sandbox.run(["thaw", "s"]);
    sandbox.run(["destroy", "s"]).expect(0);
}

/// Which boot this is cannot be told where /proc shows no boot id: then nothing is over, and nothing is acted on.
#[test]
fn without_a_boot_id_nothing_is_said_to_be_over() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let start = ["start", "--session", "s", "--", "sleep", "1000"];
    sandbox.run(start).expect(0);
    let script = "mount --bind /dev/null /proc/sys/kernel/random/boot_id && exec \"$@\"";
    let hidden = |words: &[&str]| {
        let mut command = sandbox.command("unshare");
        command
            .args(["-m", "sh", "-c", script, "sh"])
            .arg(sandbox.program())
            .args(words);
        cgleaf_tests::frontend::finish(command)
    };
    let answer = hidden(&["destroy", "s"]);
    assert_eq!(answer.code(), 6, "{answer:?}");
    assert!(answer.stderr.contains("boot_id"), "{answer:?}");
    let shown = hidden(&["show", "--json", "s"]);
    assert!(
        !["ended", "destroyed"].contains(&shown.json()["result"]["state"].as_str().unwrap_or("")),
        "{shown:?}"
    );
    let _ = hidden(&["gc"]);
    assert_eq!(sandbox.members("s").len(), 1, "it runs on");
    sandbox.run(["destroy", "s"]).expect(0);
}
