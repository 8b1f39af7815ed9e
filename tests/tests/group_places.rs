//! Where the group tier is all there is: the tier is chosen and named, `doctor` says why, and who insists on a leaf is refused.
//! Each place is made of this machine's own mounts, in a mount namespace (and a cgroup namespace) of a test's own.

use std::path::PathBuf;
use std::process::Command;

use cgleaf_tests::frontend::{Answer, Sandbox, finish};
use cgleaf_tests::require;
use cgleaf_tests::scratch::{cgroup_mount, wait_until};

/// How a place differs from the machine: a script that is run before cgleaf.
struct Place<'a> {
    sandbox: &'a Sandbox,
    script: &'static str,
    /// The scope directory, as the place shows it.
    scope: Option<PathBuf>,
}

/// Every cgroup2 mount, the innermost first.
const MOUNTS: &str =
    "mounts() { awk '$0 ~ / - cgroup2 / { print $5 }' /proc/self/mountinfo | sort -r; };";

/// B18: cgroup v1 at most.
const NO_CGROUP2: &str = "for path in $(mounts); do umount -l \"$path\"; done";

/// B37: what a default container has.
const READ_ONLY: &str = "for path in $(mounts); do mount -o remount,bind,ro \"$path\"; done";

impl Place<'_> {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.sandbox.command("unshare");
        match &self.scope {
            // In the machine's own cgroup namespace: the scope directory is one of the machine's.
            Some(scope) => command.env("CGLEAF_SCOPE_DIR", scope).arg("--mount"),
            None => command
                .env_remove("CGLEAF_SCOPE_DIR")
                .args(["--mount", "--cgroup"]),
        };
        command
            .args(["sh", "-c"])
            .arg(format!("{MOUNTS} {} && exec cgleaf \"$@\"", self.script))
            .arg("sh")
            .args(words);
        command
    }

    fn cgleaf(&self, words: &[&str]) -> Answer {
        finish(self.command(words))
    }
}

