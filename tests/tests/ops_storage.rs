//! Records that cannot be read: that is trouble with a name of its own (8), never "no such session", and one of them hides and
//! stops no other.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use cgleaf_tests::frontend::{Answer, Sandbox, finish, programs, wait_for};
use cgleaf_tests::helper::Ground;
use cgleaf_tests::scratch::wait_until;

/// A session that no helper knows: without its record nothing tells of it.
fn start(sandbox: &Sandbox, session: &str) {
    let words = ["start", "--quiet", "--tier", "group", "--session", session];
    let words = words.into_iter().chain(["--", "sleep", "300"]);
    sandbox.run(words).expect(0);
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
}

/// Every question about that session, and about all of them.
fn is_trouble(sandbox: &Sandbox, session: &str, how: &str, why: &str) {
    let commands: [&[&str]; 11] = [
        &["show", session],
        &["ps", session],
        &["wait", session],
        &["signal", session, "TERM"],
        &["logs", session],
        &["freeze", session],
        &["thaw", session],
        &["destroy", session],
        &["destroy", "--if-exists", session],
        &["list"],
        &["gc"],
    ];
    for words in commands {
        let answer = sandbox.run(words);
        assert_eq!(answer.code(), 8, "{how}: {words:?}: {answer:?}");
        let named = answer.stderr.contains(why) && answer.stderr.contains("see to it");
        assert!(named, "{how}: {words:?}: {answer:?}");
        // What a program wrote is no JSON.
        if words[0] == "logs" {
            continue;
        }
        let answer = sandbox.run(words.iter().chain(&["--json"]));
        assert_eq!(answer.code(), 8, "{how}: {words:?}: {answer:?}");
        let json = answer.json();
        assert_eq!(json["ok"], false, "{how}: {words:?}");
        assert_eq!(json["error"]["code"], "STORAGE", "{how}: {words:?}: {json}");
    }
}

#[test]
fn records_that_cannot_be_read_are_not_sessions_that_are_not_there() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    start(&sandbox, "kept");
    let base = sandbox.runtime().join("cgleaf");
    let sessions = sandbox.sessions();
    for (how, place, mode) in [
        ("base 755", &base, 0o755),
        ("sessions 755", &sessions, 0o755),
        ("sessions 777", &sessions, 0o777),
    ] {
        chmod(place, mode);
        is_trouble(&sandbox, "kept", how, "must be 0700");
        chmod(place, 0o700);
    }
    let away = base.join("away");
    fs::rename(&sessions, &away).expect("rename");
    fs::write(&sessions, "").expect("a file in its place");
    is_trouble(&sandbox, "kept", "a file", "Not a directory");
    fs::remove_file(&sessions).expect("remove it");
    fs::rename(&away, &sessions).expect("rename it back");

    assert_eq!(sandbox.state("kept"), "running");
    sandbox.run(["destroy", "kept"]).expect(0);
    let answer = sandbox.run(["show", "nobody"]);
    assert_eq!(answer.code(), 3, "{answer:?}");
}

/// What a helper knows is found all the same.
#[test]
fn a_helper_tells_what_no_record_does() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let words = ["start", "--session", "led", "--", "sleep", "300"];
    sandbox.run(words).expect(0);
    let sessions = sandbox.sessions();
    chmod(&sessions, 0o755);
    let answer = sandbox.run(["list", "--json"]);
    assert_eq!(answer.code(), 8, "{answer:?}");
    let json = answer.json();
    let listed = &json["error"]["details"]["sessions"][0];
    assert_eq!(listed["session"], "led", "{json}");
    let answer = sandbox.run(["list"]);
    assert!(answer.stdout.contains("led"), "{answer:?}");
    sandbox.run(["ps", "led"]).expect(0);
    let answer = sandbox.run(["show", "nobody"]);
    assert_eq!(answer.code(), 8, "{answer:?}");
    chmod(&sessions, 0o700);
    sandbox.run(["destroy", "led"]).expect(0);
}

/// As a user whom the mode of a file keeps out, as it does everybody but root.
fn unprivileged(sandbox: &Sandbox, words: &[&str]) -> Answer {
    let mut command = sandbox.command("setpriv");
    command.arg("--bounding-set=-dac_override,-dac_read_search");
    command.arg(sandbox.program()).args(words);
    finish(command)
}

