//! The units say what the design wants of them, and systemd has nothing to say about them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cgleaf_tests::packaging::{folder, have};
use tempfile::TempDir;

type Settings = BTreeMap<String, Vec<String>>;

/// A unit's settings, by name, with all their values.
fn settings(unit: &str) -> Settings {
    let path = folder().join("systemd").join(unit);
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut settings = Settings::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some((name, value)) = line.split_once('=') {
            settings
                .entry(name.to_owned())
                .or_default()
                .push(value.to_owned());
        }
    }
    settings
}

const SERVICES: [&str; 3] = [
    "user/cgleaf-helper.service",
    "system/cgleaf-helper@.service",
    "system/cgleaf-helper-node.service",
];
/// Those in whose cgroup the leaves lie.
const WITH_LEAVES: [&str; 2] = [
    "user/cgleaf-helper.service",
    "system/cgleaf-helper@.service",
];

#[test]
fn nothing_hides_from_the_helper_what_it_decides_by() {
    for unit in SERVICES {
        let settings = settings(unit);
        for name in [
            "ProtectControlGroups",
            "PrivateUsers",
            "PrivatePIDs",
            "ProtectProc",
            "ProcSubset",
            "PIDNamespacePath",
        ] {
            assert!(!settings.contains_key(name), "{unit} has {name}=");
        }
    }
}

#[test]
fn nothing_that_works_by_cgroup_is_laid_on_the_sessions() {
    for unit in WITH_LEAVES {
        for (name, values) in settings(unit) {
            let by_cgroup = [
                "Device",
                "IPAddress",
                "IPIngress",
                "IPEgress",
                "Memory",
                "CPU",
                "IO",
                "BPFProgram",
                "SocketBind",
            ]
            .iter()
            .any(|prefix| name.starts_with(prefix))
                || [
                    "PrivateDevices",
                    "ProtectClock",
                    "RestrictFileSystems",
                    "RestrictNetworkInterfaces",
                    "NFTSet",
                ]
                .contains(&name.as_str());
            let of_the_process =
                ["MemoryDenyWriteExecute", "IOSchedulingClass"].contains(&name.as_str());
            assert!(!by_cgroup || of_the_process, "{unit} has {name}={values:?}");
        }
    }
}

#[test]
fn a_helpers_end_is_no_sessions_end() {
    for unit in WITH_LEAVES {
        let settings = settings(unit);
        for (name, value) in [
            ("Type", "notify"),
            ("Delegate", "yes"),
            ("DelegateSubgroup", "helper"),
            ("KillMode", "process"),
            ("Restart", "on-failure"),
            ("StartLimitIntervalSec", "0"),
            ("TasksMax", "infinity"),
            ("OOMPolicy", "continue"),
        ] {
            assert_eq!(
                settings
                    .get(name)
                    .and_then(|values| values.last())
                    .map(String::as_str),
                Some(value),
                "{unit}: {name}="
            );
        }
    }
}

#[test]
fn sockets_are_where_cgleaf_looks_for_them() {
    for (unit, path, mode) in [
        (
            "user/cgleaf-helper.socket",
            "%t/cgleaf/run/service.sock",
            "0600",
        ),
        (
            "system/cgleaf-helper@.socket",
            "/run/cgleaf/%i/helper.sock",
            "0600",
        ),
        (
            "system/cgleaf-helper-node.socket",
            "/run/cgleaf/node/helper.sock",
            "0666",
        ),
    ] {
        let settings = settings(unit);
        assert_eq!(settings["ListenSequentialPacket"], [path]);
        assert_eq!(settings["SocketMode"], [mode]);
    }
    assert_eq!(
        settings("user/cgleaf-helper.socket")["DirectoryMode"],
        ["0700"]
    );
    assert_eq!(
        settings("system/cgleaf-helper@.socket")["SocketUser"],
        ["%i"]
    );
}

