//! Nobody who was stopped, frozen or left unreaped half way is in anybody's way.

use std::fs;
use std::process::{Child, Command};
use std::time::Duration;

use cgleaf_tests::frontend::{Sandbox, finish};
use cgleaf_tests::scratch::wait_until;

/// A session whose program uses cgleaf all the time, so that a freeze stops some of its frontends in the middle of whatever they
/// were doing: between two steps of a claim, of a rename, of a question to the helper.
#[test]
fn a_frozen_member_blocks_nobody_whatever_it_was_doing() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let busy = "use() { while :; do cgleaf \"$@\" >/dev/null 2>&1; done; }
        use list --all & use gc & use run --name busy -- true & use destroy other & use start --session s1 -- true & wait";
    let mut leader = sandbox.background("busy", ["bash", "-c", busy]);
    for round in 0..20_u32 {
        let other = format!("o{round}");
        let mut neighbour = sandbox.background(&other, ["sleep", "1000"]);
        std::thread::sleep(Duration::from_micros(u64::from(round) * 1_700));
        sandbox.run(["freeze", "busy"]).expect(0);
        assert_eq!(sandbox.state("busy"), "frozen");
        let listed = sandbox.run(["--json", "list", "--all"]);
        listed.expect(0);
        sandbox.run(["gc"]).expect(0);
        sandbox.run(["run", "--", "true"]).expect(0);
        sandbox.run(["freeze", &other]).expect(0);
        sandbox.run(["thaw", &other]).expect(0);
        sandbox.run(["signal", &other, "WINCH"]).expect(0);
        sandbox.run(["ps", "busy"]).expect(0);
        sandbox.run(["destroy", &other]).expect(0);
        assert_eq!(neighbour.wait(), 137);
        sandbox.run(["thaw", "busy"]).expect(0);
    }
    sandbox.run(["freeze", "busy"]).expect(0);
    sandbox.run(["destroy", "busy"]).expect(0);
    assert_eq!(leader.wait(), 137);
}

/// A pid namespace whose first process never reaps, as a container with `sleep` as its command.
struct NeverReaps(Child);

impl NeverReaps {
    fn new(sandbox: &Sandbox) -> Self {
        let mut command = sandbox.command("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL"]);
        Self(
            command
                .args(["sleep", "1000"])
                .spawn()
                .expect("start unshare"),
        )
    }

    /// Its first process, as numbered here.
    fn first(&self) -> Option<String> {
        let pid = self.0.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        let first = children.split_whitespace().next()?.to_owned();
        let words = fs::read(format!("/proc/{first}/cmdline")).ok()?;
        words.starts_with(b"sleep").then_some(first)
    }

    /// A command in it.
    fn cgleaf(&self, sandbox: &Sandbox, words: &[&str]) -> Command {
        let mut command = sandbox.command("nsenter");
        command.args(["--target", &self.first().expect("its first process")]);
        command
            .args(["--pid", "--mount", "--"])
            .arg(sandbox.program())
            .args(words);
        command
    }

    /// How many of its processes have ended and are not reaped.
    fn zombies(&self) -> usize {
        let first = self.first().expect("its first process");
        let children = fs::read_to_string(format!("/proc/{first}/task/{first}/children"));
        children
            .unwrap_or_default()
            .split_whitespace()
            .filter(|pid| {
                fs::read_to_string(format!("/proc/{pid}/stat"))
                    .is_ok_and(|stat| stat.contains(") Z "))
            })
            .count()
    }
}

impl Drop for NeverReaps {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// B27: the end is the kernel's `populated 0`, and no zombie's matter.
#[test]
fn where_nobody_reaps_a_destroy_is_a_success_all_the_same() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let namespace = NeverReaps::new(&sandbox);
    wait_until("its first process", || namespace.first().is_some());
    let script = "setsid sleep 1000 & exec sleep 1000";
    let words = ["exec", "--session", "s", "--", "sh", "-c", script];
    let mut leader = namespace
        .cgleaf(&sandbox, &words)
        .spawn()
        .expect("start cgleaf");
    wait_until("two members", || sandbox.members("s").len() == 2);
    let destroyed = finish(namespace.cgleaf(&sandbox, &["--json", "destroy", "s"]));
    assert_eq!(destroyed.code(), 0, "{destroyed:?}");
    assert_eq!(destroyed.json()["result"]["strays"], serde_json::json!([]));
    cgleaf_tests::frontend::wait_for(&mut leader);
    wait_until("a process that nobody reaps", || namespace.zombies() > 0);
    assert_eq!(sandbox.leaves(), Vec::<String>::new());
    let shown = finish(namespace.cgleaf(&sandbox, &["--json", "show", "s"]));
    assert_eq!(shown.json()["result"]["state"], "destroyed", "{shown:?}");
}