#[test]
fn one_record_that_cannot_be_read_hides_and_stops_no_other() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for session in ["shut", "open", "over"] {
        start(&sandbox, session);
    }
    sandbox.run(["destroy", "over"]).expect(0);
    let record = sandbox.sessions().join("shut.json");
    chmod(&record, 0o000);

    let list = unprivileged(&sandbox, &["list", "--json"]);
    list.expect(0);
    let sessions = list.json()["result"]["sessions"].clone();
    let state = |id: &str| {
        let all = sessions.as_array().expect("sessions");
        let one = all.iter().find(|it| it["session"] == id);
        one.map(|it| (it["state"].clone(), it["tier"].clone()))
    };
    assert_eq!(state("open"), Some(("running".into(), "group".into())));
    assert_eq!(
        state("shut"),
        Some(("damaged".into(), None::<String>.into()))
    );

    let gc = unprivileged(&sandbox, &["gc", "--json"]);
    gc.expect(0);
    let done = gc.json()["result"].clone();
    assert_eq!(done["removed"], serde_json::json!(["over"]), "{done}");
    let kept = done["kept"].as_array().expect("kept");
    let shut = kept.iter().find(|it| it["session"] == "shut");
    let reason = shut.expect("it is kept")["reason"].to_string();
    assert!(reason.contains("0000"), "{reason}");
    for words in [&["destroy", "shut"][..], &["ps", "shut"], &["wait", "shut"]] {
        let answer = unprivileged(&sandbox, words);
        assert_eq!(answer.code(), 8, "{words:?}: {answer:?}");
    }

    chmod(&record, 0o600);
    for session in ["shut", "open"] {
        sandbox.run(["destroy", session]).expect(0);
    }
}

/// Whatever is asked of a session whose record is worth nothing: 8, and what to do.
#[test]
fn a_damaged_record_is_that_for_every_command() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    start(&sandbox, "torn");
    start(&sandbox, "later");
    let whole = fs::read(sandbox.sessions().join("torn.json")).expect("a record");
    fs::write(sandbox.sessions().join("torn.json"), &whole[..20]).expect("tear it");
    let mut later = sandbox.record("later").expect("a record");
    later["format"] = 99.into();
    fs::write(sandbox.sessions().join("later.json"), later.to_string()).expect("write it");
    for (session, tier) in [("torn", "tier     unknown"), ("later", "tier     group")] {
        let show = sandbox.run(["show", session]);
        assert!(show.expect(0).contains(tier), "{show:?}");
        assert!(show.stdout.contains("state    damaged"), "{show:?}");
        let commands: [&[&str]; 6] = [
            &["destroy", session],
            &["ps", session],
            &["wait", session],
            &["signal", session, "TERM"],
            &["freeze", session],
            &["thaw", session],
        ];
        for words in commands {
            let answer = sandbox.run(words.iter().chain(&["--json"]));
            assert_eq!(answer.code(), 8, "{words:?}: {answer:?}");
            let error = answer.json()["error"].clone();
            assert_eq!(error["code"], "RECORD_DAMAGED", "{words:?}: {error}");
            assert_eq!(error["retryable"], false, "{words:?}: {error}");
            let message = error["message"].to_string();
            assert!(message.contains("put "), "{words:?}: {message}");
        }
    }
    // Each line of several errors says whose it is.
    let answer = sandbox.run(["destroy", "torn", "later", "nobody"]);
    assert_eq!(answer.stderr.lines().count(), 3, "{answer:?}");
    for line in answer.stderr.lines() {
        assert!(line.starts_with("cgleaf destroy: "), "{answer:?}");
    }

    fs::write(sandbox.sessions().join("torn.json"), &whole).expect("mend it");
    later["format"] = 1.into();
    fs::write(sandbox.sessions().join("later.json"), later.to_string()).expect("mend it");
    sandbox.run(["destroy", "torn", "later"]).expect(0);
}

