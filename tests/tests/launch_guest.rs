//! Starting programs under a real systemd: as a user, from a login session's scope, and as root.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use cgleaf_tests::frontend::{Answer, finish};
use cgleaf_tests::lab::{Guest, GuestOptions, User};
use cgleaf_tests::require;
use serde_json::Value;

const CGLEAF: &str = "/cgleaf/cgleaf";

/// An id that no other test uses.
fn id(what: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{what}{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A way into the guest.
type Way = fn(&Guest, Vec<String>) -> Command;
const AS_USER: Way = |guest, words| guest.user(words);
const FROM_LOGIN: Way = |guest, words| guest.session(words);
const AS_ROOT: Way = |guest, words| guest.root(words);

fn cgleaf(guest: &Guest, way: Way, words: &[&str]) -> Answer {
    let words = std::iter::once(CGLEAF).chain(words.iter().copied());
    finish(way(guest, words.map(str::to_owned).collect()))
}

/// The helper's scope, by what the session's place is.
fn scope_of(place: &str) -> String {
    let place = place.trim().trim_start_matches("0::");
    place
        .rsplit_once("/cgleaf-")
        .map_or("", |(scope, _)| scope)
        .to_owned()
}

#[test]
fn leaves_lie_in_the_scope_of_one_helper() {
    let Some(guest) = Guest::shared() else { return };
    for (way, above, scope) in [
        (
            AS_USER,
            "/user.slice/user-1000.slice/user@1000.service/app.slice/cgleaf-helper-",
            ".scope",
        ),
        (
            FROM_LOGIN,
            "/user.slice/user-1000.slice/user@1000.service/app.slice/cgleaf-helper-",
            ".scope",
        ),
        (AS_ROOT, "/system.slice/cgleaf-helper-", ".scope"),
    ] {
        let mut scopes = Vec::new();
        for command in ["run", "exec"] {
            let session = id("place");
            let answer = cgleaf(
                guest,
                way,
                &[
                    command,
                    "--session",
                    &session,
                    "--",
                    "grep",
                    "0::",
                    "/proc/self/cgroup",
                ],
            );
            let place = answer.expect(0);
            // There a command is a unit's main process: exec takes it out of its unit, and says so.
            let leaves = command == "exec" && !std::ptr::fn_addr_eq(way, FROM_LOGIN);
            let told = answer.stderr.contains("leaves run-");
            assert_eq!(
                (told, answer.stderr.is_empty()),
                (leaves, !leaves),
                "{answer:?}"
            );
            let found = scope_of(place);
            assert!(
                found.starts_with(above) && found.ends_with(scope),
                "{command}: {place}"
            );
            assert!(
                place.ends_with(&format!("/cgleaf-{session}.leaf")),
                "{command}: {place}"
            );
            scopes.push(found);
        }
        let session = id("started");
        cgleaf(
            guest,
            way,
            &["start", "--session", &session, "--", "sleep", "1000"],
        )
        .expect(0);
        let shown = cgleaf(guest, way, &["--json", "show", &session]).json();
        let path = shown["result"]["leaf"]["path"].as_str().unwrap_or_default();
        scopes.push(scope_of(path));
        scopes.dedup();
        assert_eq!(
            scopes.len(),
            1,
            "a second cgleaf finds the same helper: {scopes:?}"
        );
        cgleaf(guest, way, &["destroy", &session]).expect(0);
    }
}

#[test]
fn statuses_and_leftovers_are_the_same_under_systemd() {
    let Some(guest) = Guest::shared() else { return };
    for way in [AS_USER, FROM_LOGIN, AS_ROOT] {
        for command in ["run", "exec"] {
            cgleaf(guest, way, &[command, "--", "sh", "-c", "exit 7"]).expect(7);
            cgleaf(guest, way, &[command, "--", "/no/such"]).expect(127);
            cgleaf(guest, way, &[command, "--", "/etc/passwd"]).expect(126);
        }
        cgleaf(guest, way, &["run", "--", "sh", "-c", "kill -TERM $$"]).expect(143);
        let answer = cgleaf(
            guest,
            way,
            &[
                "run",
                "--",
                "sh",
                "-c",
                "setsid sleep 1000 & sleep .2; echo ok",
            ],
        );
        assert_eq!(answer.expect(0), "ok");
        assert!(answer.stderr.contains("outlived"), "{answer:?}");
    }
}

/// The user's helper is not made of a login session: it stays in the user's manager, with a clean context.
#[test]
fn the_helper_is_the_managers_and_the_caller_leaves_no_trace_in_it() {
    require!(Systemd, Cc);
    let guest = Guest::up(&GuestOptions::new()).expect("a guest");
    let script = "cd /usr; umask 000; ulimit -S -n 64; trap '' HUP INT; export LD_LIBRARY_PATH=/odd ODD=1
        out=$(/cgleaf/cgleaf run -- echo hi); echo $out
        pid=$(/cgleaf/cgleaf --json helper status | grep -o '\"pid\":[0-9]*' | head -1 | cut -d: -f2)
        readlink /proc/$pid/cwd || echo hidden; grep -E '^(Umask|PPid)' /proc/$pid/status; cat /proc/$pid/cgroup
        echo parent $(cat /proc/$(sed -n 's/^PPid:.//p' /proc/$pid/status)/comm)";
    let words = ["bash", "-c", script].map(str::to_owned).to_vec();
    let answer = finish(FROM_LOGIN(&guest, words));
    let text = answer.expect(0);
    assert!(text.starts_with("hi\n"), "{text}");
    assert!(text.contains("Umask:\t0022"), "{text}");
    assert!(text.contains("/helper"), "{text}");
    assert!(text.contains("parent systemd"), "{text}");
    let pid = text
        .lines()
        .find(|line| line.contains("/helper"))
        .expect("its cgroup");
    assert!(pid.contains("user@1000.service"), "{pid}");
    let environment = "for p in $(cat /sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/cgleaf-helper-*.scope/helper/cgroup.procs); do \
        tr '\\0' '\\n' </proc/$p/environ | cut -d= -f1 | sort | tr '\\n' ' '; readlink /proc/$p/cwd; done";
    let answer = finish(AS_ROOT(
        &guest,
        ["bash", "-c", environment].map(str::to_owned).to_vec(),
    ));
    let seen = answer.expect(0);
    assert!(
        !seen.contains("ODD") && !seen.contains("LD_LIBRARY_PATH"),
        "{seen}"
    );
    assert!(seen.ends_with('/'), "{seen}");
}

/// Rule 1: whoever is in a session is put beneath it, by the helper that made it, whatever other helper it finds.
#[test]
fn a_caller_inside_a_session_stays_inside() {
    let Some(guest) = Guest::shared() else { return };
    let nested = "/cgleaf/cgleaf exec -- grep 0:: /proc/self/cgroup; /cgleaf/cgleaf run -- grep 0:: /proc/self/cgroup";
    for way in [AS_USER, FROM_LOGIN, AS_ROOT] {
        let session = id("around");
        let answer = cgleaf(
            guest,
            way,
            &["run", "--session", &session, "--", "bash", "-c", nested],
        );
        let places: Vec<&str> = answer.expect(0).lines().collect();
        assert_eq!(places.len(), 2, "{answer:?}");
        for place in places {
            assert!(
                place.contains(&format!("/cgleaf-{session}.leaf/cgleaf-")),
                "{place}"
            );
        }
    }
}

/// From inside another helper's leaf: root's helper has the session, and the caller finds the user's own first.
#[test]
fn a_caller_inside_another_helpers_session_asks_that_one() {
    let Some(guest) = Guest::shared() else { return };
    // Another user modes' helper of the same user, in a runtime directory of its own.
    let script = "mkdir -p -m 700 /tmp/other-$$ && cd /tmp/other-$$ && ln -s $XDG_RUNTIME_DIR/systemd systemd && ln -s $XDG_RUNTIME_DIR/bus bus
        XDG_RUNTIME_DIR=/tmp/other-$$ /cgleaf/cgleaf run -- bash -c \
        'grep 0:: /proc/self/cgroup; XDG_RUNTIME_DIR=/run/user/1000 /cgleaf/cgleaf exec -- grep 0:: /proc/self/cgroup'";
    cgleaf(guest, AS_USER, &["run", "--", "true"]).expect(0);
    let answer = finish(AS_USER(
        guest,
        ["bash", "-c", script].map(str::to_owned).to_vec(),
    ));
    let places: Vec<&str> = answer.expect(0).lines().collect();
    assert_eq!(places.len(), 2, "{answer:?}");
    assert!(
        places[1].starts_with(&format!("{}/", places[0])),
        "{places:?}"
    );
}

/// The status line comes once, after the way through a scope of its own, and the program has the same pid and nothing of
/// the way in its environment.
#[test]
fn exec_from_a_login_session_keeps_pid_status_and_environment() {
    let Some(guest) = Guest::shared() else { return };
    let script = "echo $$; exec 9>/tmp/status-$$; echo /tmp/status-$$ >&2
        exec /cgleaf/cgleaf exec --status-fd 9 --name way -- bash -c 'echo $$; env | grep -c CGLEAF_IN_SCOPE; ls /proc/$$/fd | tr \"\\n\" \" \"'";
    let answer = finish(FROM_LOGIN(
        guest,
        ["bash", "-c", script].map(str::to_owned).to_vec(),
    ));
    let lines: Vec<&str> = answer.expect(0).lines().collect();
    assert_eq!(lines[0], lines[1], "the same pid");
    assert_eq!(lines[2], "0", "{lines:?}");
    assert!(!lines[3].contains('9'), "{lines:?}");
    let status = finish(FROM_LOGIN(
        guest,
        ["cat", answer.stderr.trim()].map(str::to_owned).to_vec(),
    ));
    let told: Value = serde_json::from_str(status.expect(0)).expect("one line of JSON");
    assert_eq!(told["ok"], true, "{told}");
    assert_eq!(told["result"]["leader"]["pid"].to_string(), lines[0]);
    assert_eq!(told["result"]["name"], "way");
}

#[test]
fn who_does_not_linger_is_told() {
    require!(Systemd, Cc);
    let guest = Guest::up(&GuestOptions::new().no_linger()).expect("a guest");
    let script = "/cgleaf/cgleaf --json start --session a -- sleep 1000; /cgleaf/cgleaf start --session b -- sleep 1000; /cgleaf/cgleaf destroy a b";
    let answer = finish(FROM_LOGIN(
        &guest,
        ["bash", "-c", script].map(str::to_owned).to_vec(),
    ));
    assert!(
        answer.expect(0).contains("\"survives_logout\":false"),
        "{answer:?}"
    );
    assert!(answer.stderr.contains("enable-linger"), "{answer:?}");
    let lingering = Guest::shared().expect("a guest");
    let session = id("linger");
    let answer = cgleaf(
        lingering,
        AS_USER,
        &[
            "--json",
            "start",
            "--session",
            &session,
            "--",
            "sleep",
            "1000",
        ],
    );
    assert_eq!(
        answer.json()["result"]["survives_logout"],
        true,
        "{answer:?}"
    );
    cgleaf(lingering, AS_USER, &["destroy", &session]).expect(0);
}

/// Two users have two helpers, and neither sees the other's sessions.
#[test]
fn each_user_has_a_helper() {
    let Some(guest) = Guest::shared() else { return };
    let session = id("mine");
    cgleaf(
        guest,
        AS_USER,
        &["start", "--session", &session, "--", "sleep", "1000"],
    )
    .expect(0);
    let other = |words: &[&str]| {
        let words: Vec<String> = std::iter::once(CGLEAF)
            .chain(words.iter().copied())
            .map(str::to_owned)
            .collect();
        finish(guest.as_user(User::Other, words))
    };
    let place = other(&["run", "--", "grep", "0::", "/proc/self/cgroup"]);
    assert!(place.expect(0).contains("user@1001.service"), "{place:?}");
    assert!(!other(&["list"]).expect(0).contains(&session));
    other(&["destroy", &session]).expect(3);
    cgleaf(guest, AS_USER, &["destroy", &session]).expect(0);
}

#[test]
fn systemd_shows_one_scope() {
    require!(Systemd, Cc);
    let guest = Guest::up(&GuestOptions::new()).expect("a guest");
    cgleaf(
        &guest,
        AS_USER,
        &["start", "--session", "a", "--", "sleep", "1000"],
    )
    .expect(0);
    cgleaf(
        &guest,
        FROM_LOGIN,
        &["start", "--session", "b", "--", "sleep", "1000"],
    )
    .expect(0);
    let words = [
        "systemctl",
        "--user",
        "list-units",
        "--plain",
        "--no-legend",
        "cgleaf-helper-*",
    ];
    let listed = finish(AS_USER(&guest, words.map(str::to_owned).to_vec()));
    assert_eq!(listed.expect(0).lines().count(), 1, "{listed:?}");
    cgleaf(&guest, AS_USER, &["destroy", "a", "b"]).expect(0);
}

/// The way through a scope of its own adds variables that the manager's tools need; the program does not see them.
#[test]
fn a_programs_environment_is_the_callers_from_a_login_too() {
    let Some(guest) = Guest::shared() else { return };
    let names = "env | cut -d= -f1 | grep -vxE '_|SHLVL|CGLEAF_SESSION|CGLEAF_MARK' | sort";
    let script = format!(
        "for drop in '' '-u XDG_RUNTIME_DIR'; do for with in '' '/cgleaf/cgleaf run --' '/cgleaf/cgleaf exec --'; do \
         env $drop $with bash -c \"{names}\" | tr '\\n' ' '; echo; done; done"
    );
    let answer = finish(FROM_LOGIN(
        guest,
        ["bash", "-c", &script].map(str::to_owned).to_vec(),
    ));
    let lines: Vec<&str> = answer.expect(0).lines().map(str::trim).collect();
    let [with, run, exec, without, run_without, exec_without] = lines[..] else {
        panic!("{answer:?}");
    };
    assert!(with.contains("XDG_RUNTIME_DIR"), "{answer:?}");
    assert!(!without.contains("XDG_RUNTIME_DIR"), "{answer:?}");
    assert_eq!((run, exec), (with, with));
    assert_eq!((run_without, exec_without), (without, without));
}
