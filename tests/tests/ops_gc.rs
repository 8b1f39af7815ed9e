//! gc removes what is proven over and nothing else.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::SystemTime;

use cgleaf_shared::id::BootTime;
use cgleaf_tests::frontend::{Sandbox, collect};
use cgleaf_tests::scratch::{Sleeper, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// B16: gc never removes what is just being started.
#[test]
fn gc_in_a_loop_beside_five_hundred_runs() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut collector = sandbox.bash("while :; do cgleaf gc --json || exit 1; done");
    collector.stdout(std::process::Stdio::null());
    collector.stderr(std::process::Stdio::piped());
    let mut collector = collector.spawn().unwrap();
    for round in 0..500 {
        let words = match round % 2 {
            0 => vec!["run", "--", "true"],
            _ => vec!["run", "--name", "same", "--", "true"],
        };
        let answer = sandbox.run(words);
        assert_eq!(
            (answer.code(), answer.stderr.as_str()),
            (0, ""),
            "round {round}"
        );
    }
    assert!(collector.try_wait().unwrap().is_none(), "gc failed");
    collector.kill().unwrap();
    assert_eq!(collect(collector).stderr, "");
    sandbox.run(["gc"]).expect(0);
    assert_eq!(sandbox.record_files(), Vec::<String>::new());
    assert_eq!(sandbox.leaves(), Vec::<String>::new());
}

#[test]
fn a_dry_run_says_what_would_go_and_takes_nothing() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox
        .run(["run", "--session", "over", "--name", "n", "--", "true"])
        .expect(0);
    let mut leader = sandbox.background("runs", ["sleep", "1000"]);
    let files = sandbox.record_files();
    let dry = sandbox.run(["--json", "gc", "--dry-run"]).json()["result"].clone();
    assert_eq!(dry["removed"], json!(["over"]));
    assert_eq!(dry["kept"][0]["session"], "runs");
    assert_eq!(dry["kept"][0]["reason"], "it runs");
    assert_eq!(sandbox.record_files(), files);
    let done = sandbox.run(["--json", "gc"]).json()["result"].clone();
    assert_eq!(done["removed"], json!(["over"]));
    assert_eq!(sandbox.record_files(), ["runs.json"]);
    sandbox.run(["destroy", "runs"]).expect(0);
    leader.wait();
}

/// Whatever a record says, a change of it that this version did not make.
fn change(sandbox: &Sandbox, session: &str, change: impl FnOnce(&mut Value)) {
    let mut record = sandbox.record(session).expect("a record");
    change(&mut record);
    write(
        &sandbox.sessions().join(format!("{session}.json")),
        record.to_string().as_bytes(),
    );
}

fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// B23: a record of an earlier boot, whose pid is a stranger's now.
#[test]
fn a_record_of_an_earlier_boot_is_refused_and_cleared() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut stranger = Sleeper::new(0);
    sandbox
        .run(["run", "--session", "old", "--name", "name", "--", "true"])
        .expect(0);
    let other_boot = "00112233445566778899aabbccddeeff";
    change(&sandbox, "old", |record| {
        record["phase"] = json!("running");
        record["maker"]["boot_id"] = json!(other_boot);
        record["maker"]["pid"] = json!(stranger.pid());
        record["attestation"]["boot_id"] = json!(other_boot);
        record["leader"] = json!({"pid": stranger.pid(), "start": 1});
    });
    for strays in ["name", "kill"] {
        let answer = sandbox.run(["--json", "destroy", "--strays", strays, "old"]);
        answer.expect(7);
        let message = answer.json()["error"]["message"].to_string();
        assert!(message.contains("recorded in an earlier boot"), "{message}");
    }
    for words in [["freeze", "old"], ["ps", "old"]] {
        sandbox.run(words).expect(4);
    }
    assert_eq!(sandbox.state("old"), "ended");
    assert!(stranger.alive());
    assert_eq!(
        sandbox.run(["--json", "gc"]).json()["result"]["removed"],
        json!(["old"])
    );
    assert!(stranger.alive());
    assert_eq!(sandbox.record_files(), Vec::<String>::new());
}

