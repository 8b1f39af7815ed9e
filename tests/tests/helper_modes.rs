//! Whom a helper serves, and where: the root modes, containers, and other helpers' sessions, with cgroups that are named
//! as systemd and container managers name them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use cgleaf_shared::process::Pid;
use cgleaf_shared::wire::{RefusalCode, Reply, Request, Target};
use cgleaf_tests::frontend::wait_for;
use cgleaf_tests::helper::{Enrolled, Ground, Lair, client_in, client_program, session};
use cgleaf_tests::scratch::{Sleeper, wait_until};

const SLICE: &str = "user.slice/user-1000.slice";
const SERVICE: &str = "user.slice/user-1000.slice/cgleaf-helper@1000.service";

fn system_service() -> Option<Ground> {
    let mut ground = Ground::new("system")?;
    ground.start(
        SERVICE,
        1000,
        &["--mode", "system-service", "--uid", "1000"],
    );
    Some(ground)
}

/// What a user's program may do to a control file.
fn write_as(uid: u32, file: &Path, value: &str) -> bool {
    let user = uid.to_string();
    Command::new("setpriv")
        .args([
            "--reuid",
            &user,
            "--regid",
            &user,
            "--clear-groups",
            "sh",
            "-c",
            "echo $1 >$0",
        ])
        .arg(file)
        .arg(value)
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap()
        .success()
}

#[test]
fn the_system_service_keeps_a_user_in_a_leaf_that_is_not_his_to_write() {
    let Some(ground) = system_service() else {
        return;
    };
    let mut program = ground.client(
        &format!("{SLICE}/session-3.scope"),
        1000,
        &[],
        &["enrol=one", "freeze=one", "list"],
    );
    let line = program.line();
    assert!(
        line.ends_with(&format!("/{SERVICE}/cgleaf-one.leaf")),
        "{line}"
    );
    assert_eq!(program.line(), "refused AncestorOfCaller");
    assert_eq!(program.line(), "sessions one");
    let leaf = ground.cgroup(&format!("{SERVICE}/cgleaf-one.leaf"));
    let there = fs::metadata(&leaf).unwrap();
    assert_eq!((there.uid(), there.mode() & 0o777), (0, 0o755));
    for (file, value) in [
        ("cgroup.procs", program.pid().to_string()),
        ("cgroup.freeze", "1".to_owned()),
        ("cgroup.kill", "1".to_owned()),
    ] {
        assert!(!write_as(1000, &leaf.join(file), &value), "{file}");
    }
    // The owner sees and ends it from a login of his; the helper runs without a capability.
    let status = fs::read_to_string(format!(
        "/proc/{}/status",
        ground.unit.as_ref().unwrap().child.id()
    ))
    .unwrap();
    for line in [
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
    ] {
        assert!(status.contains(line), "{line}");
    }
    let mut other = ground.client(
        &format!("{SLICE}/session-4.scope"),
        1000,
        &[],
        &["list", "kill=one"],
    );
    assert_eq!(other.line(), "sessions one");
    assert_eq!(other.line(), "killed");
    assert!(!wait_for(&mut program.child).success());
}

#[test]
fn the_system_service_serves_its_user_in_his_slice_and_nobody_else() {
    let Some(ground) = system_service() else {
        return;
    };
    for (cgroup, uid) in [
        ("user.slice/user-1001.slice/session-9.scope", 1000),
        ("system.slice/cron.service", 1000),
    ] {
        let mut program = ground.client(cgroup, uid, &[], &["enrol=one", "list"]);
        assert_eq!(program.line(), "refused PlaceNotServed", "{cgroup}");
    }
    // The socket keeps others out; one that has it all the same is refused.
    std::os::unix::fs::chown(ground.socket(), Some(1001), None).unwrap();
    let mut stranger = ground.client(
        &format!("{SLICE}/session-3.scope"),
        1001,
        &[],
        &["enrol=one"],
    );
    assert_eq!(stranger.line(), "refused PlaceNotServed");
    let client = ground.unit.as_ref().unwrap().client();
    let sleeper = Sleeper::new(0);
    assert!(client.list().is_empty());
    drop(sleeper);
    assert_eq!(
        client.refused(&Request::CreateAndEnrol {
            new: session("mine")
        }),
        RefusalCode::PlaceNotServed,
        "root is not that user"
    );
}

#[test]
fn sessions_outlive_the_system_service() {
    let Some(mut ground) = system_service() else {
        return;
    };
    let scope = format!("{SLICE}/session-3.scope");
    let mut program = ground.client(&scope, 1000, &[], &["enrol=one"]);
    assert!(program.line().starts_with("enrolled"));
    ground.unit.as_mut().unwrap().kill();
    ground.start(
        SERVICE,
        1000,
        &["--mode", "system-service", "--uid", "1000"],
    );
    let mut other = ground.client(&scope, 1000, &[], &["list", "kill=one"]);
    assert_eq!(other.line(), "sessions one");
    assert_eq!(other.line(), "killed");
    assert!(!wait_for(&mut program.child).success());
}

