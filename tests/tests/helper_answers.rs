//! What the root modes say to those whom they refuse: the right error, and nothing of the host to a container.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use cgleaf_shared::wire::{RefusalCode, Request, Target};
use cgleaf_tests::frontend::{finish, programs};
use cgleaf_tests::helper::{Enrolled, Ground, session};
use cgleaf_tests::scratch::Sleeper;

const NODE: &str = "cgleaf-helper-node.service";
const CONTAINER: &str = "one.slice/docker-1111.scope";

fn node(name: &str) -> Option<Ground> {
    let mut ground = Ground::new(name)?;
    ground.start(NODE, 0, &["--mode", "node-service"]);
    for path in [&ground.directory, &ground.socket()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    Some(ground)
}

/// The line of a refusal, which names no path but one that the container has itself, and no number of the host's.
fn refused(program: &mut Enrolled, code: &str, named: &str) {
    let line = program.line();
    assert!(line.starts_with(&format!("refused {code}: ")), "{line}");
    assert!(line.contains(named), "{line}");
    for of_the_host in ["docker-1111", "one.slice", "/sys/fs", "/proc", NODE] {
        assert!(!line.contains(of_the_host), "{of_the_host}: {line}");
    }
    if let Some((_, number)) = line.split_once("process ")
        && number.starts_with(|c: char| c.is_ascii_digit())
    {
        let own = program.pid().to_string();
        let number = number.split(' ').next();
        assert!(number == Some("1") || number == Some(&own), "{line}");
    }
}

/// In a pid namespace of its own.
const DEEPER: [&str; 5] = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];

#[test]
fn a_container_is_told_nothing_of_the_host() {
    let Some(ground) = node("terms") else { return };
    let root = ground.unit.as_ref().unwrap().client();
    let container = ground.cgroup(CONTAINER);
    let client = |words: &[&str]| ground.client(CONTAINER, 0, &DEEPER, words);

    // What its own cgroup does not allow, and what one above it does not.
    for (limited, named) in [
        (&container, "/cgroup.max.descendants = 0"),
        (
            &container.parent().unwrap().to_path_buf(),
            "a path of the host = 1",
        ),
    ] {
        let file = limited.join("cgroup.max.descendants");
        let most = i32::from(*limited != container);
        fs::write(&file, most.to_string()).unwrap();
        refused(&mut client(&["why=enrol=s"]), "CgroupLimit", named);
        fs::write(&file, "max").unwrap();
    }
    let freeze = container.join("cgroup.freeze");
    let mut member = client(&["enrol=s"]);
    assert!(member.line().starts_with("enrolled"));
    let target = Target::from(&root.open("s").attestation);
    let leaf = container.join("cgleaf-s.leaf");
    fs::write(leaf.join("cgroup.freeze"), "1").unwrap();
    // A nested one is asked for from beside it: whoever is inside is frozen.
    refused(
        &mut client(&["why=enrol=t,s"]),
        "ParentFrozen",
        "/cgleaf-s.leaf is frozen",
    );
    fs::write(leaf.join("cgroup.freeze"), "0").unwrap();
    refused(
        &mut client(&["why=mistaken=s"]),
        "NonceMismatch",
        "another nonce",
    );
    xattr::set(&leaf, "user.cgleaf.poisoned", b"1").unwrap();
    refused(
        &mut client(&["why=kill=s"]),
        "Poisoned",
        "/cgleaf-s.leaf may hold",
    );
    xattr::remove(&leaf, "user.cgleaf.poisoned").unwrap();
    xattr::set(&leaf, "user.cgleaf.nonce", "0".repeat(32).as_bytes()).unwrap();
    refused(
        &mut client(&["why=kill=s"]),
        "NonceMismatch",
        "/cgleaf-s.leaf",
    );
    xattr::set(
        &leaf,
        "user.cgleaf.nonce",
        target.nonce.to_string().as_bytes(),
    )
    .unwrap();
    // Root on the host reads the same in full.
    fs::write(&freeze, "0").unwrap();
    let mut wrong = target.clone();
    wrong.leaf_id.0 += 1;
    assert_eq!(
        root.refused(&Request::Kill { target: wrong }),
        RefusalCode::TargetMismatch
    );
    xattr::set(&leaf, "user.cgleaf.poisoned", b"1").unwrap();
    let told = root.refusal(&Request::Kill {
        target: target.clone(),
    });
    assert!(
        told.message.contains("docker-1111.scope/cgleaf-s.leaf"),
        "{told}"
    );
    xattr::remove(&leaf, "user.cgleaf.poisoned").unwrap();
    root.destroy(&target);
}

