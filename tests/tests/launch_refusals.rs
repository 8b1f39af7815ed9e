//! What is refused: clearly, before anything is made, and with nothing left behind.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use cgleaf_tests::frontend::{Sandbox, finish};

fn nothing_was_made(sandbox: &Sandbox) -> bool {
    sandbox.record_files().is_empty() && sandbox.leaves().is_empty()
}

/// B33, B34: the one rule for ids and names.
#[test]
fn odd_names_and_ids_are_usage_errors() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let long = "n".repeat(300);
    let accents = "é".repeat(200);
    for odd in [
        "",
        ".",
        "..",
        "-x",
        "a b",
        "a\nb",
        "\u{1b}[31mred",
        "../x",
        "/etc/x",
        "a/../../b",
        ".hidden",
        "ü",
        &long,
        &accents,
    ] {
        for option in ["--name", "--session"] {
            for command in ["run", "exec", "start"] {
                let answer = sandbox.run([command, &format!("{option}={odd}"), "--", "true"]);
                answer.expect(125);
                let shown = answer
                    .stderr
                    .bytes()
                    .all(|byte| byte == b'\n' || !byte.is_ascii_control());
                assert!(shown, "{odd:?}: {answer:?}");
                assert!(nothing_was_made(&sandbox), "{odd:?}");
            }
        }
        for command in ["show", "destroy", "freeze"] {
            let answer = sandbox.run([command, "--", odd]);
            assert!(
                [2, 3].contains(&answer.code()),
                "{command} {odd:?}: {answer:?}"
            );
            let shown = answer
                .stderr
                .bytes()
                .all(|byte| byte == b'\n' || !byte.is_ascii_control());
            assert!(shown, "{odd:?}: {answer:?}");
        }
    }
}

#[test]
fn a_long_name_is_fine_up_to_the_rule() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let name = "n".repeat(64);
    sandbox
        .run([
            "run",
            "--name",
            &name,
            "--session",
            &"s".repeat(64),
            "--",
            "true",
        ])
        .expect(0);
}

#[test]
fn an_id_is_used_once() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox
        .run(["run", "--session", "once", "--", "true"])
        .expect(0);
    let answer = sandbox.run(["run", "--session", "once", "--", "true"]);
    answer.expect(125);
    assert!(answer.stderr.contains("once"), "{answer:?}");
    assert_eq!(sandbox.record("once").expect("a record")["phase"], "ended");
}

#[test]
fn a_name_is_one_living_sessions_at_a_time() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox
        .run([
            "start",
            "--session",
            "first",
            "--name",
            "n",
            "--",
            "sleep",
            "1000",
        ])
        .expect(0);
    let refused = sandbox.run(["run", "--session", "second", "--name", "n", "--", "true"]);
    refused.expect(125);
    assert!(refused.stderr.contains("first"), "{refused:?}");
    assert!(sandbox.record("second").is_none());
    // A name is no id, and an id no name.
    sandbox
        .run(["run", "--name", "first", "--", "true"])
        .expect(125);
    sandbox
        .run(["run", "--session", "n", "--", "true"])
        .expect(125);
    sandbox.run(["destroy", "n"]).expect(0);
    sandbox
        .run(["run", "--session", "third", "--name", "n", "--", "true"])
        .expect(0);
}

/// The holder of a name ended without anybody noticing: its frontend was none, or was killed.
#[test]
fn a_name_is_free_when_its_session_is_proven_over() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox
        .run(["exec", "--session", "e", "--name", "n", "--", "true"])
        .expect(0);
    assert_eq!(sandbox.record("e").expect("a record")["phase"], "running");
    sandbox
        .run(["run", "--session", "next", "--name", "n", "--", "true"])
        .expect(0);
}

