//! Outer filters, as container managers have them, and older kernels: what one of the newer system calls would have told is found
//! out in another way, and `doctor` says the tier that `run` then uses. The lab's `suite` sees to both.

use cgleaf_tests::frontend::{Answer, Sandbox, finish};
use cgleaf_tests::lab::{hostile_dir, tests_dir};
use cgleaf_tests::require;
use nix::libc;

/// The suite beneath a filter that refuses these calls with this error, in a pid namespace: to all in it, as to what runs in a
/// container, the filter is the usual thing. In a confined program's place each call would have a helper of its own.
fn suite(calls: &str, errno: i32, programs: &str) -> Option<Answer> {
    let sandbox = Sandbox::new()?;
    let hostile = hostile_dir().expect("compile the hostile programs");
    let script = format!(
        "PATH={}:$PATH exec sh {} 1",
        hostile.display(),
        tests_dir().join("lab/suite").display()
    );
    let mut command = sandbox.command(env!("CARGO_BIN_EXE_refusing"));
    command
        .args([&errno.to_string(), calls])
        .args(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["sh", "-c", &script])
        .env("SUITE_PROGRAMS", programs);
    Some(finish(command))
}

fn all_works(calls: &str, errno: i32) {
    if let Some(answer) = suite(calls, errno, "chain-setsid headless") {
        let said = format!(
            "{calls} with errno {errno}: {}{}",
            answer.stdout, answer.stderr
        );
        assert_eq!(answer.code(), 0, "{said}");
        assert!(answer.stdout.contains("doctor=cgroup run=cgroup"), "{said}");
        assert!(answer.stdout.contains("total=2 destroyed=2 "), "{said}");
    }
}

#[test]
fn the_filter_is_in_force_and_doctor_sees_it() {
    require!(Cgroup2);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let refused = |words: &[&str]| {
        let mut command = sandbox.command(env!("CARGO_BIN_EXE_refusing"));
        let errno = libc::EPERM.to_string();
        command.args([&errno, "pidfd_open"]);
        command.arg(sandbox.program()).args(words);
        finish(command)
    };
    let said = refused(&["doctor"]);
    let line = "NO      pidfd: pidfd_open is not available here";
    assert!(said.expect(0).contains(line), "{said:?}");
    // Nobody shares a helper with a confined caller. The second one's finds the place of the first one's taken, and takes another.
    for _ in 0..2 {
        refused(&["run", "--tier", "cgroup", "--", "true"]).expect(0);
    }
}

/// umask(2) cannot fail, so that libraries take an error of it for a mask.
#[test]
fn a_refused_umask_is_told_by_its_name() {
    require!(Cgroup2);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut command = sandbox.command(env!("CARGO_BIN_EXE_refusing"));
    command
        .args([&libc::EPERM.to_string(), "umask"])
        .arg(sandbox.program())
        .args(["run", "--status-fd", "1", "--", "true"]);
    let answer = finish(command);
    assert!(
        answer.expect(0).contains("\"tier\":\"group\""),
        "{answer:?}"
    );
    assert!(answer.stderr.contains("refuse umask(2)"), "{answer:?}");
    assert!(!answer.stderr.contains("panicked"), "{answer:?}");
}

/// A filter may kill for a call instead of refusing it: so does a unit with `SystemCallFilter=@system-service`, for landlock's.
/// doctor lives, says the tier that `run` then uses, and the reason names the signal.
#[test]
fn a_filter_that_kills_is_named_and_doctor_survives_it() {
    require!(Cgroup2);
    for (call, check) in [
        ("landlock_create_ruleset", "landlock"),
        ("pidfd_open", "pidfd"),
        ("openat2", "leaf"),
        ("name_to_handle_at", "cgroup"),
    ] {
        let Some(sandbox) = Sandbox::new() else {
            return;
        };
        let confined = |words: &[&str]| {
            let mut command = sandbox.command(env!("CARGO_BIN_EXE_refusing"));
            command.args(["kill", call]);
            command.arg(sandbox.program()).args(words);
            finish(command)
        };
        let doctor = confined(&["doctor", "--json"]);
        let result = doctor.json()["result"].clone();
        let checks = result["checks"].as_array().expect("checks");
        let checked = checks.iter().find(|one| one["name"] == check);
        let detail = checked.and_then(|one| one["detail"].as_str());
        assert!(
            detail.is_some_and(|detail| detail.contains("SIGSYS")),
            "{call}: {checks:?}"
        );
        let run = confined(&["run", "--", "true"]);
        let tier = match run.status.code() {
            Some(0) if run.stderr.contains("no leaf can be had here") => "group".into(),
            Some(0) => "cgroup".into(),
            _ => serde_json::Value::Null,
        };
        assert_eq!(result["tier"], tier, "{call}: {run:?}");
        let reason = result["reason"].as_str().expect("a reason");
        assert!(reason.contains("SIGSYS"), "{call}: {reason}");
        assert_eq!(doctor.code(), if tier == "cgroup" { 0 } else { 12 });
        if call == "landlock_create_ruleset" {
            assert_eq!(tier, "group", "{run:?}");
            assert!(run.stderr.contains("SIGSYS"), "{run:?}");
        }
    }
}

