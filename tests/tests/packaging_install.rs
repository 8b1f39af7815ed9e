//! The Debian packages, installed on systems that never saw cgleaf: what starts, what goes on, what stays.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use cgleaf_tests::lab::{Guest, GuestOptions, User, script, static_programs_dir};
use cgleaf_tests::packaging::{folder, have};
use cgleaf_tests::require;
use cgleaf_tests::scratch::{skip, wait_until};

const SESSIONS: usize = 50;

/// The packages in two revisions, built of static programs, as a release is but for the optimisation.
fn packages() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<tempfile::TempDir>> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            if !have("dh") {
                return None;
            }
            let programs = static_programs_dir()?;
            let out = tempfile::tempdir().expect("make a folder");
            for revision in ["1", "2"] {
                let built = Command::new(folder().join("build"))
                    .arg("deb")
                    .env("CGLEAF_BINARIES", programs)
                    .env("CGLEAF_REVISION", revision)
                    .env("OUT", out.path())
                    .output()
                    .expect("run packaging/build");
                assert!(
                    built.status.success(),
                    "{}",
                    String::from_utf8_lossy(&built.stderr)
                );
            }
            Some(out)
        })
        .as_ref()
        .map(tempfile::TempDir::path)
}

/// The file of a package in a revision, as the guest sees it.
fn package(name: &str, revision: u32) -> String {
    let start = format!("{name}_");
    let end = format!("-{revision}_");
    let packages = packages().expect("they were built");
    std::fs::read_dir(packages)
        .expect("read the packages' folder")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .find(|file| file.starts_with(&start) && file.contains(&end) && file.ends_with(".deb"))
        .map(|file| format!("/packages/{file}"))
        .unwrap_or_else(|| panic!("no {name} in revision {revision}"))
}

/// A guest with the packages in /packages. `root` is another system's tree.
fn guest(root: Option<PathBuf>) -> Option<Guest> {
    let packages = packages()?;
    let mut options = GuestOptions::new()
        .second_user()
        .bind(packages, "/packages");
    if let Some(root) = root {
        options = options.root(root);
    }
    Some(Guest::up(&options).expect("boot a guest"))
}