/// B31: no room for another cgroup.
#[test]
fn a_limit_on_cgroups_is_named_and_nothing_starts_outside() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox.run(["run", "--", "true"]).expect(0);
    // The helper's own cgroup is one of the three.
    fs::write(sandbox.scope().join("cgroup.max.descendants"), "3").expect("set a limit");
    let started: Vec<_> = (0..6)
        .map(|number| {
            let session = format!("s{number}");
            sandbox.run(["start", "--session", &session, "--", "sleep", "1000"])
        })
        .collect();
    let good = started.iter().filter(|answer| answer.code() == 0).count();
    assert_eq!(good, 2, "{started:#?}");
    for (number, answer) in started
        .iter()
        .enumerate()
        .filter(|(_, answer)| answer.code() != 0)
    {
        answer.expect(125);
        assert!(
            answer.stderr.contains("cgroup.max.descendants = 3"),
            "{answer:?}"
        );
        assert!(answer.stderr.contains("cgleaf gc"), "{answer:?}");
        assert!(sandbox.record(&format!("s{number}")).is_none());
    }
    let witness = sandbox.runtime().join("ran");
    for command in ["run", "exec"] {
        let script = format!("echo ran > {}", witness.display());
        sandbox
            .run([command, "--", "sh", "-c", &script])
            .expect(125);
    }
    assert!(!witness.exists(), "a program ran uncontained");
    assert_eq!(
        sandbox
            .record_files()
            .iter()
            .filter(|name| name.ends_with(".json"))
            .count(),
        3
    );
    sandbox.run(["destroy", "s0"]).expect(0);
    sandbox.run(["run", "--", "true"]).expect(0);
}

/// What stands in the place of our directories and is not ours alone.
#[test]
fn a_directory_that_others_can_write_is_refused() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let base = sandbox.runtime().join("cgleaf");
    fs::create_dir(&base).expect("make it");
    fs::set_permissions(&base, fs::Permissions::from_mode(0o777)).expect("chmod");
    let answer = sandbox.run(["run", "--", "true"]);
    answer.expect(125);
    assert!(answer.stderr.contains("0777"), "{answer:?}");
    fs::remove_dir(&base).expect("remove it");
    // A link to a directory of ours is a link.
    let elsewhere = sandbox.other_runtime("elsewhere");
    symlink(&elsewhere, &base).expect("link");
    let answer = sandbox.run(["run", "--", "true"]);
    answer.expect(125);
    assert_eq!(
        fs::read_dir(&elsewhere).expect("list").count(),
        0,
        "the link was followed"
    );
}

/// B34: a link in the place of a record is not followed.
#[test]
fn a_link_in_the_records_is_not_followed() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox.run(["run", "--", "true"]).expect(0);
    let target = sandbox.runtime().join("target");
    fs::write(&target, "untouched").expect("write");
    symlink(&target, sandbox.sessions().join("linked.json")).expect("link");
    sandbox
        .run(["run", "--session", "linked", "--", "true"])
        .expect(125);
    assert_eq!(fs::read_to_string(&target).expect("read"), "untouched");
}

/// Root has a place of its own where no runtime directory is to be had; another user's is not used.
#[test]
fn places_that_cannot_be_used_are_passed_over() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let theirs = sandbox.other_runtime("theirs");
    std::os::unix::fs::chown(&theirs, Some(1000), Some(1000)).expect("chown");
    let script = format!(
        "mount -t tmpfs none /run || exit 99
         for runtime in '' {} /no/such relative; do XDG_RUNTIME_DIR=$runtime cgleaf run -- true || exit 1; done
         env -u XDG_RUNTIME_DIR cgleaf run -- true || exit 2
         ls /run/cgleaf/0/sessions | wc -l",
        theirs.display()
    );
    let mut command = sandbox.command("unshare");
    command.args(["--mount", "bash", "-c", &script]);
    let answer = finish(command);
    if answer.code() == 99 {
        cgleaf_tests::scratch::skip(&format!("no tmpfs of our own: {answer:?}"));
        return;
    }
    assert_eq!(answer.expect(0), "5");
    assert!(!theirs.join("cgleaf").exists());
}

/// A full disk fails before the program starts.
#[test]
fn a_full_disk_is_noticed_before_the_program_starts() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let small = sandbox.other_runtime("small");
    let script = format!(
        "mount -t tmpfs -o size=16k,mode=0700 none {0} || exit 99; mkdir -m 700 {0}/cgleaf {0}/cgleaf/sessions {0}/cgleaf/run; \
         dd if=/dev/zero of={0}/cgleaf/fill bs=4k 2>/dev/null; \
         XDG_RUNTIME_DIR={0} cgleaf run --session full -- touch {1}/ran; s=$?; ls {0}/cgleaf/sessions; exit $s",
        small.display(),
        sandbox.runtime().display()
    );
    let mut command = sandbox.command("unshare");
    command.args(["--mount", "bash", "-c", &script]);
    let answer = finish(command);
    if answer.code() == 99 || answer.code() == 1 {
        cgleaf_tests::scratch::skip(&format!("no tmpfs of our own: {answer:?}"));
        return;
    }
    answer.expect(125);
    assert!(answer.stderr.contains("No space left"), "{answer:?}");
    assert_eq!(answer.stdout.trim(), "", "a record was left");
    assert!(!sandbox.runtime().join("ran").exists());
}
