//! What a helper that was killed leaves, and who takes it away: the scope directory that it made, and an empty leaf in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use cgleaf_tests::frontend::{Sandbox, finish, wait_for};
use cgleaf_tests::scratch::wait_until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

/// A place whose scope directory is yet to be made.
struct Made {
    sandbox: Sandbox,
    scope: PathBuf,
}

impl Made {
    fn new() -> Option<Self> {
        let sandbox = Sandbox::new()?;
        let scope = sandbox.scope().join("made");
        Some(Self { sandbox, scope })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.sandbox.cgleaf(words);
        command.env("CGLEAF_SCOPE_DIR", &self.scope);
        command
    }

    /// A session, with its program as a child of the test.
    fn session(&self, id: &str, script: &str) -> Child {
        let words = ["exec", "--session", id, "--", "sh", "-c", script];
        let leader = self.command(&words).spawn().expect("start cgleaf");
        wait_until("a session", || {
            self.sandbox
                .record(id)
                .is_some_and(|record| record["phase"] == "running")
        });
        leader
    }

    fn helper(&self) -> Option<i32> {
        let text = fs::read_to_string(self.scope.join("helper/cgroup.procs")).ok()?;
        text.trim().parse().ok()
    }

    fn kill_helper(&self) {
        let helper = self.helper().expect("a helper");
        kill(Pid::from_raw(helper), Signal::SIGKILL).expect("kill the helper");
        wait_until("the helper's end", || !self.scope.join("helper").exists());
    }

    fn leaf(&self, id: &str) -> PathBuf {
        self.scope.join(format!("cgleaf-{id}.leaf"))
    }

    /// The last helper ends, and with it what the first one made.
    fn ends(&self) {
        finish(self.command(&["helper", "stop"])).expect(0);
        wait_until("the end of what the first helper made", || {
            !self.scope.exists()
        });
    }
}

fn end(mut leader: Child) {
    let _ = leader.kill();
    wait_for(&mut leader);
}

#[test]
fn a_directory_goes_with_the_last_helper_that_served_it() {
    let Some(made) = Made::new() else { return };
    finish(made.command(&["run", "--", "true"])).expect(0);
    made.kill_helper();
    wait_until("the end of its directory", || !made.scope.exists());

    let leader = made.session("s", "exec sleep 1000");
    made.kill_helper();
    assert!(made.leaf("s").exists(), "what lives keeps its leaf");
    finish(made.command(&["destroy", "s"])).expect(0);
    end(leader);
    made.ends();
}

/// The helper died, and then the session's last process: nobody but gc comes by.
#[test]
fn an_empty_leaf_without_a_helper_goes_with_its_record() {
    let Some(made) = Made::new() else { return };
    for over in [false, true] {
        let id = if over { "over" } else { "ended" };
        let leader = made.session(id, "exec sleep 1000");
        made.kill_helper();
        end(leader);
        if over {
            // As a frontend wrote it whose helper was killed just before it removed the leaf.
            let file = made.sandbox.sessions().join("over.json");
            let text = fs::read_to_string(&file).expect("read the record");
            let text = text.replace("\"phase\":\"running\"", "\"phase\":\"ended\"");
            fs::write(&file, text).expect("write the record");
        }
        let done = finish(made.command(&["--json", "gc"])).json()["result"].clone();
        assert_eq!(done["removed"], json!([id]), "{done}");
        assert!(!made.leaf(id).exists());
        assert!(made.sandbox.record(id).is_none());
    }
    made.ends();
}

/// A session's own program asks, and so starts the next helper: nobody of ours stays in the session.
#[test]
fn a_helper_that_a_session_starts_leaves_nobody_in_it() {
    let Some(made) = Made::new() else { return };
    let told = made.sandbox.runtime().join("told");
    let script = format!(
        "read go <{0}.go; cgleaf ps s >{0}.new; mv {0}.new {0}; exec sleep 1000",
        told.display()
    );
    nix::unistd::mkfifo(&go(&told), nix::sys::stat::Mode::S_IRWXU).expect("make a fifo");
    let leader = made.session("s", &script);
    made.kill_helper();
    fs::write(go(&told), "go\n").expect("let it ask");
    wait_until("its answer", || told.exists());
    wait_until("the program alone", || {
        let members = fs::read_to_string(made.leaf("s").join("cgroup.procs")).expect("members");
        members.trim() == leader.id().to_string()
    });
    assert!(made.helper().is_some());
    finish(made.command(&["destroy", "s"])).expect(0);
    end(leader);
    made.ends();
}

fn go(told: &Path) -> PathBuf {
    PathBuf::from(format!("{}.go", told.display()))
}
