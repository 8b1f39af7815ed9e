//! What a helper that did not come to its regular end leaves, and who takes it away.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cgleaf_tests::frontend::{Sandbox, finish, programs};
use cgleaf_tests::helper::Lair;
use cgleaf_tests::scratch::{Scratch, wait_until};

fn directories(beneath: &Path) -> Vec<PathBuf> {
    fs::read_dir(beneath)
        .expect("list a directory")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_dir())
        .collect()
}

/// One that is not let into its own place, since the cgroup above that and where it comes from is not its user's.
#[test]
fn a_helper_that_cannot_enter_its_place_leaves_neither_that_nor_a_lock() {
    let Some(lair) = Lair::without_helper(1000) else {
        return;
    };
    let start = |more: &[&str]| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "--"])
            .arg(programs().join("cgleaf-helper"))
            .args(["serve", "--mode", "direct", "--scope-dir"])
            .arg(lair.scope())
            .arg("--socket")
            .arg(lair.socket())
            .args(more)
            .stdin(Stdio::null());
        let answer = finish(command);
        assert_eq!(answer.code(), 1, "{answer:?}");
        let why = "helper/cgroup.procs: Permission denied";
        assert!(answer.stderr.contains(why), "{answer:?}");
    };
    start(&["--private"]);
    // Nobody else ever takes that name. The lock of a shared one stays, or two helpers could each have their own.
    let lock = lair.socket().with_file_name("helper.sock.lock");
    assert!(!lock.exists());
    wait_until("the end of what its cleaner removes", || {
        lair.cgroups().is_empty()
    });
    start(&[]);
    assert_eq!(lair.cgroups(), [""; 0]);
}

/// With a pid namespace both the helper and its cleaner end at once. The next helper of that place takes away what they left, and
/// nothing else.
#[test]
fn what_ended_with_its_cleaner_is_taken_away_by_the_next() {
    let (Some(sandbox), Some(scratch)) = (Sandbox::new(), Scratch::new(0)) else {
        return;
    };
    let in_scratch = |words: &[&str]| {
        let mut command = sandbox.bash("echo $$ >\"$0/cgroup.procs\" && exec \"$@\"");
        command
            .arg(scratch.path())
            .args(words)
            .env_remove("CGLEAF_SCOPE_DIR");
        finish(command)
    };
    let kept = scratch.child("cgleaf-0-made.by.hand.scope", 0);
    let doctor = in_scratch(&["unshare", "-p", "-f", "--mount-proc", "cgleaf", "doctor"]);
    doctor.expect(0);
    let populated = |path: &PathBuf| {
        let events = fs::read_to_string(path.join("cgroup.events")).expect("read the events");
        events.contains("populated 1")
    };
    wait_until("the end of the namespace", || {
        !directories(scratch.path()).iter().any(populated)
    });
    let left = directories(scratch.path());
    assert_eq!(left.len(), 2, "the kernel killed its cleaner too: {left:?}");
    in_scratch(&["cgleaf", "run", "--", "true"]).expect(0);
    let now = directories(scratch.path());
    assert!(now.contains(&kept), "{now:?}");
    for one in left.iter().filter(|one| **one != kept) {
        assert!(!one.exists(), "{} is still there", one.display());
    }
    in_scratch(&["cgleaf", "helper", "stop"]).expect(0);
    wait_until("the end of that helper's directory", || {
        directories(scratch.path()) == [kept.clone()]
    });
}
