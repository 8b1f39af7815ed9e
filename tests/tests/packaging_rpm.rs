//! The RPM packages. There is no system of that kind in the lab, so its own installer, dnf(8), installs them on Debian, into a
//! guest that is thrown away: dependencies, database, scriptlets and file lists are what is tried, not that system's own policies.

use std::fs;
use std::path::Path;
use std::process::Command;

use cgleaf_tests::lab::{GuestOptions, script};
use cgleaf_tests::packaging::{Installed, build, done, fetched, folder, have, packages, said};
use cgleaf_tests::require;
use cgleaf_tests::scratch::wait_until;

/// What the packages need of a system, which Debian's own packages cannot tell rpm.
const SYSTEM: &str = "
Name: system-shell
Version: 1
Release: 1
Summary: Stands for what a system of that kind has
License: MIT
BuildArch: noarch
Provides: /bin/sh
%description
It has no files.
%files
";

fn build_system(out: &Path) {
    let top = tempfile::tempdir().expect("make a folder");
    let spec = top.path().join("system.spec");
    fs::write(&spec, SYSTEM).expect("write the spec file");
    let mut rpmbuild = Command::new("rpmbuild");
    rpmbuild
        .args(["-bb", "--define"])
        .arg(format!("_topdir {}", top.path().display()))
        .arg(format!("--define=_rpmdir {}", out.display()))
        .arg("--define=_rpmfilename %{NAME}.rpm")
        .arg(&spec);
    done(rpmbuild);
}

/// dnf as somebody at a terminal would say it, but that nobody is there to be asked, and that there is no network.
fn dnf(system: &Installed, words: &str) -> String {
    system.root(&format!(
        "cd /packages && dnf --assumeyes --disablerepo='*' --releasever=1 {words}"
    ))
}

fn assert_alive(system: &Installed, when: &str) {
    assert_eq!(
        system.sessions(),
        [("s".to_owned(), "running".to_owned())],
        "{when}"
    );
    assert_eq!(system.running("sleep 3600"), 1, "{when}");
}

#[test]
fn they_are_installed_upgraded_and_removed_and_end_no_session() {
    require!(Systemd, Cc, Downloads);
    if !have("rpmbuild") {
        return;
    }
    let Some(out) = packages("rpm") else { return };
    build_system(&out);
    let Some(programs) = fetched("fetch-debs", &["dnf", "dnf"]) else {
        return;
    };
    let options = GuestOptions::new()
        .bind(out, "/packages")
        .bind(programs, "/dnf");
    let system = Installed::up(&options);
    system.root("cp -a /dnf/usr/. /usr/ && cp -a /dnf/etc/. /etc/ && ldconfig");
    lives_as_a_service(&system);
}

fn lives_as_a_service(system: &Installed) {
    let both = "./cgleaf-0*-1.*.rpm ./cgleaf-helper-0*-1.*.rpm";
    let before = system.traces();
    let missing = system
        .guest()
        .root([
            "sh",
            "-c",
            &format!("cd /packages && dnf -y --disablerepo='*' --releasever=1 install {both}"),
        ])
        .output()
        .expect("run dnf");
    assert!(
        said(&missing).contains("nothing provides /bin/sh needed by cgleaf-helper"),
        "what they need is asked for: {}",
        said(&missing)
    );
    dnf(system, &format!("install ./system-shell.rpm {both}"));
    system.root("rpm --verify cgleaf cgleaf-helper");
    // A page by another name is a link, which has to lead somewhere.
    system.root("zcat /usr/share/man/man8/cgleaf-helper@.socket.8.gz | grep -q cgleaf");
    // On this system presets enable what is installed.
    system.user("cgleaf start --session s -- sleep 3600");
    let first = system.helpers_pid();
    assert_ne!(first, "0", "the user's service has the session");

    let upgraded = dnf(
        system,
        "upgrade ./cgleaf-0*-2.*.rpm ./cgleaf-helper-0*-2.*.rpm",
    );
    assert!(upgraded.contains("Upgrade  2 Packages"), "{upgraded}");
    wait_until("the upgrade starts the helper anew", || {
        system.helpers_pid() != first
    });
    assert_alive(system, "after the upgrade");
    system.user("cgleaf freeze s && cgleaf thaw s");

    dnf(system, "remove cgleaf cgleaf-helper");
    assert_eq!(system.running("sleep 3600"), 1, "no removal ends a session");
    assert_eq!(
        without_dnfs_own(&system.traces()),
        before,
        "nothing is left"
    );
}

/// dnf keeps a journal and copies of what it installed from; the files in it are named after packages.
fn without_dnfs_own(traces: &str) -> String {
    traces
        .lines()
        .filter(|line| !line.starts_with("/var/cache/dnf/"))
        .map(|line| format!("{line}\n"))
        .collect()
}

#[test]
fn rpmlint_has_nothing_to_say() {
    require!(Downloads);
    if !have("rpmbuild") {
        return;
    }
    let out = tempfile::tempdir().expect("make a folder");
    if !build("rpm", "1", out.path()) {
        return;
    }
    let Some(tree) = fetched("fetch-debs", &["rpmlint", "rpmlint"]) else {
        return;
    };
    let packages = fs::read_dir(out.path())
        .expect("read the packages' folder")
        .map(|entry| entry.expect("an entry").path());
    let output = script("with-debs")
        .args(["rpmlint", "/usr/bin/python3"])
        .arg(tree.join("usr/bin/rpmlint"))
        .arg("--config")
        .arg(folder().join("rpm/rpmlint.toml"))
        .args(packages)
        .env("PYTHONPATH", tree.join("usr/lib/python3/dist-packages"))
        .output()
        .expect("run rpmlint");
    let words = said(&output);
    assert!(output.status.success(), "{words}");
    assert!(
        words.contains("2 packages and 0 specfiles checked; 0 errors, 0 warnings"),
        "{words}"
    );
}