/// B26: a damaged record is shown as such with its leaf, hides nobody else, and nothing is signalled on it alone.
#[test]
fn a_damaged_record_is_set_aside_and_its_session_ended_through_the_helper() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut intact = sandbox.background("intact", ["sleep", "1000"]);
    let whole = {
        let mut leader = sandbox.background("whole", ["sleep", "1000"]);
        let bytes = fs::read(sandbox.sessions().join("whole.json")).unwrap();
        sandbox.run(["destroy", "whole"]).expect(0);
        leader.wait();
        bytes
    };
    let half = &whole[..whole.len() / 2];
    let newer = br#"{"format":99,"session":"newer","phase":"running","later":true}"#;
    let damages: [(&str, &[u8], &str); 4] = [
        ("empty", b"", "empty"),
        ("zeros", &[0; 512], "empty"),
        ("torn", half, "torn"),
        ("newer", newer, "newer cgleaf"),
    ];
    for (id, bytes, why) in damages {
        let mut leader = sandbox.background(id, ["sleep", "1000"]);
        let path = sandbox.sessions().join(format!("{id}.json"));
        write(&path, bytes);
        let listed = sandbox.run(["--json", "list"]);
        listed.expect(0);
        assert!(listed.stderr.contains(why), "{listed:?}");
        let sessions = listed.json()["result"]["sessions"].clone();
        let of = |wanted: &str| {
            let all = sessions.as_array().unwrap();
            all.iter()
                .find(|one| one["session"] == wanted)
                .unwrap()
                .clone()
        };
        assert_eq!(of("intact")["state"], "running");
        assert_eq!(of(id)["state"], "damaged");
        assert_eq!(of(id)["members"], 1);
        assert!(
            of(id)["leaf"]["path"]
                .as_str()
                .unwrap()
                .ends_with(&format!("cgleaf-{id}.leaf"))
        );
        let kept = sandbox.run(["--json", "gc"]).json()["result"]["kept"].clone();
        assert!(kept.to_string().contains(why), "{kept}");
        // By id, through the helper's list; the record is left as it is.
        sandbox.run(["destroy", id]).expect(0);
        assert_eq!(leader.wait(), 137);
        assert_eq!(fs::read(&path).unwrap(), bytes, "never rewritten");
        // On the record alone nothing is done.
        let again = sandbox.run(["--json", "destroy", id]);
        again.expect(8);
        assert_eq!(again.json()["error"]["code"], "RECORD_DAMAGED");
    }
    assert!(intact.lives());
    sandbox.run(["destroy", "intact"]).expect(0);
    intact.wait();
}

/// What is in the records' directory and is no file of ours: a link, somebody else's, one that others may write.
#[test]
fn a_file_that_is_not_ours_is_never_followed() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut victim = sandbox.background("victim", ["sleep", "1000"]);
    let records = sandbox.sessions();
    std::os::unix::fs::symlink("victim.json", records.join("link.json")).unwrap();
    write(&records.join("open.json"), b"{}");
    fs::set_permissions(records.join("open.json"), fs::Permissions::from_mode(0o666)).unwrap();
    write(&records.join("theirs.json"), b"{}");
    std::os::unix::fs::chown(records.join("theirs.json"), Some(1000), Some(1000)).unwrap();
    for id in ["link", "open", "theirs"] {
        sandbox.run(["destroy", id]).expect(8);
        assert_eq!(sandbox.state(id), "damaged");
    }
    sandbox.run(["gc"]).expect(0);
    assert!(victim.lives());
    assert!(records.join("link.json").is_symlink());
    sandbox.run(["destroy", "victim"]).expect(0);
    victim.wait();
}

