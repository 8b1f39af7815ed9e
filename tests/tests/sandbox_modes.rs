//! The lock-down of the real helper, in the modes that it is started in, as the kernel tells it and as the helper itself does.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use cgleaf_shared::wire::Welcome;
use cgleaf_tests::frontend::finish;
use cgleaf_tests::helper::{Lair, Unit};
use cgleaf_tests::lab::{Guest, GuestOptions};
use cgleaf_tests::packaging::folder;
use cgleaf_tests::require;
use cgleaf_tests::scratch::Scratch;

/// The security lines of a `status` file.
fn status(text: &str) -> BTreeMap<&str, &str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name, value.trim()))
        .collect()
}

fn assert_locked(text: &str, root: bool) {
    let status = status(text);
    let none = "0000000000000000";
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(status[set], none, "{set}");
    }
    if root {
        assert_eq!(status["CapBnd"], none);
    }
    assert_eq!(
        (status["NoNewPrivs"], status["Seccomp"], status["Threads"]),
        ("1", "2", "1")
    );
}

fn status_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/status")).expect("read the helper's status")
}

/// Everything is enforced, but that a user cannot empty the bounding set.
fn assert_said(welcome: &Welcome, root: bool) {
    let missing: Vec<_> = welcome
        .enforced
        .iter()
        .filter(|item| !item.enforced)
        .map(|item| item.part.as_str())
        .collect();
    let expected: &[&str] = if root { &[] } else { &["bounding_set"] };
    assert_eq!(missing, expected, "{:?}", welcome.enforced);
}

#[test]
fn in_direct_mode() {
    for uid in [0, 1000] {
        let Some(lair) = Lair::new(uid) else { return };
        assert_locked(&status_of(lair.pid()), uid == 0);
        assert_said(lair.client().welcome.as_ref().expect("a welcome"), uid == 0);
    }
}

/// The root modes, as a unit starts them: with a socket of the service manager's.
struct Service {
    unit: Option<Unit>,
    directory: PathBuf,
    _scratch: Scratch,
}

impl Service {
    fn start(name: &str, arguments: &[&str]) -> Option<Self> {
        let scratch = Scratch::new(0)?;
        let slice = scratch
            .child("user-1000.slice", 0)
            .join("cgleaf-helper.service");
        fs::create_dir(&slice).expect("make the unit's cgroup");
        let directory = std::env::temp_dir().join(format!(
            "cgleaf-modes{}-{name}",
            cgleaf_tests::scratch::tag()
        ));
        fs::create_dir(&directory).expect("make a directory");
        let unit = Unit::start(&slice, &directory.join("helper.sock"), 0, arguments, None);
        Some(Self {
            unit: Some(unit),
            directory,
            _scratch: scratch,
        })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.unit = None;
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn in_the_root_modes() {
    for (name, arguments) in [
        ("system", &["--mode", "system-service", "--uid", "1000"][..]),
        ("node", &["--mode", "node-service"]),
    ] {
        let Some(service) = Service::start(name, arguments) else {
            return;
        };
        let unit = service.unit.as_ref().expect("it runs");
        let client = unit.client();
        assert_locked(&status_of(unit.child.id()), true);
        assert_said(client.welcome.as_ref().expect("a welcome"), true);
    }
}

/// Runs a program, and shows what the kernel says of the helper that kept it, after the mode that this tells.
const STATUS: &str = "/cgleaf/cgleaf run --quiet -- true && said=$(/cgleaf/cgleaf helper status --json) && \
     echo \"$said\" | grep -o '\"mode\":\"[a-z-]*\"' && cat /proc/$(echo \"$said\" | sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/')/status";

/// Under a real systemd, where the helper is in a transient scope: the user's and root's.
#[test]
fn in_a_scope_of_systemds() {
    let Some(guest) = Guest::shared() else { return };
    for root in [false, true] {
        let words = ["sh", "-c", STATUS];
        let answer = finish(if root {
            guest.root(words)
        } else {
            guest.user(words)
        });
        assert!(answer.stdout.contains("\"mode\":\"scope\""), "{answer:?}");
        assert_locked(&answer.stdout, root);
    }
}

/// And where systemd starts it by a unit of ours: the user's own, and the system's for one user.
#[test]
fn in_a_service_of_systemds() {
    require!(Systemd, Cc);
    let options = GuestOptions::new().bind(folder().join("systemd"), "/units");
    let guest = Guest::up(&options).expect("boot a guest");
    let install = "mkdir -p /usr/libexec /etc/systemd/user; cp /cgleaf/cgleaf-helper /usr/libexec/
        cp /units/user/* /etc/systemd/user/; cp /units/system/* /etc/systemd/system/; systemctl daemon-reload";
    finish(guest.root(["sh", "-ec", install])).expect(0);
    let script = |begin: &str| format!("{begin}; {STATUS}");
    let begin = "systemctl --user daemon-reload; systemctl --user start cgleaf-helper.socket";
    let own = finish(guest.user(["sh", "-c", &script(begin)]));
    assert!(own.stdout.contains("\"mode\":\"user-service\""), "{own:?}");
    assert_locked(&own.stdout, false);
    finish(guest.root(["systemctl", "start", "cgleaf-helper@1000.socket"])).expect(0);
    let systems = finish(guest.user([
        "sh",
        "-c",
        &script("systemctl --user stop cgleaf-helper.socket cgleaf-helper.service"),
    ]));
    assert!(
        systems.stdout.contains("\"mode\":\"system-service\""),
        "{systems:?}"
    );
    assert_locked(&systems.stdout, true);
}
