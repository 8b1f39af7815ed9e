//! Clients that behave as none should.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use cgleaf_shared::wire::{self, RefusalCode, Reply, Request, Target};

use super::{NOW, a_request_of_each_kind, resident, unharmed};
use crate::helper::{Client, Lair, client_in};
use crate::scratch::Sleeper;

pub fn descriptors_are_closed_however_many_come(lair: &Lair) {
    let _program = {
        let mut program = lair.enrolled(&["enrol=described"]);
        assert!(program.line().starts_with("enrolled"));
        program
    };
    let client = lair.client();
    let target = Target::from(&client.open("described").attestation);
    let (descriptors, memory) = (lair.descriptors(), resident(lair, NOW));
    let file = fs::File::open("/dev/null").unwrap();
    for request in a_request_of_each_kind(&target) {
        let bytes = wire::encode_request(&request).unwrap();
        let raw = vec![file.as_raw_fd(); 253];
        nix::sys::socket::sendmsg::<()>(
            client.as_fd().as_raw_fd(),
            &[std::io::IoSlice::new(&bytes)],
            &[nix::sys::socket::ControlMessage::ScmRights(&raw)],
            nix::sys::socket::MsgFlags::empty(),
            None,
        )
        .unwrap();
        match wire::decode_reply(&client.receive().unwrap().bytes).unwrap() {
            Reply::Refused(refusal) => {
                assert_eq!(refusal.kind(), RefusalCode::BadDescriptor, "{request:?}");
            }
            other => panic!("{request:?}: {other:?}"),
        }
    }
    unharmed(lair, descriptors, memory);
}

pub fn one_that_never_reads_stops_nobody(lair: &Lair) {
    let mut program = lair.enrolled(&["enrol=deaf"]);
    assert!(program.line().starts_with("enrolled"));
    let (descriptors, memory) = (lair.descriptors(), resident(lair, NOW));
    let deaf = lair.client();
    let open = wire::encode_request(&Request::Open {
        session: "deaf".parse().unwrap(),
    })
    .unwrap();
    // Until its own queue is full as well: then the helper has stopped reading from it.
    let mut asked = 0;
    while wire::send(deaf.as_fd(), &open, None, false).is_ok() {
        asked += 1;
        if asked > 100_000 {
            panic!("the helper keeps every reply");
        }
        if asked % 64 == 0 {
            assert!(matches!(
                lair.client().call(&Request::Status),
                Reply::Status(_)
            ));
        }
    }
    let client = lair.client();
    let target = Target::from(&client.open("deaf").attestation);
    client.destroy(&target);
    drop(deaf);
    drop(client);
    drop(program);
    unharmed(lair, descriptors, memory);
}

pub fn ten_thousand_connections_and_silent_ones_leave_nothing(lair: &Lair) {
    drop(lair.client());
    let (descriptors, memory) = (lair.descriptors(), resident(lair, NOW));
    for _ in 0..10_000 {
        drop(Client::connect_silently(&lair.socket()).unwrap());
    }
    let silent: Vec<OwnedFd> = (0..200)
        .map(|_| Client::connect_silently(&lair.socket()).unwrap())
        .collect();
    // The oldest make room for the others.
    assert!(matches!(
        lair.client().call(&Request::Status),
        Reply::Status(_)
    ));
    drop(silent);
    unharmed(lair, descriptors, memory);
}

pub fn a_silent_client_is_closed_in_time(lair: &Lair) {
    let silent = Client::connect_silently(&lair.socket()).unwrap();
    assert!(
        wire::receive(silent.as_fd(), wire::MAX_REPLY)
            .unwrap()
            .is_none()
    );
    // So is one that begins with anything but Hello.
    let rude = Client::connect_silently(&lair.socket()).unwrap();
    wire::send(
        rude.as_fd(),
        &wire::encode_request(&Request::Status).unwrap(),
        None,
        true,
    )
    .unwrap();
    assert!(!matches!(
        wire::receive(rude.as_fd(), wire::MAX_REPLY),
        Ok(Some(_))
    ));
}

/// The helper looks at who made the connection: its holder may be anyone.
pub fn a_connection_whose_maker_has_ended_moves_nobody(lair: &Lair) {
    let before = lair.cgroups();
    let mut maker = lair.enrolled(&["inherit=enrol=mine"]);
    assert_eq!(maker.line(), "refused IdentityUnproven");
    assert_eq!(lair.cgroups(), before);
}

/// Whoever is root in a user namespace can forge credentials in a message; nobody asks for them.
pub fn credentials_in_a_message_mean_nothing(lair: &Lair) {
    let sleeper = Sleeper::new(0);
    let mut liar = lair.enrolled(&[&format!("forge=forged,{}", sleeper.pid())]);
    assert!(liar.line().starts_with("enrolled"));
    let members = fs::read_to_string(lair.scope().join("cgleaf-forged.leaf/cgroup.procs")).unwrap();
    assert_eq!(
        members.trim(),
        liar.pid().to_string(),
        "the liar itself was moved"
    );
}

pub fn another_users_sessions_are_not_there(lair: &Lair) {
    let mut program = lair.enrolled(&["enrol=roots"]);
    assert!(program.line().starts_with("enrolled"));
    open_to_all(lair);
    let outside = lair.scope().with_file_name("outside");
    let mut stranger = client_in(
        &outside,
        1000,
        &[],
        &lair.socket(),
        &["list", "kill=roots", "freeze=roots", "enrol=own,roots"],
    );
    assert_eq!(stranger.line(), "sessions");
    assert_eq!(stranger.line(), "refused NoSuchSession");
    assert_eq!(stranger.line(), "refused NoSuchSession");
    assert_eq!(stranger.line(), "refused NoSuchSession");
    assert!(program.child.try_wait().unwrap().is_none());
}

fn open_to_all(lair: &Lair) {
    use std::os::unix::fs::PermissionsExt;
    let socket = lair.socket();
    fs::set_permissions(socket.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
}