/// A record that points at another's leaf, at the scope itself, at the root: only the true one is acted on.
#[test]
fn a_record_that_was_edited_leads_nowhere_else() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut other = sandbox.background("other", ["sleep", "1000"]);
    let theirs = sandbox.record("other").unwrap()["attestation"].clone();
    let scope = theirs["domain_path"].clone();
    let edits: [(&str, Value); 4] = [
        (
            "leaf",
            json!({"leaf_path": theirs["leaf_path"], "leaf_id": theirs["leaf_id"], "nonce": theirs["nonce"]}),
        ),
        (
            "scope",
            json!({"leaf_path": scope, "leaf_id": theirs["domain_id"]}),
        ),
        ("root", json!({"leaf_path": "/", "leaf_id": 1})),
        ("whole", theirs.clone()),
    ];
    for (index, (what, edit)) in edits.iter().enumerate() {
        let session = format!("s{index}");
        let mut leader = sandbox.background(&session, ["sleep", "1000"]);
        let true_one = sandbox.record(&session).unwrap()["attestation"].clone();
        let apply = |record: &mut Value| {
            for (name, value) in edit.as_object().unwrap() {
                record["attestation"][name] = value.clone();
            }
        };
        change(&sandbox, &session, apply);
        // The helper still has the true one, and says so.
        sandbox.run(["freeze", &session]).expect(0);
        assert_eq!(sandbox.leaf_file("other", "cgroup.freeze"), "0", "{what}");
        sandbox.run(["destroy", &session]).expect(0);
        assert_eq!(leader.wait(), 137, "{what}");
        assert!(other.lives(), "{what}");
        // And when nobody has it any more, the record leads nowhere.
        sandbox.run(["--json", "gc"]).expect(0);
        let id = format!("t{index}");
        let mut record = sandbox.record("other").unwrap();
        record["session"] = json!(id);
        record["attestation"] = true_one;
        record["attestation"]["session"] = json!(id);
        apply(&mut record);
        write(
            &sandbox.sessions().join(format!("{id}.json")),
            record.to_string().as_bytes(),
        );
        let answer = sandbox.run(["destroy", &id]);
        assert_ne!(answer.code(), 0, "{what}: {answer:?}");
        for words in [["freeze", &id], ["ps", &id], ["thaw", &id]] {
            assert_ne!(sandbox.run(words).code(), 0, "{what}");
        }
        assert!(other.lives(), "{what}");
        assert_eq!(sandbox.leaf_file("other", "cgroup.freeze"), "0", "{what}");
        fs::remove_file(sandbox.sessions().join(format!("{id}.json"))).unwrap();
    }
    sandbox.run(["destroy", "other"]).expect(0);
    other.wait();
}

#[test]
fn a_claim_that_came_to_nothing_goes_when_its_maker_is_dead() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut leader = sandbox.background("s", ["sleep", "1000"]);
    let mut intent = sandbox.record("s").unwrap();
    let maker = Sleeper::new(0);
    let stat = fs::read_to_string(format!("/proc/{}/stat", maker.pid())).unwrap();
    let start: u64 = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .nth(19)
        .unwrap()
        .parse()
        .unwrap();
    intent["session"] = json!("claimed");
    intent["phase"] = json!("intent");
    intent["maker"]["pid"] = json!(maker.pid());
    intent["maker"]["start"] = json!(start);
    for field in ["attestation", "leader", "helper"] {
        intent.as_object_mut().unwrap().remove(field);
    }
    write(
        &sandbox.sessions().join("claimed.json"),
        intent.to_string().as_bytes(),
    );
    assert_eq!(sandbox.state("claimed"), "starting");
    let kept = sandbox.run(["--json", "gc"]).json()["result"].clone();
    assert_eq!(kept["removed"], json!([]), "{kept}");
    // A destroy has answered, and the maker has not looked for the tombstone yet: both must stay.
    let destroy = ["destroy", "--strays", "ignore", "claimed"];
    sandbox.run(destroy).expect(0);
    let kept = sandbox.run(["--json", "gc"]).json()["result"].clone();
    assert_eq!(kept["removed"], json!([]), "{kept}");
    assert!(sandbox.sessions().join("claimed.tomb").exists());
    drop(maker);
    assert_eq!(sandbox.state("claimed"), "destroyed");
    let done = sandbox.run(["--json", "gc"]).json()["result"].clone();
    assert_eq!(done["removed"], json!(["claimed"]), "{done}");
    // One that lives is kept, whatever its record says of the making.
    let path = sandbox.sessions().join("s.json");
    intent["session"] = json!("s");
    write(&path, intent.to_string().as_bytes());
    let kept = sandbox.run(["--json", "gc"]).json()["result"].clone();
    assert_eq!(kept["removed"], json!([]), "{kept}");
    assert_eq!(sandbox.state("s"), "running");
    // And once it has ended, its empty leaf goes with it: whoever was killed while making it comes to no more.
    kill(
        Pid::from_raw(i32::try_from(leader.pid()).unwrap()),
        Signal::SIGKILL,
    )
    .unwrap();
    leader.wait();
    assert_eq!(sandbox.leaves(), ["s"]);
    let done = sandbox.run(["--json", "gc"]).json()["result"].clone();
    assert_eq!(done["removed"], json!(["s"]), "{done}");
    assert_eq!(sandbox.leaves(), Vec::<String>::new());
}

