//! Directories that are named for leaves (docs/adr/0006): each has a helper of its own, whoever came first; and whom no helper may
//! move has the group tier, and is told.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cgleaf_tests::frontend::{Answer, Sandbox, collect, finish};
use cgleaf_tests::scratch::wait_until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Two directories of one user, who has one place for sockets.
struct Two {
    a: PathBuf,
    b: PathBuf,
    sandbox: Sandbox,
}

impl Two {
    fn new() -> Option<Self> {
        let sandbox = Sandbox::new()?;
        let made = ["a", "b"].map(|name| sandbox.scope().join(name));
        for directory in &made {
            fs::create_dir(directory).expect("mkdir");
        }
        let [a, b] = made;
        Some(Self { a, b, sandbox })
    }

    fn command(&self, directory: Option<&Path>, words: &[&str]) -> Command {
        let mut command = self.sandbox.cgleaf(words);
        command.env_remove("CGLEAF_SCOPE_DIR");
        if let Some(directory) = directory {
            command.env("CGLEAF_SCOPE_DIR", directory);
        }
        command
    }

    fn cgleaf(&self, directory: Option<&Path>, words: &[&str]) -> Answer {
        finish(self.command(directory, words))
    }

    fn start(&self, directory: &Path, session: &str) {
        let words = ["start", "--session", session, "--", "sleep", "1000"];
        self.cgleaf(Some(directory), &words).expect(0);
        assert!(leaf(directory, session).exists(), "{session}");
    }