/// Without a /proc how a session is cannot be told: for every command alike, and with what to do.
#[test]
fn without_proc_every_command_says_so_alike() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    start(&sandbox, "kept");
    let empty = sandbox.other_runtime("empty");
    let script = "mount --bind \"$0\" /proc && exec \"$@\"";
    let commands: [&[&str]; 4] = [
        &["destroy", "kept"],
        &["destroy", "--if-exists", "kept"],
        &["ps", "kept"],
        &["signal", "kept", "TERM"],
    ];
    for words in commands {
        let mut command = sandbox.command("unshare");
        command.args(["--mount", "sh", "-c", script]).arg(&empty);
        let answer = finish({
            command.arg(sandbox.program()).args(words);
            command
        });
        assert_eq!(answer.code(), 6, "{words:?}: {answer:?}");
        let advice = "proc(5) is mounted at /proc";
        assert!(answer.stderr.contains(advice), "{words:?}: {answer:?}");
    }
    sandbox.run(["destroy", "kept"]).expect(0);
}

/// A container whose root nobody can write to: there is no place for a record, and the node service tells all that there is.
struct WithoutRecords(Ground);

impl WithoutRecords {
    fn new() -> Option<Self> {
        let mut ground = Ground::new("nowhere")?;
        ground.start("cgleaf-helper-node.service", 0, &["--mode", "node-service"]);
        ground.open_to_all();
        Some(Self(ground))
    }

    fn cgleaf(&self, words: &[&str]) -> Command {
        let program = programs().join("cgleaf");
        let mut all = vec![program.as_os_str()];
        all.extend(words.iter().map(OsStr::new));
        self.0.with_own_run(CONTAINER, "node", &all)
    }

    /// What it answers, and on stderr nothing.
    fn quietly(&self, words: &[&str]) -> Answer {
        let answer = finish(self.cgleaf(words));
        answer.expect(0);
        assert_eq!(answer.stderr, "", "{words:?}");
        answer
    }

    fn leaf(&self, session: &str) -> std::path::PathBuf {
        let container = self.0.cgroup(CONTAINER);
        container.join(format!("cgleaf-{session}.leaf"))
    }
}

const CONTAINER: &str = "docker-1111.scope";

#[test]
fn without_a_place_for_records_what_has_ended_is_taken_away() {
    let Some(container) = WithoutRecords::new() else {
        return;
    };
    for session in ["one", "two"] {
        finish(container.cgleaf(&["exec", "--session", session, "--", "true"])).expect(0);
        assert!(container.leaf(session).is_dir(), "exec leaves its leaf");
    }
    let words = ["exec", "--session", "runs", "--", "sleep", "1000"];
    let mut runs = container.cgleaf(&words).spawn().expect("start it");
    wait_until("the third", || {
        fs::read_to_string(container.leaf("runs").join("cgroup.procs"))
            .is_ok_and(|pids| !pids.is_empty())
    });
    let removed = |words: &[&str]| {
        let result = container.quietly(words).json()["result"].clone();
        assert_eq!(result["kept"][0]["session"], "runs", "{result}");
        assert_eq!(result["trouble"], serde_json::json!([]));
        result["removed"].clone()
    };
    let both = serde_json::json!(["one", "two"]);
    assert_eq!(removed(&["--json", "gc", "--dry-run"]), both);
    assert!(container.leaf("one").is_dir() && container.leaf("two").is_dir());
    assert_eq!(removed(&["--json", "gc"]), both);
    assert!(!container.leaf("one").exists() && !container.leaf("two").exists());
    assert_eq!(removed(&["--json", "gc"]), serde_json::json!([]));
    for words in [
        &["list"][..],
        &["list", "--all"],
        &["show", "runs"],
        &["ps", "runs"],
    ] {
        container.quietly(words);
    }
    // It would be written, were there a place, that this id must not start any more: once.
    let destroyed = finish(container.cgleaf(&["destroy", "runs"]));
    destroyed.expect(0);
    assert_eq!(destroyed.stderr.lines().count(), 1, "{destroyed:?}");
    wait_for(&mut runs);
}

/// What is so of all of them is said once, too.
#[test]
fn without_a_place_for_records_a_notice_is_given_once() {
    let Some(container) = WithoutRecords::new() else {
        return;
    };
    let sessions = ["a", "b", "c"];
    for session in sessions {
        finish(container.cgleaf(&["exec", "--session", session, "--", "true"])).expect(0);
    }
    let destroyed = finish(container.cgleaf(&[&["destroy"], &sessions[..]].concat()));
    destroyed.expect(0);
    assert_eq!(destroyed.stderr.lines().count(), 1, "{destroyed:?}");
    for session in sessions {
        assert!(!container.leaf(session).exists(), "{session}");
    }
}
