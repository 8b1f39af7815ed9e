//! A helper that containers share: what many of them take together is kept from nobody else.

use std::fs;
use std::os::fd::AsRawFd;

use cgleaf_shared::wire::Target;
use cgleaf_tests::helper::{Enrolled, Ground};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::unistd::Pid;

const NODE: &str = "cgleaf-helper-node.service";
/// What a helper keeps back for itself and for what must always work.
const KEPT_BACK: u32 = 48;
/// What a connection takes.
const EACH: u32 = 3;

/// A node service with room for so many connections.
fn node(name: &str, connections: u32) -> Option<Ground> {
    let mut ground = Ground::new(name)?;
    let descriptors = KEPT_BACK + EACH * connections;
    ground.start_with_descriptors(NODE, descriptors, &["--mode", "node-service"]);
    Some(ground)
}

fn said(program: &mut Enrolled, lines: &[&str]) {
    for expected in lines {
        let line = program.line();
        assert!(line.starts_with(expected), "{line:?} is not {expected:?}");
    }
}

#[test]
fn many_domains_together_keep_no_other_out() {
    let Some(ground) = node("shares", 12) else {
        return;
    };
    // The first has all of them, beside its own; the others take theirs from whoever has most.
    let crowds: Vec<Enrolled> = ["in 11", "in 5", "in 3"]
        .into_iter()
        .zip(1..)
        .map(|(let_in, number)| {
            let cgroup = format!("docker-{number}.scope");
            let mut crowd = ground.client(&cgroup, 0, &[], &["crowd=20"]);
            said(&mut crowd, &[let_in]);
            crowd
        })
        .collect();
    // One that comes now has none, and is let in, with all that it may need at once.
    let words = ["enrol=s", "freeze=s", "list", "crowd=1", "open=s"];
    let mut newcomer = ground.client("docker-4.scope", 0, &[], &words);
    said(
        &mut newcomer,
        &["enrolled", "refused Ancestor", "sessions s", "in 1", "open"],
    );
    let words = ["hold=s", "thaw=s", "kill=s"];
    let mut other = ground.client("docker-4.scope", 0, &[], &words);
    said(&mut other, &["frozen", "thawed", "killed"]);
    // So is one outside of all of them: root, that looks after it.
    let root = ground.unit.as_ref().expect("a helper").client();
    assert_eq!(root.list().len(), 1);
    // Whoever has as many as the others is not let in for one of theirs.
    let mut greedy = ground.client("docker-5.scope", 0, &[], &["crowd=12"]);
    let line = greedy.line();
    let let_in: usize = line.trim_start_matches("in ").parse().expect("a number");
    assert!((1..=3).contains(&let_in), "{line}");
    drop(crowds);
}

/// A session that ends with its frontend is not ended because somebody else came: its holder has time to come back.
#[test]
fn a_lease_is_not_ended_for_a_newcomer() {
    let Some(ground) = node("lease", 4) else {
        return;
    };
    let mut leased: Vec<Enrolled> = (0..4)
        .map(|number| {
            let words = [format!("enrol=s{number}"), format!("lease=s{number}")];
            let words = words.each_ref().map(String::as_str);
            ground.client("docker-1.scope", 0, &[], &words)
        })
        .collect();
    for program in &mut leased {
        said(program, &["enrolled", "leased"]);
    }
    let mut newcomer = ground.client("docker-2.scope", 0, &[], &["enrol=n", "list"]);
    said(&mut newcomer, &["enrolled", "sessions n"]);
    let leaf = ground.cgroup("docker-1.scope/cgleaf-s0.leaf");
    let events = fs::read_to_string(leaf.join("cgroup.events")).expect("read the events");
    assert!(events.contains("populated 1"), "{events}");
    // The idlest one lost its connection. There is room again, and it is back.
    drop(newcomer);
    let mut again = ground.client("docker-1.scope", 0, &[], &["lease=s0", "list"]);
    said(&mut again, &["leased", "sessions s0,s1,s2,s3"]);
    drop(leased);
    drop(again);
    let root = ground.unit.as_ref().expect("a helper").client();
    for entry in root.list() {
        root.destroy(&Target::from(&entry.attestation));
    }
}

/// Whoever fills the queue of those who wait to be accepted has others wait behind him: so it is short, however long the service
/// manager made it.
#[test]
fn the_queue_is_short() {
    let Some(ground) = node("queue", 12) else {
        return;
    };
    let unit = ground.unit.as_ref().expect("a helper");
    assert!(unit.client().list().is_empty());
    let helper = Pid::from_raw(i32::try_from(unit.child.id()).expect("a pid"));
    kill(helper, Signal::SIGSTOP).expect("stop the helper");
    let address = UnixAddr::new(&ground.socket()).expect("an address");
    let waiting = std::iter::from_fn(|| {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).ok()?;
        connect(socket.as_raw_fd(), &address).ok().map(|()| socket)
    });
    let waiting = waiting.take(500).collect::<Vec<_>>();
    kill(helper, Signal::SIGCONT).expect("continue the helper");
    assert!(waiting.len() < 200, "{} wait", waiting.len());
    // Hung up, they are in nobody's way; nor are they while they wait.
    assert!(unit.client().list().is_empty());
    drop(waiting);
    assert!(unit.client().list().is_empty());
}
