//! A socket that was named, by `--socket` or CGLEAF_SOCKET, and nobody there who tells which sessions there are: that is trouble,
//! and no success.

use std::ffi::OsStr;
use std::path::Path;

use cgleaf_tests::frontend::{Answer, Sandbox, finish, programs};
use cgleaf_tests::helper::Ground;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, bind, socket};
use serde_json::Value;

/// A socket that nobody listens at.
fn deaf(path: &Path) {
    use std::os::fd::AsRawFd;
    let family = (AddressFamily::Unix, SockType::SeqPacket);
    let bound = socket(family.0, family.1, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
    bind(bound.as_raw_fd(), &UnixAddr::new(path).expect("an address")).expect("bind");
}

/// `words` with the socket named by option, and with it named by the environment.
fn both(sandbox: &Sandbox, socket: &Path, words: &[&str]) -> [Answer; 2] {
    let socket = socket.to_str().expect("a path");
    let by_option = sandbox.run([&["--socket", socket], words].concat());
    let mut command = sandbox.cgleaf(words);
    command.env("CGLEAF_SOCKET", socket);
    [by_option, finish(command)]
}

fn is_trouble(sandbox: &Sandbox, socket: &Path, why: &str) {
    for words in [
        &["destroy", "nobody", "--if-exists"][..],
        &["destroy", "nobody"],
        &["show", "nobody"],
        &["list"],
        &["list", "--all"],
        &["top", "--count", "1", "--interval", "50ms"],
    ] {
        for answer in both(sandbox, socket, words) {
            answer.expect(6);
            let shown = socket.display().to_string();
            for part in [&shown, why] {
                assert!(answer.stderr.contains(part), "{words:?}: {answer:?}");
            }
        }
    }
    for answer in both(sandbox, socket, &["--json", "list"]) {
        answer.expect(6);
        let envelope = answer.json();
        assert_eq!(envelope["ok"], Value::Bool(false));
        assert_eq!(envelope["error"]["code"], "HELPER_UNREACHABLE");
        assert_eq!(
            envelope["error"]["details"]["sessions"],
            serde_json::json!([])
        );
    }
}

#[test]
fn nobody_there_is_no_answer() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let absent = sandbox.runtime().join("absent.sock");
    is_trouble(&sandbox, &absent, "No such file");
    is_trouble(&sandbox, &absent, "start it");
    let dead = sandbox.runtime().join("dead.sock");
    deaf(&dead);
    is_trouble(&sandbox, &dead, "refused");
    assert_eq!(sandbox.record_files(), Vec::<String>::new(), "no tombstone");
    // Where none was named, that there is none is an answer.
    sandbox.run(["destroy", "nobody", "--if-exists"]).expect(0);
    assert_eq!(sandbox.run(["list"]).expect(0), "");
}

#[test]
fn one_that_serves_us_not_is_no_answer() {
    let (Some(sandbox), Some(mut ground)) = (Sandbox::new(), Ground::new("unanswered")) else {
        return;
    };
    let node = "cgleaf-helper-node.service";
    ground.start(node, 0, &["--mode", "system-service", "--uid", "1000"]);
    let socket = ground.socket();
    // Root on the host is served by it, and this is that: another user is not.
    for answer in both(&sandbox, &socket, &["destroy", "nobody", "--if-exists"]) {
        answer.expect(0);
    }
    std::os::unix::fs::chown(&socket, Some(1001), None).expect("chown");
    let runtime = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::chown(runtime.path(), Some(1001), Some(1001)).expect("chown");
    let ask = |words: &[&str]| {
        let mut command = sandbox.command("setpriv");
        command
            .args(["--reuid", "1001", "--regid", "1001", "--clear-groups", "--"])
            .arg(sandbox.program())
            .arg("--socket")
            .arg(&socket)
            .args(words)
            .env("XDG_RUNTIME_DIR", runtime.path());
        finish(command)
    };
    for words in [&["destroy", "nobody", "--if-exists"][..], &["list"]] {
        let answer = ask(words);
        answer.expect(6);
        assert!(answer.stderr.contains("place not served"), "{answer:?}");
        assert!(!answer.stderr.contains("start it"), "it runs: {answer:?}");
    }
}

/// `list`, twice, of a user outside every container whose /run has this helper's socket under that name: as it is, and as JSON.
fn listed(ground: &Ground, uid: u32, name: &str, before: &[&str]) -> [Answer; 2] {
    let user = uid.to_string();
    let program = programs().join("cgleaf");
    let runtime = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::chown(runtime.path(), Some(uid), Some(uid)).expect("chown");
    let as_user = ["setpriv", "--reuid", &user, "--regid", &user];
    [&["list"][..], &["--json", "list"]].map(|words| {
        let first = before.iter().chain(&as_user);
        let mut all: Vec<&OsStr> = first.map(OsStr::new).collect();
        all.extend(["--clear-groups", "--"].map(OsStr::new));
        all.push(program.as_os_str());
        all.extend(words.iter().map(OsStr::new));
        let mut command = ground.with_own_run("cron.service", name, &all);
        command.env("XDG_RUNTIME_DIR", runtime.path());
        finish(command)
    })
}

/// It serves containers only, and the machine's own processes look at its socket too.
#[test]
fn the_node_service_is_no_trouble_to_the_machine_itself() {
    let Some(mut ground) = Ground::new("normal") else {
        return;
    };
    ground.start("cgleaf-helper-node.service", 0, &["--mode", "node-service"]);
    ground.open_to_all();
    for uid in [0, 1001] {
        let [text, json] = listed(&ground, uid, "node", &[]);
        assert_eq!((text.expect(0), text.stderr.as_str()), ("", ""));
        json.expect(0);
        assert_eq!(json.json()["result"]["trouble"], serde_json::json!([]));
    }
    // In a container that it does not know something is amiss.
    let apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let [text, json] = listed(&ground, 1001, "node", &apart);
    text.expect(0);
    assert!(text.stderr.contains("place not served"), "{text:?}");
    let trouble = json.json()["result"]["trouble"].as_array().map(Vec::len);
    assert_eq!(trouble, Some(1), "{json:?}");
}

/// Another helper that does not serve its own user is trouble still.
#[test]
fn a_service_that_does_not_serve_its_user_is_told() {
    let Some(mut ground) = Ground::new("strange") else {
        return;
    };
    let service = "user.slice/user-1001.slice/cgleaf-helper@1001.service";
    let arguments = ["--mode", "system-service", "--uid", "1001"];
    ground.start(service, 1001, &arguments);
    let [text, json] = listed(&ground, 1001, "1001", &[]);
    text.expect(0);
    assert!(text.stderr.contains("place not served"), "{text:?}");
    let trouble = json.json()["result"]["trouble"].as_array().map(Vec::len);
    assert_eq!(trouble, Some(1), "{json:?}");
}

/// What a record tells is done without the helper that was named.
#[test]
fn what_a_record_tells_is_still_listed_and_ended() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut program = sandbox.background("kept", ["sleep", "1000"]);
    let absent = sandbox.runtime().join("absent.sock");
    let [list, _] = both(&sandbox, &absent, &["list"]);
    assert!(list.expect(6).contains("kept"), "{list:?}");
    let [json, _] = both(&sandbox, &absent, &["--json", "list"]);
    let sessions = &json.json()["error"]["details"]["sessions"];
    assert_eq!(sessions[0]["session"], "kept", "{json:?}");
    sandbox.run(["destroy", "kept"]).expect(0);
    program.wait();
    let [again, _] = both(&sandbox, &absent, &["destroy", "kept", "--if-exists"]);
    again.expect(0);
}