#[test]
fn a_machine_without_openat2_or_handles_serves() {
    require!(Cgroup2, Cc);
    all_works("openat2", libc::EPERM);
    all_works("name_to_handle_at", libc::EPERM);
}

#[test]
fn a_machine_without_pidfd_open_or_landlock_serves() {
    require!(Cgroup2, Cc);
    all_works("pidfd_open", libc::EPERM);
    all_works("landlock_create_ruleset", libc::ENOSYS);
}

#[test]
fn all_of_the_newer_calls_may_be_refused() {
    require!(Cgroup2, Cc);
    // A filter has to say of clone3 that it does not exist: no C library goes on otherwise.
    all_works("openat2,name_to_handle_at,pidfd_open", libc::EPERM);
    all_works(
        "openat2,name_to_handle_at,pidfd_open,clone3,close_range",
        libc::ENOSYS,
    );
}

/// Where no leaf can be had either: the group tier ends what `start` began, and can signal it.
#[test]
fn the_group_tier_works_without_pidfd_open() {
    require!(Cgroup2, Cc);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let hostile = hostile_dir().expect("compile the hostile programs");
    let script = format!(
        "PATH={}:$PATH; cd {}; c() {{ cgleaf --quiet \"$@\"; }}; \
         c start --tier group --session s -- chain-setsid counted 300 && counter counted wait 30 && c destroy s && \
         counter counted still && c start --tier group --session t -- sleep 1000 && c signal t TERM; \
         c wait t; echo waited $?",
        hostile.display(),
        sandbox.runtime().display()
    );
    let mut command = sandbox.command(env!("CARGO_BIN_EXE_refusing"));
    command.args([&libc::EPERM.to_string(), "pidfd_open"]);
    command.args(["bash", "-c", &script]);
    let answer = finish(command);
    assert!(answer.stdout.contains("waited 143"), "{answer:?}");
    let list = sandbox.run(["list", "--json"]);
    assert_eq!(
        list.json()["result"]["sessions"],
        serde_json::json!([]),
        "{list:?}"
    );
}

/// As before Linux 6.5: who asks is told by SO_PEERCRED and a start time read before and after.
#[test]
fn a_kernel_without_peer_pidfds_serves() {
    require!(Cgroup2, Cc);
    all_works("getsockopt:peerpidfd", libc::ENOPROTOOPT);
}

/// Where not even pidfd_send_signal is left nobody is signalled by number: a member that `cgroup.kill` misses is named.
#[test]
fn without_any_way_to_hold_a_process_nobody_is_signalled_blindly() {
    require!(Cgroup2, Cc);
    let calls = "pidfd_open,pidfd_send_signal";
    let Some(answer) = suite(calls, libc::ENOSYS, "headless") else {
        return;
    };
    let said = format!("{}{}", answer.stdout, answer.stderr);
    assert!(answer.stdout.contains("doctor=cgroup run=cgroup"), "{said}");
    // Some kernels' cgroup.kill reaches it.
    let ends = [
        "destroyed=1 partial=0 refused=0 false=0",
        "destroyed=0 partial=1 refused=0 false=0",
    ];
    assert!(ends.iter().any(|end| answer.stdout.contains(end)), "{said}");
}
