//! Strays as real systems make them: pam_systemd moves `su -l` into a session scope of its own, and systemd-run makes
//! one.

use std::process::Command;

use cgleaf_tests::frontend::{Answer, finish};
use cgleaf_tests::lab::{Guest, GuestOptions};
use cgleaf_tests::require;
use cgleaf_tests::scratch::wait_until;
use serde_json::Value;

const CGLEAF: &str = "/cgleaf/cgleaf";

type Way = fn(&Guest, Vec<String>) -> Command;
const AS_USER: Way = |guest, words| guest.user(words);
const AS_ROOT: Way = |guest, words| guest.root(words);

fn inside(guest: &Guest, way: Way, words: &[&str]) -> Answer {
    finish(way(
        guest,
        words.iter().map(|word| (*word).to_owned()).collect(),
    ))
}

fn cgleaf(guest: &Guest, way: Way, words: &[&str]) -> Answer {
    let words: Vec<&str> = std::iter::once(CGLEAF)
        .chain(words.iter().copied())
        .collect();
    inside(guest, way, &words)
}

/// Starts a session whose program leaves a child that goes elsewhere, and waits until that sleeps there.
fn started(guest: &Guest, way: Way, session: &str, program: &str, seconds: &str) -> i64 {
    cgleaf(
        guest,
        way,
        &["start", "--session", session, "--", "sh", "-c", program],
    )
    .expect(0);
    let mut pid = 0;
    wait_until("the stray", || {
        let found = inside(
            guest,
            AS_ROOT,
            &["pgrep", "-x", "-f", &format!("(/usr/bin/)?sleep {seconds}")],
        );
        let Ok(number) = found.stdout.trim().parse::<i64>() else {
            return false;
        };
        pid = number;
        let place = inside(guest, AS_ROOT, &["cat", &format!("/proc/{number}/cgroup")]).stdout;
        !place.contains("cgleaf-")
    });
    pid
}

fn named(answer: &Answer) -> Vec<i64> {
    let json = answer.json();
    let strays = match &json["error"] {
        Value::Null => json["result"]["strays"].clone(),
        error => error["details"]["strays"].clone(),
    };
    let strays = strays.as_array().unwrap();
    strays
        .iter()
        .map(|stray| stray["pid"].as_i64().unwrap())
        .collect()
}

fn lives(guest: &Guest, pid: i64) -> bool {
    inside(guest, AS_ROOT, &["kill", "-0", &pid.to_string()]).code() == 0
}

/// Destroy names it and answers 5; `--strays kill` ends it.
fn is_named_and_can_be_ended(guest: &Guest, way: Way, session: &str, program: &str, seconds: &str) {
    let pid = started(guest, way, session, program, seconds);
    let answer = cgleaf(guest, way, &["--json", "destroy", session]);
    answer.expect(5);
    assert!(named(&answer).contains(&pid), "{pid}: {answer:?}");
    assert!(lives(guest, pid), "named, not killed");
    let answer = cgleaf(
        guest,
        way,
        &["--json", "destroy", "--strays", "kill", session],
    );
    answer.expect(0);
    assert!(named(&answer).contains(&pid), "{pid}: {answer:?}");
    assert!(!lives(guest, pid));
}

#[test]
fn su_with_a_login_shell_is_a_stray_of_roots_session() {
    let Some(guest) = Guest::shared() else { return };
    let program = "su -l lab -c 'exec sleep 4711' & sleep 1000";
    is_named_and_can_be_ended(guest, AS_ROOT, "su", program, "4711");
}

/// logind makes no session for who is in a user's slice already, so that su, root's by its mode bits, stays a member there;
/// its end does not depend on who may signal it.
#[test]
fn su_with_a_login_shell_stays_in_a_users_session_and_ends_with_it() {
    require!(Systemd, Cc);
    let guest = Guest::up(&GuestOptions::new().second_user()).expect("a guest");
    let without_password = "sed -i '1i auth sufficient pam_permit.so' /etc/pam.d/su";
    inside(&guest, AS_ROOT, &["sh", "-c", without_password]).expect(0);
    let program = "su -l lab -c 'exec sleep 4714' & su -l other -c 'exec sleep 4715' & sleep 1000";
    let start = ["start", "--session", "su", "--", "sh", "-c", program];
    cgleaf(&guest, AS_USER, &start).expect(0);
    let sleepers = || inside(&guest, AS_ROOT, &["pgrep", "-x", "-f", "sleep 471[45]"]).stdout;
    wait_until("both of them", || sleepers().lines().count() == 2);
    for pid in sleepers().lines() {
        let place = inside(&guest, AS_ROOT, &["cat", &format!("/proc/{pid}/cgroup")]).stdout;
        assert!(place.contains("cgleaf-su.leaf"), "{pid}: {place}");
    }
    cgleaf(&guest, AS_USER, &["destroy", "su"]).expect(0);
    assert_eq!(sleepers(), "", "all of it has ended");
}

#[test]
fn a_scope_of_its_own_is_a_stray_of_a_users_session() {
    let Some(guest) = Guest::shared() else { return };
    let program = "systemd-run --user --scope --quiet sleep 4712 & sleep 1000";
    is_named_and_can_be_ended(guest, AS_USER, "scope", program, "4712");
}

#[test]
fn a_service_that_only_inherited_the_mark_is_named_and_not_killed() {
    let Some(guest) = Guest::shared() else { return };
    // What imports the environment hands the mark to every service that starts later.
    let program = "systemctl --user import-environment CGLEAF_MARK; \
        systemd-run --user --quiet --unit=innocent sleep 4713; sleep 1000";
    let pid = started(guest, AS_USER, "mark", program, "4713");
    let answer = cgleaf(
        guest,
        AS_USER,
        &["--json", "destroy", "--strays", "kill", "mark"],
    );
    answer.expect(5);
    assert!(named(&answer).contains(&pid), "{answer:?}");
    let strays = answer.json()["error"]["details"]["strays"].clone();
    let of_it = strays
        .as_array()
        .unwrap()
        .iter()
        .find(|stray| stray["pid"] == pid)
        .unwrap();
    assert_eq!(
        (&of_it["tie"], &of_it["killed"]),
        (&"mark".into(), &false.into())
    );
    assert!(lives(guest, pid));
    inside(
        guest,
        AS_USER,
        &["systemctl", "--user", "unset-environment", "CGLEAF_MARK"],
    )
    .expect(0);
    inside(guest, AS_USER, &["systemctl", "--user", "stop", "innocent"]).expect(0);
    cgleaf(guest, AS_USER, &["destroy", "mark"]).expect(0);
}

#[test]
fn doctor_knows_a_real_systemd() {
    let Some(guest) = Guest::shared() else { return };
    for way in [AS_USER, AS_ROOT] {
        let answer = cgleaf(guest, way, &["--json", "doctor"]);
        answer.expect(0);
        let result = answer.json()["result"].clone();
        assert_eq!(result["helper"]["mode"], "scope");
        let checks = result["checks"].as_array().unwrap();
        let detail = |name: &str| {
            let check = checks.iter().find(|check| check["name"] == name);
            check.unwrap_or_else(|| panic!("no {name}"))["detail"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        assert!(detail("init").contains("PID 1 is systemd"));
        assert!(
            detail("systemd").starts_with("systemd "),
            "{}",
            detail("systemd")
        );
        assert!(detail("lingering").contains("survive"));
    }
}