/// The modes and arguments are the helper's own: `cgleaf-helper` takes each ExecStart line.
#[test]
fn the_helper_takes_the_arguments_that_the_units_give_it() {
    for (unit, expected) in [
        ("user/cgleaf-helper.service", "--mode user-service"),
        (
            "system/cgleaf-helper@.service",
            "--mode system-service --uid %i",
        ),
        ("system/cgleaf-helper-node.service", "--mode node-service"),
    ] {
        assert_eq!(
            settings(unit)["ExecStart"],
            [format!("/usr/libexec/cgleaf-helper {expected}")]
        );
    }
}

/// A tree that has the units, a program where they expect one, and systemd's own targets.
fn installed() -> TempDir {
    let scratch = TempDir::new().expect("make a folder");
    let root = scratch.path();
    for (from, to) in [
        ("systemd/system", "usr/lib/systemd/system"),
        ("systemd/user", "usr/lib/systemd/user"),
    ] {
        copy_files(&folder().join(from), &root.join(to));
    }
    let targets = Path::new("/usr/lib/systemd/system");
    for entry in fs::read_dir(targets).expect("systemd's units") {
        let path = entry.expect("read the folder").path();
        if path
            .extension()
            .is_some_and(|extension| extension == "target")
        {
            fs::copy(
                &path,
                root.join("usr/lib/systemd/system")
                    .join(path.file_name().expect("a name")),
            )
            .expect("copy a target");
        }
    }
    fs::create_dir_all(root.join("usr/libexec")).expect("make libexec");
    fs::copy("/bin/true", root.join("usr/libexec/cgleaf-helper")).expect("copy a program");
    scratch
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap_or_else(|error| panic!("make {}: {error}", to.display()));
    for entry in fs::read_dir(from).unwrap_or_else(|error| panic!("{}: {error}", from.display())) {
        let path = entry.expect("read the folder").path();
        fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("copy a unit");
    }
}

#[test]
fn systemd_accepts_the_units() {
    if !have("systemd-analyze") {
        return;
    }
    let tree = installed();
    let user: Vec<PathBuf> = ["cgleaf-helper.service", "cgleaf-helper.socket"]
        .iter()
        .map(|unit| tree.path().join("usr/lib/systemd/user").join(unit))
        .collect();
    for user in user {
        // There is no user manager here; a user's unit that is one for the system too is looked at as such.
        let name = user.file_name().expect("a name");
        fs::copy(&user, tree.path().join("usr/lib/systemd/system").join(name))
            .expect("copy a unit");
    }
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(format!("--root={}", tree.path().display()))
        .args([
            "cgleaf-helper.service",
            "cgleaf-helper.socket",
            "cgleaf-helper@1000.service",
            "cgleaf-helper@1000.socket",
        ])
        .args(["cgleaf-helper-node.service", "cgleaf-helper-node.socket"])
        .output()
        .expect("run systemd-analyze");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // Before 254 it is unknown, which is a warning and no more.
    let said: Vec<&str> = said
        .lines()
        .filter(|line| !line.contains("DelegateSubgroup") && !line.is_empty())
        .collect();
    assert!(output.status.success() && said.is_empty(), "{said:#?}");
}

/// systemd-analyze's figure, times ten, with what it still has against the unit.
fn exposure(unit: &str) -> (u32, String) {
    let output = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager"])
        .arg(folder().join("systemd").join(unit))
        .env("LC_ALL", "C")
        .output()
        .expect("run systemd-analyze");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let figure = text
        .lines()
        .find(|line| line.contains("Overall exposure level"))
        .and_then(|line| line.split(": ").nth(1))
        .and_then(|rest| rest.split(' ').next())
        .and_then(|figure| figure.replace('.', "").parse().ok())
        .unwrap_or_else(|| {
            panic!(
                "no figure in {text}{}",
                String::from_utf8_lossy(&output.stderr)
            )
        });
    (figure, text)
}

#[test]
fn the_root_services_are_exposed_as_little_as_their_task_allows() {
    if !have("systemd-analyze") {
        return;
    }
    for unit in [
        "system/cgleaf-helper@.service",
        "system/cgleaf-helper-node.service",
    ] {
        let (figure, text) = exposure(unit);
        println!("{unit}: {}.{}", figure / 10, figure % 10);
        assert!(figure <= 20, "{unit}: {text}");
    }
}