#[test]
fn stale_names_temporary_files_and_old_tombstones_go() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut leader = sandbox.background_with("runs", &["--name", "kept"], ["sleep", "1000"]);
    let names = sandbox.runtime().join("cgleaf/names");
    write(&names.join("stale"), b"nobody\n");
    write(&names.join("broken"), b"../x\n");
    let records = sandbox.sessions();
    // Their names say when they were made; what the wall clock says of a file is not asked.
    let now = BootTime::now();
    let young = format!(".new-{now}-young");
    write(&records.join(&young), b"half");
    fs::File::open(records.join(&young))
        .unwrap()
        .set_modified(SystemTime::UNIX_EPOCH)
        .unwrap();
    let later = format!(".new-{}-later", now.0 + 3_600_000_000_000);
    write(&records.join(&later), b"half, in an earlier boot");
    write(&records.join(".new-odd"), b"half");
    sandbox.run(["destroy", "--if-exists", "young"]).expect(0);
    let boot = sandbox.record("runs").unwrap()["maker"]["boot_id"]
        .as_str()
        .unwrap()
        .to_owned();
    write(
        &records.join("old.tomb"),
        format!("{{\"laid\":1,\"boot_id\":\"{boot}\"}}").as_bytes(),
    );
    write(
        &records.join("former.tomb"),
        b"{\"laid\":1,\"boot_id\":\"00112233445566778899aabbccddeeff\"}",
    );
    let done = sandbox.run(["--json", "gc"]).json()["result"].clone();
    let uptime: f64 = fs::read_to_string("/proc/uptime")
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    if uptime > 601.0 {
        assert_eq!(done["tombstones"], json!(["former", "old"]), "{done}");
        assert!(!records.join("old.tomb").exists());
    }
    assert_eq!(done["names"], json!(["broken", "stale"]));
    assert_eq!(done["temporary_files"], 2);
    assert!(names.join("kept").exists() && !names.join("stale").exists());
    assert!(records.join(&young).exists() && !records.join(&later).exists());
    assert!(!records.join(".new-odd").exists());
    assert!(records.join("young.tomb").exists());
    sandbox.run(["destroy", "kept"]).expect(0);
    leader.wait();
    wait_until("the free name", || !names.join("kept").exists());
}

/// A full disk: nothing is started, and what runs can be listed and ended.
#[test]
fn a_full_disk_starts_nothing_and_ends_what_runs() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut leader = sandbox.background("runs", ["sleep", "1000"]);
    let small = Small::mount(&sandbox.sessions());
    small.fill();
    let file = sandbox.runtime().join("ran");
    for command in ["run", "exec"] {
        let answer = sandbox.run([command, "--", "touch", file.to_str().unwrap()]);
        answer.expect(125);
        assert!(answer.stderr.contains("No space left"), "{answer:?}");
    }
    assert!(!file.exists());
    let listed = sandbox.run(["--json", "list"]).json();
    assert_eq!(listed["result"]["sessions"][0]["session"], "runs");
    sandbox.run(["destroy", "runs"]).expect(0);
    assert_eq!(leader.wait(), 137);
    wait_until("the end of all leaves", || sandbox.leaves().is_empty());
}

/// A file system of 16 KiB over a directory.
struct Small {
    at: std::path::PathBuf,
}

impl Small {
    fn mount(at: &Path) -> Self {
        let status = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=16k,mode=0700", "none"])
            .arg(at)
            .status()
            .unwrap();
        assert!(status.success());
        Self {
            at: at.to_path_buf(),
        }
    }

    fn fill(&self) {
        let _ = fs::write(self.at.join(".filler"), vec![1; 64 * 1024]);
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.at)
            .status();
    }
}