#[test]
fn the_node_service_serves_containers_in_place_each_by_itself() {
    let Some(mut ground) = Ground::new("node") else {
        return;
    };
    ground.start(
        "system.slice/cgleaf-helper-node.service",
        0,
        &["--mode", "node-service"],
    );
    fs::set_permissions(
        ground.socket(),
        std::os::unix::fs::PermissionsExt::from_mode(0o666),
    )
    .unwrap();
    fs::set_permissions(
        &ground.directory,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let one = "system.slice/docker-1111.scope";
    let two = "system.slice/docker-2222.scope";
    let mut first = ground.client(one, 0, &[], &["enrol=s"]);
    let line = first.line();
    assert!(line.ends_with("/docker-1111.scope/cgleaf-s.leaf"), "{line}");
    // The same id in another container is another session.
    let mut second = ground.client(two, 0, &[], &["enrol=s", "list"]);
    let line = second.line();
    assert!(line.ends_with("/docker-2222.scope/cgleaf-s.leaf"), "{line}");
    assert_eq!(second.line(), "sessions s");
    // uid 1000 in the first container does not see root's; root in the second does not see his.
    let mut user = ground.client(one, 1000, &[], &["enrol=u", "list"]);
    assert!(user.line().ends_with("/docker-1111.scope/cgleaf-u.leaf"));
    assert_eq!(user.line(), "sessions u");
    let mut neighbour = ground.client(two, 0, &[], &["list", "kill=u"]);
    assert_eq!(neighbour.line(), "sessions s");
    assert_eq!(neighbour.line(), "refused NoSuchSession");
    // A host process has no place, whoever it is; root outside may still end what is there.
    for uid in [0, 1000] {
        let mut host = ground.client("system.slice/cron.service", uid, &[], &["enrol=h"]);
        assert_eq!(host.line(), "refused PlaceNotServed", "uid {uid}");
    }
    let root = ground.unit.as_ref().unwrap().client();
    // Whatever other containers the machine has.
    let is_ours =
        |place: &str| place.ends_with("docker-1111.scope") || place.ends_with("docker-2222.scope");
    let mut all = root.list();
    all.retain(|entry| is_ours(entry.attestation.domain_path.as_str()));
    assert_eq!(all.len(), 3);
    let ours = root.open("u").attestation;
    assert!(ours.domain_path.as_str().ends_with("docker-1111.scope"));
    root.destroy(&Target::from(&ours));
    assert!(!wait_for(&mut user.child).success());

    ground.unit.as_mut().unwrap().kill();
    ground.start(
        "system.slice/cgleaf-helper-node.service",
        0,
        &["--mode", "node-service"],
    );
    let root = ground.unit.as_ref().unwrap().client();
    assert_eq!(root.list().len(), 2, "found again in their containers");
}

/// Whoever has a part of the tree gives what he makes there any name.
#[test]
fn no_user_makes_a_container_by_its_name() {
    let Some(mut ground) = Ground::new("named") else {
        return;
    };
    ground.start("cgleaf-helper-node.service", 0, &["--mode", "node-service"]);
    for path in [&ground.directory, &ground.socket()] {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    let delegated = ground.cgroup("user@1000.service");
    std::os::unix::fs::chown(&delegated, Some(1000), Some(1000)).unwrap();
    let open = ground.cgroup("open.slice");
    fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    for above in [
        "user@1000.service",
        "user@1000.service/app.slice",
        "open.slice",
    ] {
        for name in [
            "docker-1111.scope",
            "libpod-1111.scope",
            "kubepods/pod1/1111",
        ] {
            let named = format!("{above}/{name}");
            let mut user = ground.client(&named, 1000, &[], &["enrol=s"]);
            assert_eq!(user.line(), "refused PlaceNotServed", "{named}");
        }
    }
}

/// In a container the numbers are the container's: the leader is named by its own, and members are told with both.
#[test]
fn a_container_with_its_own_pids_is_served_by_its_own_numbers() {
    let Some(mut ground) = Ground::new("pids") else {
        return;
    };
    ground.start("cgleaf-helper-node.service", 0, &["--mode", "node-service"]);
    let unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
    let mut program = ground.client("docker-1111.scope", 0, &unshare, &["enrol=s", "fork"]);
    let line = program.line();
    assert!(line.ends_with("/docker-1111.scope/cgleaf-s.leaf"), "{line}");
    let forked: i32 = program
        .line()
        .trim_start_matches("forked ")
        .parse()
        .unwrap();
    let client = ground.unit.as_ref().unwrap().client();
    let entry = client.open("s");
    assert_eq!(entry.leader_inner, Pid::new(1));
    assert_ne!(entry.leader.unwrap().pid, Pid::new(1).unwrap());
    let target = Target::from(&entry.attestation);
    match client.call(&Request::Members {
        target,
        after: None,
    }) {
        Reply::Members(page) => {
            let mut inner: Vec<i32> = page
                .members
                .iter()
                .map(|member| *member.ns_pids.last().unwrap())
                .collect();
            inner.sort_unstable();
            assert_eq!(inner, [1, forked]);
            assert!(page.members.iter().all(|member| member.ns_pids.len() == 2));
        }
        other => panic!("{other:?}"),
    }
    // The same namespace outside every container is no place.
    let mut outside = ground.client("system.slice/x.service", 0, &unshare, &["enrol=o"]);
    assert_eq!(outside.line(), "refused PlaceNotServed");
}

/// Root in a user namespace that a user made himself: he can have a message say that it comes from any process of his pid namespace.
#[test]
fn credentials_forged_in_a_user_namespace_mean_nothing() {
    let Some(mut ground) = Ground::new("forged") else {
        return;
    };
    ground.start("cgleaf-helper-node.service", 0, &["--mode", "node-service"]);
    for path in [&ground.directory, &ground.socket()] {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    let script = "echo $$ >\"$0/cgroup.procs\"; exec setpriv --reuid 1000 --regid 1000 --clear-groups -- \
        unshare --user --map-root-user --pid --fork --kill-child -- \"$@\"";
    let mut command = Command::new("bash");
    command
        .args(["-c", script])
        .arg(ground.cgroup("docker-1111.scope"))
        .arg(client_program())
        .arg(ground.socket())
        .args(["fork", "forge=forged,2"]);
    let mut liar = Enrolled::start(command);
    assert_eq!(liar.line(), "forked 2");
    let line = liar.line();
    assert!(
        line.ends_with("/docker-1111.scope/cgleaf-forged.leaf"),
        "{line}"
    );
    let client = ground.unit.as_ref().unwrap().client();
    let entry = client.open("forged");
    assert_eq!(entry.attestation.owner_uid.0, 1000);
    assert_eq!(entry.leader_inner, Pid::new(1), "the liar itself was moved");
    let target = Target::from(&entry.attestation);
    match client.call(&Request::Members {
        target: target.clone(),
        after: None,
    }) {
        Reply::Members(page) => assert_eq!(page.total, 1),
        other => panic!("{other:?}"),
    }
    client.destroy(&target);
}

#[test]
fn nothing_is_moved_out_of_another_helpers_session() {
    let (Some(theirs), Some(ours)) = (Lair::new(0), Lair::new(0)) else {
        return;
    };
    let their_socket = theirs.socket();
    let mut inside = theirs.enrolled(&["enrol=outer"]);
    assert!(inside.line().starts_with("enrolled"));
    let leaf = theirs.scope().join("cgleaf-outer.leaf");
    let mut program = client_in(&leaf, 0, &[], &ours.socket(), &["enrol=escape"]);
    assert_eq!(
        program.line(),
        format!("refused InsideSession {}", their_socket.display())
    );
    assert_eq!(ours.cgroups(), ["helper"]);
    // Asked at the right door it nests.
    let mut program = client_in(&leaf, 0, &[], &their_socket, &["enrol=inner"]);
    assert!(
        program
            .line()
            .ends_with("/cgleaf-outer.leaf/cgleaf-inner.leaf")
    );
}

#[test]
fn a_user_is_not_served_by_anothers_helper_and_root_may_end_his_sessions() {
    let Some(lair) = Lair::new(1000) else { return };
    let mut program = lair.enrolled(&["enrol=one"]);
    assert!(program.line().starts_with("enrolled"));
    let root = lair.client();
    assert_eq!(root.list().len(), 1);
    assert_eq!(
        root.refused(&Request::Create {
            new: session("roots")
        }),
        RefusalCode::PlaceNotServed
    );
    root.destroy(&Target::from(&root.open("one").attestation));
    wait_until("the end of the program", || {
        program.child.try_wait().unwrap().is_some()
    });
}

/// One container's crowd, and its silent ones, take its own share and nobody else's.
#[test]
fn domains_of_the_node_service_share_it_fairly() {
    let Some(mut ground) = Ground::new("fair") else {
        return;
    };
    ground.start(
        "cgleaf-helper-node.service",
        0,
        &["--mode", "node-service", "--max-sessions", "3"],
    );
    let mut crowd = ground.client(
        "docker-1111.scope",
        0,
        &[],
        &["crowd=40", "silent=40", "list"],
    );
    // The client's own connection is one of the 32.
    assert_eq!(crowd.line(), "in 31");
    let mut neighbour = ground.client("docker-2222.scope", 0, &[], &["enrol=s", "list", "crowd=3"]);
    assert!(neighbour.line().starts_with("enrolled"));
    assert_eq!(neighbour.line(), "sessions s");
    assert_eq!(neighbour.line(), "in 3");
    assert_eq!(
        crowd.line(),
        "in 40",
        "they are in the socket's queue, or turned away later"
    );
    assert_eq!(crowd.line(), "sessions");
    // Sessions are counted for each domain too.
    let mut greedy = ground.client(
        "docker-3333.scope",
        0,
        &[],
        &["create=a", "create=b", "create=c", "create=d"],
    );
    for _ in 0..3 {
        assert!(greedy.line().starts_with("enrolled"));
    }
    assert!(greedy.line().starts_with("refused QuotaSessions"));
    let mut modest = ground.client("docker-4444.scope", 0, &[], &["create=a"]);
    assert!(modest.line().starts_with("enrolled"));
}