/// Debian 13, with systemd 257.
fn trixie() -> Option<PathBuf> {
    let fetched = script("fetch-root")
        .arg("trixie")
        .output()
        .expect("run fetch-root");
    if !fetched.status.success() {
        skip(&format!(
            "no trixie: {}",
            String::from_utf8_lossy(&fetched.stderr)
        ));
        return None;
    }
    Some(String::from_utf8_lossy(&fetched.stdout).trim().into())
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// A command that must succeed; what it printed.
fn done(mut command: Command) -> String {
    let output = command.output().expect("run a command in the guest");
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn install(guest: &Guest, names: &[&str], revision: u32) {
    let files = names.iter().map(|name| package(name, revision));
    // Everything it needs is there: nothing may ask the network.
    done(
        guest.root(
            ["dpkg".to_owned(), "--install".to_owned()]
                .into_iter()
                .chain(files),
        ),
    );
}

fn user_unit(guest: &Guest, property: &str) -> String {
    let words = [
        "systemctl",
        "--user",
        "show",
        "--value",
        "--property",
        property,
        "cgleaf-helper.service",
    ];
    done(guest.user(words)).trim().to_owned()
}

/// The sessions that `list` tells, as (id, state).
fn sessions(guest: &Guest) -> Vec<(String, String)> {
    let text = done(guest.user(["cgleaf", "list", "--json"]));
    let answer: serde_json::Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let sessions = answer["result"]["sessions"]
        .as_array()
        .expect("sessions")
        .clone();
    sessions
        .iter()
        .map(|session| {
            let text = |name: &str| session[name].as_str().unwrap_or_default().to_owned();
            (text("session"), text("state"))
        })
        .collect()
}

fn start_sessions(guest: &Guest) {
    let script = format!(
        "for i in $(seq {SESSIONS}); do cgleaf start --quiet --session s$i -- sleep 3600 || exit; done"
    );
    done(guest.user(["sh", "-c", &script]));
}

fn sleepers(guest: &Guest) -> usize {
    let output = guest
        .enter(["pgrep", "-c", "-f", "^sleep 3600$"])
        .output()
        .expect("pgrep");
    String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .expect("a number")
}

fn assert_all_run(guest: &Guest, when: &str) {
    let sessions = sessions(guest);
    let running = sessions
        .iter()
        .filter(|(_, state)| state == "running")
        .count();
    assert_eq!(running, SESSIONS, "{when}: {sessions:?}");
    assert_eq!(sleepers(guest), SESSIONS, "{when}");
}

fn main_pid(guest: &Guest) -> String {
    wait_until("the helper serves", || {
        user_unit(guest, "SubState") == "running"
    });
    user_unit(guest, "MainPID")
}

/// Everything of cgleaf's that lies in the system's folders.
fn traces(guest: &Guest) -> String {
    done(guest.enter([
        "sh",
        "-c",
        "find /etc /usr /lib /var /run/cgleaf /run/systemd -xdev -name '*cgleaf*' ! -path '*/cgleaf-guest*' 2>/dev/null || true",
    ]))
}

/// From the first `cgleaf run` to the purge.
fn lives_as_a_service(guest: &Guest) {
    let before = traces(guest);
    install(guest, &["cgleaf-helper", "cgleaf"], 1);
    assert_eq!(
        user_unit(guest, "ActiveState"),
        "inactive",
        "nobody has asked for a helper yet"
    );
    done(guest.user(["cgleaf", "run", "--", "true"]));
    let pid = main_pid(guest);
    assert!(
        user_unit(guest, "StatusText").starts_with("Serving"),
        "{}",
        user_unit(guest, "StatusText")
    );

    start_sessions(guest);
    assert_all_run(guest, "after the start");
    wait_until("the status line has the number", || {
        user_unit(guest, "StatusText").contains(&SESSIONS.to_string())
    });

    done(guest.enter(["kill", "-KILL", &pid]));
    wait_until("systemd starts the helper anew", || main_pid(guest) != pid);
    assert_all_run(guest, "after kill -9 of the helper");
    done(guest.user(["cgleaf", "freeze", "s1"]));
    assert!(sessions(guest).contains(&("s1".to_owned(), "frozen".to_owned())));
    done(guest.user(["cgleaf", "thaw", "s1"]));

    let pid = main_pid(guest);
    install(guest, &["cgleaf-helper", "cgleaf"], 2);
    wait_until("the upgrade starts the helper anew", || {
        main_pid(guest) != pid
    });
    assert_all_run(guest, "after the upgrade");

    // Half of them end now, and the others have to be left alone by the removal.
    let half: Vec<String> = (1..=SESSIONS / 2)
        .map(|number| format!("s{number}"))
        .collect();
    done(
        guest.user(
            ["cgleaf".to_owned(), "destroy".to_owned()]
                .into_iter()
                .chain(half),
        ),
    );
    assert_eq!(sleepers(guest), SESSIONS / 2);

    done(guest.root(["dpkg", "--remove", "cgleaf", "cgleaf-helper"]));
    assert_eq!(
        sleepers(guest),
        SESSIONS / 2,
        "no package's removal ends a session"
    );
    done(guest.root(["dpkg", "--purge", "cgleaf", "cgleaf-helper"]));
    assert_eq!(traces(guest), before, "a purge leaves nothing");
    let units = [
        "systemctl",
        "--user",
        "--all",
        "--no-legend",
        "list-unit-files",
        "cgleaf*",
    ];
    let units = guest.user(units).output().expect("run systemctl");
    assert_eq!(String::from_utf8_lossy(&units.stdout).trim(), "");
}

#[test]
fn a_user_service_lives_from_the_first_run_to_the_purge() {
    require!(Systemd, Cc);
    if let Some(guest) = guest(None) {
        lives_as_a_service(&guest);
    }
}

#[test]
fn a_user_service_lives_from_the_first_run_to_the_purge_on_debian_13() {
    require!(Systemd, Cc, Downloads);
    if let Some(guest) = trixie().and_then(|root| guest(Some(root))) {
        lives_as_a_service(&guest);
    }
}

#[test]
fn sessions_from_before_the_installation_stay_in_reach() {
    require!(Systemd, Cc);
    let Some(guest) = guest(None) else { return };
    // The command alone starts a helper of its own, in a scope.
    install(&guest, &["cgleaf"], 1);
    done(guest.user([
        "cgleaf",
        "start",
        "--session",
        "before",
        "--",
        "sleep",
        "3600",
    ]));
    install(&guest, &["cgleaf-helper"], 1);
    done(guest.user([
        "cgleaf",
        "start",
        "--session",
        "after",
        "--",
        "sleep",
        "3600",
    ]));
    assert_eq!(user_unit(&guest, "ActiveState"), "active");
    let mut found: Vec<String> = sessions(&guest).into_iter().map(|(id, _)| id).collect();
    found.sort();
    assert_eq!(found, ["after", "before"]);
    for session in ["before", "after"] {
        done(guest.user(["cgleaf", "freeze", session]));
        done(guest.user(["cgleaf", "destroy", session]));
    }
    assert_eq!(sleepers(&guest), 0);
}

#[test]
fn root_serves_one_user_where_an_administrator_says_so() {
    require!(Systemd, Cc);
    let Some(guest) = guest(None) else { return };
    install(&guest, &["cgleaf-helper", "cgleaf"], 1);
    done(guest.root(["systemctl", "enable", "--now", "cgleaf-helper@1000.socket"]));
    let place = done(guest.user([
        "cgleaf",
        "run",
        "--",
        "sh",
        "-c",
        "grep ^0:: /proc/self/cgroup",
    ]));
    assert!(
        place.contains("/user-1000.slice/cgleaf-helper@1000.service/"),
        "{place}"
    );
    let status = done(guest.root([
        "sh",
        "-c",
        "grep -E '^(Cap(Prm|Eff|Bnd)|NoNewPrivs|Seccomp|Uid):' /proc/$(systemctl show -P MainPID cgleaf-helper@1000.service)/status",
    ]));
    for line in [
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        "Uid:\t0",
    ] {
        assert!(status.contains(line), "{line:?} is not in {status}");
    }

    // Another user is kept out by the socket's mode, and has his own helper meanwhile.
    let refused = guest
        .as_user(
            User::Other,
            [
                "cgleaf",
                "--socket",
                "/run/cgleaf/1000/helper.sock",
                "run",
                "--",
                "true",
            ],
        )
        .output()
        .expect("run cgleaf");
    assert_eq!(refused.status.code(), Some(125));
    assert!(
        said(&refused).contains("Permission denied"),
        "{}",
        said(&refused)
    );
    let place = done(guest.as_user(
        User::Other,
        [
            "cgleaf",
            "run",
            "--",
            "sh",
            "-c",
            "grep ^0:: /proc/self/cgroup",
        ],
    ));
    assert!(
        place.contains("/user-1001.slice/user@1001.service/"),
        "{place}"
    );

    // With the package goes what the administrator enabled.
    done(guest.root(["dpkg", "--purge", "cgleaf-helper", "cgleaf"]));
    let left = done(guest.root([
        "sh",
        "-c",
        "ls -d /etc/systemd/system/*.wants/*cgleaf* /run/cgleaf 2>/dev/null || true",
    ]));
    assert_eq!(left.trim(), "");
}

#[test]
fn lintian_has_nothing_to_say() {
    require!(Cc);
    if !have("lintian") {
        return;
    }
    let Some(folder) = packages() else { return };
    let debs = ["cgleaf", "cgleaf-helper"]
        .map(|name| folder.join(Path::new(&package(name, 1)).file_name().expect("a name")));
    let lintian = Command::new("lintian")
        .args([
            "--fail-on",
            "error,warning",
            "--tag-display-limit",
            "0",
            "--allow-root",
        ])
        .args(&debs)
        .output()
        .expect("run lintian");
    assert!(
        lintian.status.success() && lintian.stdout.is_empty(),
        "{}",
        said(&lintian)
    );
}