/// One whose container is not known to be one, and one that is inside a session of another helper of the host.
#[test]
fn whoever_is_not_served_is_told_nothing_of_the_host_either() {
    let Some(ground) = node("unserved") else {
        return;
    };
    let mut odd = ground.client("one.slice/odd-1111.scope", 1000, &[], &["why=enrol=s"]);
    refused(&mut odd, "PlaceNotServed", "serves containers only");
    let mut odd = ground.client("one.slice/odd-1111.scope", 0, &DEEPER, &["why=enrol=s"]);
    refused(
        &mut odd,
        "PlaceNotServed",
        "process 1 is in a path of the host",
    );
    let outer = ground.cgroup("one.slice");
    for (name, value) in [("session", "x"), ("socket", "/run/one.slice/helper.sock")] {
        xattr::set(&outer, format!("user.cgleaf.{name}"), value.as_bytes()).unwrap();
    }
    let mut inside = ground.client(CONTAINER, 0, &[], &["why=enrol=s", "enrol=s"]);
    refused(&mut inside, "InsideSession", "nothing is moved out");
    assert_eq!(inside.line(), "refused InsideSession");
    // Where the other session is the container's own, its helper is there to be asked.
    let own = ground.cgroup(&format!("{CONTAINER}/x.leaf"));
    for (name, value) in [("session", "y"), ("socket", "/run/inner.sock")] {
        xattr::set(&own, format!("user.cgleaf.{name}"), value.as_bytes()).unwrap();
    }
    let within = format!("{CONTAINER}/x.leaf");
    let mut inside = ground.client(&within, 0, &[], &["why=enrol=s", "enrol=s"]);
    refused(
        &mut inside,
        "InsideSession",
        "/x.leaf, a session of another helper, which is at /run/inner.sock",
    );
    assert_eq!(inside.line(), "refused InsideSession /run/inner.sock");
}

/// His own slice lets him make what he likes, also what is called as docker calls a container's.
#[test]
fn who_only_has_the_name_of_a_container_is_told_what_is_so() {
    let Some(ground) = node("named") else {
        return;
    };
    let delegated = ground.cgroup("one.slice/user@1000.service");
    std::os::unix::fs::chown(&delegated, Some(1000), Some(1000)).unwrap();
    let name = "0123456789abcdef".repeat(4);
    let named = format!("one.slice/user@1000.service/docker/{name}");
    let mut user = ground.client(&named, 1000, &[], &["why=enrol=s"]);
    let line = user.line();
    for part in [
        "refused PlaceNotServed: ",
        "is in a path of the host; ",
        "only has the name of a container",
    ] {
        assert!(line.contains(part), "{line}");
    }
    for part in [" /;", " /,", " / ", "one.slice", &name] {
        assert!(!line.contains(part), "{part:?}: {line}");
    }
}

/// No process is named to a helper that root runs for others, neither by a pidfd nor without one.
#[test]
fn the_root_modes_adopt_nobody_and_say_so() {
    const SLICE: &str = "user.slice/user-1000.slice";
    let Some(mut ground) = Ground::new("adopt") else {
        return;
    };
    ground.start(
        &format!("{SLICE}/cgleaf-helper@1000.service"),
        1000,
        &["--mode", "system-service", "--uid", "1000"],
    );
    let mut user = ground.client(&format!("{SLICE}/a.scope"), 1000, &[], &["create=s"]);
    assert!(user.line().starts_with("enrolled"));
    let client = ground.unit.as_ref().unwrap().client();
    let target = Target::from(&client.open("s").attestation);
    let refusal = client.refusal(&Request::Adopt { target });
    assert_eq!(refusal.kind(), RefusalCode::Unsupported);
    assert!(refusal.message.contains("adopts no process"), "{refusal}");
    assert_eq!(
        client.refused(&Request::Create { new: session("x") }),
        RefusalCode::PlaceNotServed
    );

    // And so does cgleaf, which leaves nothing behind.
    let sleeper = Sleeper::new(1000);
    let runtime = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(runtime.path(), Some(1000), Some(1000)).unwrap();
    let mut adopt = Command::new("bash");
    adopt
        .arg("-c")
        .arg("echo $$ >\"$0/cgroup.procs\" && exec setpriv --reuid 1000 --regid 1000 --clear-groups -- \"$@\"")
        .arg(ground.cgroup(&format!("{SLICE}/b.scope")))
        .arg(programs().join("cgleaf"))
        .arg("--socket")
        .arg(ground.socket())
        .args(["adopt", "--name", "n", &sleeper.pid().to_string()])
        .env("XDG_RUNTIME_DIR", runtime.path());
    let answer = finish(adopt);
    answer.expect(12);
    assert!(
        answer.stderr.contains("nothing was adopted") && answer.stderr.contains("system-service"),
        "{answer:?}"
    );
    let client = ground.unit.as_ref().unwrap().client();
    assert_eq!(client.list().len(), 1, "the one of before");
}