/// All that such a place must be.
fn has_the_group_tier(place: &Place<'_>, why: &[&str]) {
    let told = |answer: &Answer| {
        let lines = answer.stderr.lines();
        lines
            .filter(|line| line.contains("kept by its processes"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    for command in ["run", "exec"] {
        let answer = place.cgleaf(&[command, "--", "sh", "-c", "echo it runs"]);
        assert_eq!(answer.expect(0), "it runs");
        assert_eq!(told(&answer).len(), 1, "one notice: {answer:?}");
        assert!(
            why.iter().any(|word| told(&answer)[0].contains(word)),
            "{answer:?}"
        );
        let quiet = place.cgleaf(&[command, "--quiet", "--", "true"]);
        quiet.expect(0);
        assert_eq!(quiet.stderr, "");
        let refused = place.cgleaf(&[
            command,
            "--tier",
            "cgroup",
            "--",
            "sh",
            "-c",
            "echo it runs",
        ]);
        assert_eq!(refused.expect(125), "", "it was not started");
        assert_ne!(refused.stderr, "");
        let beneath = place.cgleaf(&[command, "--parent", "x", "--", "echo", "it runs"]);
        assert_eq!(beneath.expect(125), "", "it was not started");
        assert!(beneath.stderr.contains("--parent x"), "{beneath:?}");
        assert!(told(&beneath).is_empty(), "nothing is kept: {beneath:?}");
    }
    let started = place.cgleaf(&["--json", "start", "--session", "s", "--", "sleep", "1000"]);
    started.expect(0);
    let listed = place.cgleaf(&["--json", "list"]);
    assert_eq!(listed.json()["result"]["sessions"][0]["tier"], "group");
    let members = place.cgleaf(&["--json", "ps", "s"]).json();
    assert_eq!(members["result"]["complete"], false, "{members}");
    for words in [["freeze", "s"], ["thaw", "s"]] {
        place.cgleaf(&words).expect(12);
    }
    let own = std::process::id().to_string();
    let adopted = place.cgleaf(&["adopt", "--name", "a", &own]);
    assert_eq!(adopted.expect(12), "");
    assert!(!adopted.stderr.contains("--tier"), "{adopted:?}");
    let ended = place.cgleaf(&["--json", "destroy", "s"]);
    ended.expect(0);
    assert_eq!(ended.json()["result"]["tier"], "group");
    let doctor = place.cgleaf(&["--json", "doctor"]).json();
    let result = &doctor["result"];
    assert_eq!(result["tier"], "group", "{doctor}");
    let reason = result["reason"].as_str().unwrap_or_default();
    assert!(why.iter().any(|word| reason.contains(word)), "{doctor}");
    println!("doctor: {reason}");
}

#[test]
fn without_cgroup2() {
    require!(Root, Cgroup2);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let place = Place {
        sandbox: &sandbox,
        script: NO_CGROUP2,
        scope: None,
    };
    has_the_group_tier(&place, &["cgroup2"]);
}

#[test]
fn with_a_read_only_cgroup2() {
    require!(Root, Cgroup2);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let place = Place {
        sandbox: &sandbox,
        script: READ_ONLY,
        scope: None,
    };
    has_the_group_tier(&place, &["read-only", "Read-only", "EROFS"]);
}

/// B18: cgroup2 is where mountinfo says it is, whatever lies in its usual place.
#[test]
fn with_cgroup2_elsewhere_there_is_a_leaf() {
    require!(Root, Cgroup2);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mount = sandbox.runtime().join("unified");
    let usual = cgroup_mount().expect("a cgroup2 mount");
    let scope = sandbox.scope().strip_prefix(usual).expect("a scope in it");
    let place = Place {
        sandbox: &sandbox,
        script: "for path in $(mounts); do umount -l \"$path\"; done && mkdir -p \"$XDG_RUNTIME_DIR/unified\" && \
                 mount -t cgroup2 none \"$XDG_RUNTIME_DIR/unified\"",
        scope: Some(mount.join(scope)),
    };
    let doctor = place.cgleaf(&["--json", "doctor"]).json();
    let checks = doctor["result"]["checks"].as_array();
    let layout = checks.and_then(|all| all.iter().find(|check| check["name"] == "layout"));
    let detail = layout.and_then(|check| check["detail"].as_str());
    let detail = detail.unwrap_or_default();
    assert!(detail.contains(&mount.display().to_string()), "{doctor}");
    assert_eq!(doctor["result"]["tier"], "cgroup", "{doctor}");
    println!("doctor: {detail}");
    let ran = place.cgleaf(&["run", "--tier", "cgroup", "--", "echo", "it runs"]);
    assert_eq!(ran.expect(0), "it runs");
}

/// Another user's member, in a /proc that hides it: that nobody is seen is no end.
#[test]
fn whom_proc_hides_is_not_said_to_have_ended() {
    require!(Root);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let runtime = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::chown(runtime.path(), Some(1000), Some(1000)).expect("chown");
    let become_root = sandbox.runtime().join("become-root");
    let script = "cp \"$(command -v setpriv)\" $0 && chmod 4755 $0 && chmod 711 ${0%/*}";
    let made = Command::new("sh")
        .args(["-c", script])
        .arg(&become_root)
        .status();
    assert!(made.expect("sh").success());
    const USER: &str = "setpriv --reuid=1000 --regid=1000 --clear-groups cgleaf";
    let in_place = |place: &str, words: &[&str]| {
        let mut command = sandbox.command("unshare");
        command.env("XDG_RUNTIME_DIR", runtime.path());
        command.args(["--mount", "sh", "-c"]);
        command
            .arg(format!("{place} {USER} \"$@\""))
            .arg("sh")
            .args(words);
        command
    };
    let path = become_root.display().to_string();
    let mut words = vec![
        "exec",
        "--quiet",
        "--tier",
        "group",
        "--session",
        "s",
        "--",
        &path,
    ];
    words.extend(["--reuid=0", "--regid=0", "--clear-groups", "sleep", "300"]);
    let mut leader = in_place("exec setsid", &words).spawn().expect("start it");
    wait_until("a root sleeper that leads its group", || {
        let file = format!("/proc/{}/status", leader.id());
        let status = std::fs::read_to_string(file).unwrap_or_default();
        status.contains("Name:\tsleep") && status.contains("Uid:\t0")
    });
    let answer = finish(in_place("exec", &["--json", "destroy", "s"]));
    answer.expect(5);
    let named = &answer.json()["error"]["details"]["leftover"][0]["pid"];
    let hiding = "mount -t proc -o hidepid=2 proc /proc && exec";
    let hidden = |words: &[&str]| finish(in_place(hiding, words));
    let seen = [
        hidden(&["--json", "show", "s"]),
        hidden(&["--json", "list", "--all"]),
    ];
    let codes = [
        hidden(&["wait", "s", "--timeout", "100ms"]).code(),
        hidden(&["destroy", "s"]).code(),
    ];
    let kept = hidden(&["--json", "gc"]).json()["result"]["kept"].clone();
    let lived = leader.try_wait().expect("ask for its end").is_none();
    leader.kill().expect("SIGKILL");
    leader.wait().expect("its end");
    let ended = hidden(&["--json", "show", "s"]).json();
    assert!(lived);
    assert_eq!(*named, leader.id(), "{answer:?}");
    let shown = &seen[0].json()["result"];
    assert_eq!(shown["state"], "unknown", "{shown}");
    assert!(
        shown["remark"]
            .as_str()
            .is_some_and(|it| it.contains("/proc")),
        "{shown}"
    );
    let listed = &seen[1].json()["result"]["sessions"][0];
    assert_eq!(listed["state"], "unknown", "{listed}");
    assert_eq!(codes, [7, 5]);
    assert_eq!(kept[0]["session"], "s", "{kept}");
    assert_eq!(ended["result"]["state"], "destroying", "{ended}");
}

/// A mark may be a copy: it does not stand in for an autogroup that was recorded and cannot be read.
#[test]
fn a_mark_kills_nobody_whose_autogroup_cannot_be_read() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let script = r#"
        setsid -w cgleaf exec --quiet --tier group --session s -- sh -c 'sleep 300 & echo $! >"$0"' "$1" >/dev/null
        member=$(cat "$1")
        echo unreadable >"$1.text"
        mount --bind "$1.text" "/proc/$member/autogroup" || exit 9
        cgleaf destroy --timeout 1s s 2>/dev/null
        echo $?
        grep -q sleep "/proc/$member/cmdline" && echo it lives
        grep State "/proc/$member/status"
        umount "/proc/$member/autogroup"
        cgleaf destroy s
    "#;
    let file = sandbox.runtime().join("member");
    let mut command = sandbox.command("unshare");
    command
        .args(["--mount", "bash", "-c", script, "places"])
        .arg(file);
    let said = finish(command);
    assert_eq!(said.expect(0), "5\nit lives\nState:\tS (sleeping)");
}
