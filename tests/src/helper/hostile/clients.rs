//! Clients that behave as none should.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use cgleaf_shared::process::{Pid, Pidfd};
use cgleaf_shared::wire::{self, FreezeFlag, Hello, RefusalCode, Reply, Request, Target};

use super::{NOW, a_request_of_each_kind, resident, unharmed};
use crate::helper::{Client, Lair, client_in, session};
use crate::scratch::{Sleeper, wait_until};

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
    // So is one that begins with anything but Hello, or with that of another program.
    let stranger = Client::connect_silently(&lair.socket()).unwrap();
    let hello = Hello {
        magic: wire::MAGIC + 1,
        ..Hello::ours()
    };
    wire::send(
        stranger.as_fd(),
        &wire::encode_hello(&hello).unwrap(),
        None,
        true,
    )
    .unwrap();
    assert!(!matches!(
        wire::receive(stranger.as_fd(), wire::MAX_REPLY),
        Ok(Some(_))
    ));
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

/// Its connection ends after each of its packets, the answers read or not.
pub fn one_that_dies_at_each_step_leaves_nothing(lair: &Lair) {
    let mut program = lair.enrolled(&["enrol=stays"]);
    assert!(program.line().starts_with("enrolled"));
    let target = Target::from(&lair.client().open("stays").attestation);
    let (descriptors, memory) = (lair.descriptors(), resident(lair, NOW));
    let before = lair.cgroups();
    let packets = packets_of_a_life(&target);
    for answers in [Answers::Read, Answers::Unread, Answers::Impossible] {
        for count in 0..=packets.len() {
            die_after(lair, &packets[..count], answers);
        }
    }
    wait_until("the end of its holds", || {
        let state = lair.client().open("stays").state;
        !state.held && !state.frozen
    });
    wait_until("the end of its leaves", || lair.cgroups() == before);
    unharmed(lair, descriptors, memory);
    assert!(program.child.try_wait().unwrap().is_none());
}

/// What a client does with what it is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answers {
    Read,
    Unread,
    /// It has closed its side for reading: whatever is sent to it fails.
    Impossible,
}

fn packets_of_a_life(target: &Target) -> Vec<Vec<u8>> {
    let flag = FreezeFlag::Hold;
    let requests = [
        Request::Create {
            new: session("dies"),
        },
        Request::Open {
            session: target.session.clone(),
        },
        Request::Freeze {
            target: target.clone(),
            flag,
        },
        Request::IsFrozen {
            target: target.clone(),
        },
        Request::Members {
            target: target.clone(),
            after: None,
        },
    ];
    let requests = requests
        .iter()
        .map(|request| wire::encode_request(request).unwrap());
    std::iter::once(wire::encode_hello(&Hello::ours()).unwrap())
        .chain(requests)
        .collect()
}

fn die_after(lair: &Lair, packets: &[Vec<u8>], answers: Answers) {
    let socket = Client::connect_silently(&lair.socket()).unwrap();
    if answers == Answers::Impossible {
        nix::sys::socket::shutdown(socket.as_raw_fd(), nix::sys::socket::Shutdown::Read).unwrap();
    }
    for packet in packets {
        // The helper hangs up on who cannot be answered.
        let sent = wire::send(socket.as_fd(), packet, None, true);
        assert!(sent.is_ok() || answers == Answers::Impossible, "{sent:?}");
        if answers == Answers::Read {
            let answer = wire::receive(socket.as_fd(), wire::MAX_REPLY).unwrap();
            assert!(answer.is_some());
        }
    }
}

/// Who has said all that it will say still gets its answers.
pub fn one_that_only_reads_any_more_is_answered(lair: &Lair) {
    let socket = Client::connect_silently(&lair.socket()).unwrap();
    let hello = wire::encode_hello(&Hello::ours()).unwrap();
    let status = wire::encode_request(&Request::Status).unwrap();
    for packet in [hello, status] {
        wire::send(socket.as_fd(), &packet, None, true).unwrap();
    }
    nix::sys::socket::shutdown(socket.as_raw_fd(), nix::sys::socket::Shutdown::Write).unwrap();
    let answers = || wire::receive(socket.as_fd(), wire::MAX_REPLY).unwrap();
    assert!(wire::decode_welcome(&answers().unwrap().bytes).is_ok());
    let reply = wire::decode_reply(&answers().unwrap().bytes);
    assert!(matches!(reply, Ok(Reply::Status(_))), "{reply:?}");
    assert!(answers().is_none());
}

/// Whatever names another process is refused, or means whoever asks.
pub fn nobody_else_is_moved(lair: &Lair) {
    let client = lair.client();
    let target = Target::from(&client.create(session("empty")));
    let helper = Pid::new(lair.pid().cast_signed()).unwrap();
    for other in [Pid::new(1).unwrap(), helper, Pid::own()] {
        let attest = Request::Attest {
            target: target.clone(),
            leader: other,
        };
        assert_eq!(client.refused(&attest), RefusalCode::NotAMember, "{other}");
    }
    for other in [Pid::new(1).unwrap(), helper] {
        let pidfd = Pidfd::open(other).unwrap();
        let adopt = Request::Adopt {
            target: target.clone(),
        };
        match client.call_full(&adopt, Some(pidfd.as_fd())).0 {
            Reply::Refused(refusal) => {
                assert_eq!(refusal.kind(), RefusalCode::NotAdoptable, "{other}");
            }
            reply => panic!("{other}: {reply:?}"),
        }
    }
    let leaf = lair.scope().join("cgleaf-empty.leaf/cgroup.procs");
    assert_eq!(fs::read_to_string(leaf).unwrap(), "");
    for (id, other) in [("init", 1), ("helpers", helper.get())] {
        let mut liar = lair.enrolled(&[&format!("forge={id},{other}")]);
        assert!(liar.line().starts_with("enrolled"));
        let procs = lair.scope().join(format!("cgleaf-{id}.leaf/cgroup.procs"));
        let members = fs::read_to_string(procs).unwrap();
        assert_eq!(members.trim(), liar.pid().to_string());
    }
    drop(client);
    wait_until("the end of the empty leaf", || {
        !lair.cgroups().contains(&"cgleaf-empty.leaf".to_owned())
    });
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