    /// The sockets, and what is left of them, by their names.
    fn sockets(&self) -> Vec<String> {
        let run = self.sandbox.runtime().join("cgleaf/run");
        let entries = fs::read_dir(run).expect("list").flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// The pid of the helper in a directory.
    fn helper(directory: &Path) -> Option<i32> {
        let members = fs::read_to_string(directory.join("helper/cgroup.procs")).ok()?;
        let mut pids = members.lines().filter_map(|line| line.parse().ok());
        let first = pids.next();
        assert_eq!(pids.next(), None, "two helpers in {}", directory.display());
        first
    }

    fn kill_helper(directory: &Path) {
        let pid = Self::helper(directory).expect("a helper");
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("kill it");
        wait_until("its end", || Self::helper(directory) != Some(pid));
    }
}

fn leaf(directory: &Path, session: &str) -> PathBuf {
    directory.join(format!("cgleaf-{session}.leaf"))
}

const WHERE: [&str; 5] = ["run", "--", "grep", "0::", "/proc/self/cgroup"];

fn ids(answer: &Answer) -> Vec<String> {
    let told: Value = answer.json();
    let sessions = told["result"]["sessions"].as_array().expect("sessions");
    let mut ids: Vec<String> = sessions
        .iter()
        .filter_map(|one| one["session"].as_str().map(str::to_owned))
        .collect();
    ids.sort();
    ids
}

#[test]
fn a_leaf_lies_in_the_directory_that_was_named_whoever_came_first() {
    let Some(two) = Two::new() else { return };
    two.start(&two.a, "sa");
    let place = two.cgleaf(Some(&two.b), &WHERE);
    assert!(place.expect(0).contains("/b/cgleaf-"), "{place:?}");
    assert_eq!(place.stderr, "", "{place:?}");
    let exec = two.cgleaf(Some(&two.b), &["exec", "--session", "eb", "--", "true"]);
    exec.expect(0);
    two.start(&two.b, "sb");
    let doctor = two.cgleaf(Some(&two.b), &["doctor", "--json"]);
    doctor.expect(0);
    let helper = doctor.json()["result"]["helper"].clone();
    let pid = Two::helper(&two.b).expect("a helper");
    assert_eq!(helper["pid"].as_i64(), Some(i64::from(pid)), "{helper}");
    assert!(Two::helper(&two.b).is_some(), "doctor has not ended it");

    // Whoever names none finds the sessions of both, without their records too.
    assert_eq!(ids(&two.cgleaf(None, &["list", "--json"])), ["sa", "sb"]);
    for session in ["sa", "sb"] {
        let record = two.sandbox.sessions().join(format!("{session}.json"));
        fs::remove_file(record).expect("lose its record");
    }
    assert_eq!(ids(&two.cgleaf(None, &["list", "--json"])), ["sa", "sb"]);
    let status = two.cgleaf(None, &["helper", "status", "--json"]);
    let helpers = status.json()["result"]["helpers"].clone();
    assert_eq!(helpers.as_array().map(Vec::len), Some(2), "{status:?}");
    for (directory, session) in [(&two.a, "sa"), (&two.b, "sb")] {
        two.cgleaf(None, &["destroy", session]).expect(0);
        assert!(!leaf(directory, session).exists());
    }

    let stopped = two.cgleaf(None, &["helper", "stop", "--json"]);
    let stopped = stopped.json()["result"]["stopped"].clone();
    assert_eq!(stopped.as_array().map(Vec::len), Some(2), "{stopped}");
    // The usual place keeps its lock; the other one's goes.
    wait_until("the end of both", || two.sockets() == ["direct.sock.lock"]);
}

#[test]
fn those_that_race_each_get_their_own() {
    let Some(two) = Two::new() else { return };
    let children: Vec<_> = (0..8)
        .map(|number| {
            let directory = if number % 2 == 0 { &two.a } else { &two.b };
            let child = two
                .command(Some(directory), &WHERE)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("start cgleaf");
            (directory, child)
        })
        .collect();
    for (directory, child) in children {
        let answer = collect(child);
        let name = directory.file_name().expect("a name").to_string_lossy();
        let there = format!("/{name}/cgleaf-");
        assert!(answer.expect(0).contains(&there), "{answer:?}");
    }
    assert!(Two::helper(&two.a).is_some() && Two::helper(&two.b).is_some());
}

/// A directory is served by a helper that was given it, and by no other: so the leaves of a dead one's are never two helpers'.
#[test]
fn the_next_helper_of_a_directory_has_its_leaves_and_nobody_elses() {
    let Some(two) = Two::new() else { return };
    two.start(&two.a, "sa");
    two.start(&two.b, "sb");
    Two::kill_helper(&two.a);
    Two::kill_helper(&two.b);
    // The usual place is free, and goes to whoever comes first now.
    two.cgleaf(Some(&two.b), &["run", "--", "true"]).expect(0);
    let frozen = two.cgleaf(None, &["freeze", "sb"]);
    frozen.expect(0);
    two.cgleaf(None, &["thaw", "sb"]).expect(0);
    assert_eq!(Two::helper(&two.a), None, "b's has nothing of a's");
    two.cgleaf(Some(&two.b), &["destroy", "sa"]).expect(0);
    assert!(!leaf(&two.a, "sa").exists());
    assert!(Two::helper(&two.a).is_some());
    let place = two.cgleaf(Some(&two.a), &WHERE);
    assert!(place.expect(0).contains("/a/cgleaf-"), "{place:?}");
    two.cgleaf(None, &["destroy", "sb"]).expect(0);
}

/// Rule 1 goes before a name: whoever is in a session stays beneath it, and nothing is started for that.
#[test]
fn inside_a_session_no_other_directory_is_one_to_go_to() {
    let Some(two) = Two::new() else { return };
    let script = "CGLEAF_SCOPE_DIR=$0 cgleaf run -- grep 0:: /proc/self/cgroup; CGLEAF_SCOPE_DIR=$0 cgleaf exec -- grep 0:: /proc/self/cgroup";
    let other = two.b.display().to_string();
    let outer = [
        "run",
        "--session",
        "outer",
        "--",
        "sh",
        "-c",
        script,
        &other,
    ];
    let answer = two.cgleaf(Some(&two.a), &outer);
    let places: Vec<&str> = answer.expect(0).lines().collect();
    assert_eq!(places.len(), 2, "{answer:?}");
    for place in places {
        assert!(place.contains("/a/cgleaf-outer.leaf/cgleaf-"), "{place}");
    }
    assert!(!two.b.join("helper").exists(), "a helper for nothing");
}

/// As with private helpers: the names would fill the directory, one for each unit that ever ran.
#[test]
fn what_a_killed_helper_leaves_of_its_own_socket_is_swept() {
    let Some(two) = Two::new() else { return };
    two.start(&two.a, "sa");
    let run = two.sandbox.runtime().join("cgleaf/run");
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let dead = [
        "direct-0123456789abcdef.sock",
        "direct-0123456789abcdef.sock.lock",
    ];
    for name in dead {
        let file = fs::File::create(run.join(name)).expect("make it");
        file.set_modified(long_ago).expect("make it old");
    }
    two.cgleaf(Some(&two.b), &["run", "--", "true"]).expect(0);
    for name in dead {
        assert!(!run.join(name).exists(), "{name}");
    }
}

/// A user whose shell is outside the cgroup that root gave him, where his helper has its leaves: it cannot move him (cgroup-v2.rst,
/// "Delegation Containment").
#[test]
fn whom_no_helper_may_move_has_the_group_tier() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let runtime = sandbox.other_runtime("of-the-user");
    let given = sandbox.scope().join("given");
    let script = r#"set -e; runtime=$0 given=$1 programs=$2; shift 2
        mkdir "$given"; chown -R 1000:1000 "$given" "$runtime"; chmod 711 "${runtime%/*}"
        user() { setpriv --reuid=1000 --regid=1000 --clear-groups env XDG_RUNTIME_DIR="$runtime" "$@"; }
        (echo $BASHPID >"$given/cgroup.procs"; user cgleaf start --session inside -- sleep 1000)
        for command in run exec start; do
            status=0; user cgleaf $command --session $command -- true || status=$?; echo $command $status
            status=0; user cgleaf $command --tier cgroup -- true || status=$?; echo $command cgroup $status
        done
        user cgleaf show --json run; user cgleaf destroy inside"#;
    let mut command = sandbox.bash(script);
    command.env_remove("CGLEAF_SCOPE_DIR");
    command.args([&runtime, &given]).arg(sandbox.program());
    let answer = finish(command);
    let lines: Vec<&str> = answer.expect(0).lines().collect();
    for command in ["run", "exec", "start"] {
        assert!(
            lines.contains(&format!("{command} 0").as_str()),
            "{answer:?}"
        );
        let none = format!("{command} cgroup 125");
        assert!(lines.contains(&none.as_str()), "{answer:?}");
    }
    let told = |line: &&str| {
        line.contains("kept by its processes") && line.contains("the cgroup above both places")
    };
    assert_eq!(answer.stderr.lines().filter(told).count(), 3, "{answer:?}");
    assert!(answer.stdout.contains("\"tier\":\"group\""), "{answer:?}");
}

/// Helpers know nothing of each other. Where a record was lost, the one that has the session is asked before its id is used again.
#[test]
fn an_id_is_used_once_by_all_helpers_of_a_user() {
    let Some(two) = Two::new() else { return };
    two.start(&two.a, "same");
    two.start(&two.b, "other");
    for file in two.sandbox.record_files() {
        if file.starts_with("same") {
            fs::remove_file(two.sandbox.sessions().join(file)).expect("lose it");
        }
    }
    let words = ["start", "--session", "same", "--", "sleep", "1000"];
    let refused = two.cgleaf(Some(&two.b), &words);
    refused.expect(125);
    assert!(refused.stderr.contains("exists already"), "{refused:?}");
    assert!(!leaf(&two.b, "same").exists());
    two.cgleaf(None, &["destroy", "same"]).expect(0);
    assert!(!leaf(&two.a, "same").exists());
    two.cgleaf(None, &["destroy", "other"]).expect(0);
}
