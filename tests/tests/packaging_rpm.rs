//! The RPM packages. There is no system of that kind in the lab, so rpm(8) itself installs them, on Debian, into a guest that is
//! thrown away: its database, scriptlets and file lists are what is tried, not that system's own policies.

use std::path::Path;
use std::process::Command;

use cgleaf_tests::frontend::{Answer, finish};
use cgleaf_tests::lab::{Guest, GuestOptions, static_programs_dir};
use cgleaf_tests::packaging::{folder, have};
use cgleaf_tests::require;
use cgleaf_tests::scratch::wait_until;

/// A command that may take as long as it does, and must succeed.
fn done(mut command: Command) {
    let output = command.output().expect("start a command");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn build(out: &Path, programs: &Path, revision: &str) {
    let mut command = Command::new(folder().join("build"));
    command
        .arg("rpm")
        .env("CGLEAF_BINARIES", programs)
        .env("CGLEAF_REVISION", revision)
        .env("OUT", out);
    done(command);
}

fn root(guest: &Guest, script: &str) -> Answer {
    finish(guest.root(["sh", "-c", script]))
}

fn user(guest: &Guest, script: &str) -> Answer {
    finish(guest.user(["sh", "-c", script]))
}

/// rpm on a system whose own packages are not its: their names mean nothing to it.
fn rpm(guest: &Guest, words: &str) {
    let script = format!("cd /packages && rpm --force-debian --nodeps {words}");
    done(guest.root(["sh", "-c", &script]));
}

fn helpers_pid(guest: &Guest) -> String {
    let show = "systemctl --user show --value --property MainPID cgleaf-helper.service";
    user(guest, show).expect(0).to_owned()
}

const TRACES: &str = "find /etc /usr /lib /var /run/cgleaf /run/systemd -xdev -name '*cgleaf*' \
     ! -path '*/cgleaf-guest*' 2>/dev/null || true";

#[test]
fn they_are_installed_upgraded_and_erased_and_end_no_session() {
    require!(Systemd, Cc);
    if !have("rpmbuild") {
        return;
    }
    let Some(programs) = static_programs_dir() else {
        return;
    };
    let out = tempfile::tempdir().expect("make a folder");
    for revision in ["1", "2"] {
        build(out.path(), programs, revision);
    }
    let options = GuestOptions::new().bind(out.path(), "/packages");
    let guest = Guest::up(&options).expect("boot a guest");
    let before = root(&guest, TRACES).expect(0).to_owned();

    rpm(
        &guest,
        "--install cgleaf-0*-1.*.rpm cgleaf-helper-0*-1.*.rpm",
    );
    rpm(&guest, "--verify cgleaf cgleaf-helper");
    // On this system presets enable what is installed.
    user(&guest, "cgleaf start --session s -- sleep 3600").expect(0);
    let first = helpers_pid(&guest);
    assert_ne!(first, "0", "the user's service has the session");

    rpm(
        &guest,
        "--upgrade cgleaf-0*-2.*.rpm cgleaf-helper-0*-2.*.rpm",
    );
    wait_until("the upgrade starts the helper anew", || {
        let pid = helpers_pid(&guest);
        pid != first && pid != "0"
    });
    let list = user(&guest, "cgleaf --json list");
    list.expect(0);
    let sessions = list.json()["result"]["sessions"].clone();
    assert_eq!(sessions[0]["session"], "s", "{sessions}");
    assert_eq!(sessions[0]["state"], "running", "{sessions}");

    let lives = "pgrep -c -f '^sleep 3600$'";
    rpm(&guest, "--erase cgleaf cgleaf-helper");
    assert_eq!(
        root(&guest, lives).expect(0),
        "1",
        "an erase ends no session"
    );
    assert_eq!(root(&guest, TRACES).expect(0), before, "nothing is left");
}
