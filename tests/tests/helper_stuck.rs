//! A descriptor whose close never ends, handed to a helper that strangers may connect to: it must not hold it up.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cgleaf_shared::wire::{self, Hello, RefusalCode, Reply, Request};
use cgleaf_tests::fuse::StuckFile;
use cgleaf_tests::helper::{Client, Unit, client_in};
use cgleaf_tests::scratch::{DEADLINE, Scratch, skip, tag, wait_until};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

/// A helper of a root mode in a cgroup of its own.
struct Node {
    unit: Option<Unit>,
    cgroup: PathBuf,
    socket: PathBuf,
    directory: PathBuf,
    _scratch: Scratch,
}

impl Node {
    fn start(name: &str) -> Option<Self> {
        let scratch = Scratch::new(0)?;
        let cgroup = scratch.child("cgleaf-helper-node.service", 0);
        Self::with(name, scratch, &cgroup, &["--mode", "node-service"])
    }

    fn with(name: &str, scratch: Scratch, cgroup: &Path, arguments: &[&str]) -> Option<Self> {
        let directory = std::env::temp_dir().join(format!("cgleaf-s{}-{name}", tag()));
        fs::create_dir(&directory).expect("make a directory");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).expect("chmod");
        let socket = directory.join("helper.sock");
        let unit = Unit::start(cgroup, &socket, 0, arguments, None);
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).expect("chmod");
        Some(Self {
            unit: Some(unit),
            cgroup: cgroup.to_owned(),
            socket,
            directory,
            _scratch: scratch,
        })
    }

    fn client(&self) -> Client {
        self.unit.as_ref().expect("it runs").client()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.unit = None;
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// One test at a time: a process that another one starts meanwhile would have the file too, and close it.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stuck() -> Option<StuckFile> {
    match StuckFile::mount() {
        Ok(stuck) => Some(stuck),
        Err(why) => {
            skip(&format!("no FUSE here: {why}"));
            None
        }
    }
}

/// Asks, and does not wait for ever: what is to be shown is a helper that hangs.
fn assert_answers(client: &Client) {
    let request = wire::encode_request(&Request::Status).expect("a request");
    client.send(&request, None).expect("send a request");
    let limit = PollTimeout::try_from(DEADLINE / 3).expect("a short time");
    let ready = poll(&mut [PollFd::new(client.as_fd(), PollFlags::POLLIN)], limit);
    assert_eq!(ready, Ok(1), "the helper does not answer");
    let packet = client.receive().expect("a reply");
    assert!(matches!(
        wire::decode_reply(&packet.bytes),
        Ok(Reply::Status(_))
    ));
}

#[test]
fn a_descriptor_that_cannot_be_closed_stops_nobody() {
    let _alone = alone();
    let Some(node) = Node::start("stuck") else {
        return;
    };
    let Some(stuck) = stuck() else { return };
    let other = node.client();
    let file = stuck.open().expect("open the file");

    // With the greeting, before anything is known of whoever sends it.
    let silent = Client::connect_silently(&node.socket).expect("connect");
    let hello = wire::encode_hello(&Hello::ours()).expect("a hello");
    let _ = wire::send(silent.as_fd(), &hello, Some(file.as_fd()), true);
    assert_answers(&other);

    // With a request. Where the kernel can (6.16), it refuses at the sender already.
    let client = node.client();
    let request = wire::encode_request(&Request::Status).expect("a request");
    if client.send(&request, Some(file.as_fd())).is_ok() {
        let packet = client.receive().expect("a reply");
        let reply = wire::decode_reply(&packet.bytes).expect("a reply");
        assert!(
            matches!(&reply, Reply::Refused(refusal) if refusal.kind() == RefusalCode::BadDescriptor),
            "{reply:?}"
        );
    }
    assert_answers(&other);
    assert!(!stuck.somebody_waits());
}

/// What the helper relies on before 6.16: what is not received is dropped by the kernel without the wait of close(2).
#[test]
fn what_is_not_received_is_dropped_without_a_wait() {
    let _alone = alone();
    let Some(stuck) = stuck() else { return };
    let file = stuck.open().expect("open the file");
    let (here, there) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )
    .expect("a socketpair");
    for bytes in [&b"x"[..], b""] {
        wire::send(here.as_fd(), bytes, Some(file.as_fd()), true).expect("send the file");
        let packet = wire::receive_bytes(there.as_fd(), 10)
            .expect("receive")
            .expect("a packet");
        assert_eq!(
            (packet.bytes.as_slice(), packet.descriptors.len()),
            (bytes, 0)
        );
        assert!(packet.descriptors_refused && !packet.truncated);
    }
    assert!(!stuck.somebody_waits());
    // And this is the wait: a descriptor that was received is closed by somebody else than this test.
    wire::send(here.as_fd(), b"x", Some(file.as_fd()), true).expect("send the file");
    let closing = std::thread::spawn(move || drop(wire::receive(there.as_fd(), 10)));
    wait_until("somebody who waits", || stuck.somebody_waits());
    assert!(!closing.is_finished());
    drop(stuck);
    closing.join().expect("the wait ends with the file system");
}

/// A system service of one user, in that user's slice.
fn system_service(name: &str, uid: u32) -> Option<Node> {
    let scratch = Scratch::new(0)?;
    let slice = scratch.child(&format!("user-{uid}.slice"), 0);
    let cgroup = slice.join("cgleaf-helper.service");
    fs::create_dir(&cgroup).expect("make the unit's cgroup");
    Node::with(
        name,
        scratch,
        &cgroup,
        &["--mode", "system-service", "--uid", &uid.to_string()],
    )
}

/// Asks until nothing more is taken, and reads no answer: each holds a descriptor in flight.
fn deaf(client: &Client, request: &[u8]) {
    let asked = (0..100_000)
        .take_while(|_| wire::send(client.as_fd(), request, None, false).is_ok())
        .count();
    assert!(asked < 100_000, "every answer is kept");
}

/// Descriptors in flight are one purse for each uid, and all root instances are uid 0.
#[test]
fn slow_clients_of_one_root_instance_do_not_stop_another() {
    let _alone = alone();
    let Some(slow) = system_service("slow", 1000) else {
        return;
    };
    let Some(other) = system_service("other", 1001) else {
        return;
    };
    let slice = slow
        .cgroup
        .parent()
        .expect("a slice")
        .join("session-1.scope");
    fs::create_dir(&slice).expect("make the login's scope");
    let mut program = client_in(&slice, 1000, &[], &slow.socket, &["enrol=s"]);
    assert!(program.line().starts_with("enrolled"));
    let open = wire::encode_request(&Request::Open {
        session: "s".parse().expect("an id"),
    })
    .expect("a request");
    let crowd: Vec<Client> = (0..30).map(|_| slow.client()).collect();
    crowd.iter().for_each(|client| deaf(client, &open));

    assert_answers(&other.client());
    let theirs = other
        .cgroup
        .parent()
        .expect("a slice")
        .join("session-2.scope");
    fs::create_dir(&theirs).expect("make the login's scope");
    let mut neighbour = client_in(
        &theirs,
        1001,
        &[],
        &other.socket,
        &["enrol=n", "list", "kill=n"],
    );
    assert!(neighbour.line().starts_with("enrolled"));
    assert_eq!(neighbour.line(), "sessions n");
    // And of the one with the slow clients, its own user is still served.
    let mut user = client_in(&slice, 1000, &[], &slow.socket, &["list", "kill=s"]);
    assert_eq!(user.line(), "sessions s");
    assert_eq!(user.line(), "killed");
}
