//! Clients that wish a helper ill. It neither ends nor keeps others waiting, its memory and its descriptors come back, and
//! every refusal is the right one.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;

use cgleaf_shared::process::Pid;
use cgleaf_shared::wire::{self, FreezeFlag, Hello, PROTOCOL, RefusalCode, Reply, Request, Target};
use cgleaf_tests::helper::{Client, Lair, client_in, session};
use cgleaf_tests::scratch::{Sleeper, wait_until};

/// A small generator of numbers that look random: the same ones in each run (xorshift64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit).unwrap()).unwrap()
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

/// The helper's resident memory, in KiB.
fn resident(lair: &Lair) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", lair.pid())).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_ascii_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

/// The helper answers, has the descriptors that it had, and has not grown.
fn unharmed(lair: &Lair, descriptors: usize, memory: u64) {
    let client = lair.client();
    assert!(matches!(client.call(&Request::Status), Reply::Status(_)));
    drop(client);
    wait_until("the helper's descriptors to come back", || {
        lair.descriptors() <= descriptors
    });
    // A debug build, so that the limit of the release build does not hold; what counts is that nothing is kept.
    let now = resident(lair);
    assert!(now <= memory + 1024, "{memory} KiB became {now} KiB");
}

fn a_request_of_each_kind(target: &Target) -> Vec<Request> {
    let flag = FreezeFlag::Hold;
    vec![
        Request::List { after: None },
        Request::Open {
            session: target.session.clone(),
        },
        Request::Kill {
            target: target.clone(),
        },
        Request::Remove {
            target: target.clone(),
        },
        Request::Freeze {
            target: target.clone(),
            flag,
        },
        Request::Thaw {
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
        Request::Adopt {
            target: target.clone(),
        },
        Request::Attest {
            target: target.clone(),
            leader: Pid::own(),
        },
        Request::Create { new: session("x") },
        Request::Status,
    ]
}

/// One stream of packets; whenever the helper hangs up, the next one goes over a new connection.
fn pour(lair: &Lair, packets: impl Iterator<Item = Vec<u8>>) {
    let mut client = lair.client();
    for packet in packets {
        let answered = client.send(&packet, None).and_then(|()| client.receive());
        match answered {
            Ok(reply) => {
                wire::decode_reply(&reply.bytes).expect("every answer is a reply");
            }
            Err(_) => client = lair.client(),
        }
    }
}

#[test]
fn random_and_mutated_messages_are_answered_or_end_their_connection() {
    const EACH: usize = 100_000;
    let Some(lair) = Lair::new(0) else { return };
    let mut program = lair.enrolled(&["enrol=bystander"]);
    assert!(program.line().starts_with("enrolled"));
    let mut target = Target::from(&lair.client().open("bystander").attestation);
    // Mutations start from a target that is not there, so that none of them can hit the bystander by its own name.
    target.session = "nobody".parse().unwrap();
    let (descriptors, memory) = (lair.descriptors(), resident(&lair));
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    pour(
        &lair,
        (0..EACH).map(|_| {
            // An empty packet is the end of a connection to a reader: at least one byte.
            let length = 1 + numbers.below(120);
            numbers.bytes(length)
        }),
    );
    let valid: Vec<Vec<u8>> = a_request_of_each_kind(&target)
        .iter()
        .filter(|request| !matches!(request, Request::Create { .. }))
        .map(|request| wire::encode_request(request).unwrap())
        .collect();
    pour(
        &lair,
        (0..EACH).map(|_| {
            let mut packet = valid[numbers.below(valid.len())].clone();
            for _ in 0..=numbers.below(3) {
                let at = numbers.below(packet.len());
                packet[at] = numbers.next().to_le_bytes()[0];
            }
            if numbers.below(4) == 0 {
                packet.truncate(1 + numbers.below(packet.len()));
            }
            packet
        }),
    );
    unharmed(&lair, descriptors, memory);
    assert!(
        program.child.try_wait().unwrap().is_none(),
        "the bystander lives"
    );
    let state = lair.client().open("bystander").state;
    assert!(!state.frozen && !state.held);
}

#[test]
fn malformed_packets_get_bad_message_and_the_next_one_is_served() {
    let Some(lair) = Lair::new(0) else { return };
    let client = lair.client();
    let status = wire::encode_request(&Request::Status).unwrap();
    let trailing = [status.as_slice(), &[0]].concat();
    let truncated = wire::encode_request(&Request::Open {
        session: "abcdef".parse().unwrap(),
    })
    .unwrap();
    for packet in [
        trailing,
        truncated[..truncated.len() - 1].to_vec(),
        vec![0; wire::MAX_REQUEST + 1],
        vec![0xff; 64],
    ] {
        client.send(&packet, None).unwrap();
        match wire::decode_reply(&client.receive().unwrap().bytes).unwrap() {
            Reply::Refused(refusal) => assert_eq!(refusal.kind(), RefusalCode::BadMessage),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(client.call(&Request::Status), Reply::Status(_)));
}

/// An id that could be anything else than a leaf does not even decode.
#[test]
fn no_id_names_anything_but_a_leaf() {
    let Some(lair) = Lair::new(0) else { return };
    let before = lair.cgroups();
    let client = lair.client();
    let good = wire::encode_request(&Request::Create {
        new: session("aaaaaaaa"),
    })
    .unwrap();
    for bad in [
        "..aaaaaa",
        "../aaaaa",
        "/aaaaaaa",
        "a/../aaa",
        "a\0aaaaaa",
        "-aaaaaaa",
        "a aaaaaa",
    ] {
        let at = good
            .windows(8)
            .position(|window| window == b"aaaaaaaa")
            .unwrap();
        let mut packet = good.clone();
        packet[at..at + 8].copy_from_slice(bad.as_bytes());
        client.send(&packet, None).unwrap();
        match wire::decode_reply(&client.receive().unwrap().bytes).unwrap() {
            Reply::Refused(refusal) => {
                assert_eq!(refusal.kind(), RefusalCode::BadMessage, "{bad:?}");
            }
            other => panic!("{bad:?}: {other:?}"),
        }
    }
    // These are ids, and harmless ones: each leaf has its own prefix and ending.
    for odd in ["helper", "cgroup.procs", "x.service", "x.leaf"] {
        let attestation = client.create(session(odd));
        assert!(
            attestation
                .leaf_path
                .as_str()
                .ends_with(&format!("/cgleaf-{odd}.leaf"))
        );
    }
    drop(client);
    wait_until("the unborn leaves' end", || lair.cgroups() == before);
}

#[test]
fn another_version_lists_and_kills_and_is_told_who_is_older() {
    let Some(lair) = Lair::new(0) else { return };
    let mut program = lair.enrolled(&["enrol=one"]);
    assert!(program.line().starts_with("enrolled"));
    for (protocol, older) in [
        (PROTOCOL - 1, "this cgleaf is older"),
        (PROTOCOL + 1, "the helper is older"),
    ] {
        let socket = Client::connect_silently(&lair.socket()).unwrap();
        let hello = Hello {
            protocol,
            ..Hello::ours()
        };
        wire::send(
            socket.as_fd(),
            &wire::encode_hello(&hello).unwrap(),
            None,
            true,
        )
        .unwrap();
        let ask = |bytes: &[u8]| {
            wire::send(socket.as_fd(), bytes, None, true).unwrap();
            wire::receive(socket.as_fd(), wire::MAX_REPLY)
                .unwrap()
                .unwrap()
                .bytes
        };
        let welcome = wire::receive(socket.as_fd(), wire::MAX_REPLY)
            .unwrap()
            .unwrap();
        assert_eq!(
            wire::decode_welcome(&welcome.bytes).unwrap().protocol,
            PROTOCOL
        );
        let list = wire::encode_request(&Request::List { after: None }).unwrap();
        assert!(matches!(
            wire::decode_reply(&ask(&list)).unwrap(),
            Reply::Sessions { .. }
        ));
        // One that is not frozen, and one that this version has never heard of.
        for request in [
            wire::encode_request(&Request::Status).unwrap(),
            vec![200, 1, 2, 3],
        ] {
            match wire::decode_reply(&ask(&request)).unwrap() {
                Reply::Refused(refusal) => {
                    assert_eq!(refusal.kind(), RefusalCode::Version);
                    assert!(refusal.message.starts_with(older), "{}", refusal.message);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn descriptors_are_closed_however_many_come() {
    let Some(lair) = Lair::new(0) else { return };
    let _program = {
        let mut program = lair.enrolled(&["enrol=one"]);
        assert!(program.line().starts_with("enrolled"));
        program
    };
    let client = lair.client();
    let target = Target::from(&client.open("one").attestation);
    let (descriptors, memory) = (lair.descriptors(), resident(&lair));
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
    unharmed(&lair, descriptors, memory);
}

#[test]
fn one_that_never_reads_stops_nobody() {
    let Some(lair) = Lair::new(0) else { return };
    let mut program = lair.enrolled(&["enrol=one"]);
    assert!(program.line().starts_with("enrolled"));
    let (descriptors, memory) = (lair.descriptors(), resident(&lair));
    let deaf = lair.client();
    let open = wire::encode_request(&Request::Open {
        session: "one".parse().unwrap(),
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
    let target = Target::from(&client.open("one").attestation);
    client.destroy(&target);
    drop(deaf);
    drop(client);
    drop(program);
    unharmed(&lair, descriptors, memory);
}

#[test]
fn ten_thousand_connections_and_silent_ones_leave_nothing() {
    let Some(lair) = Lair::new(0) else { return };
    drop(lair.client());
    let (descriptors, memory) = (lair.descriptors(), resident(&lair));
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
    unharmed(&lair, descriptors, memory);
}

#[test]
fn a_silent_client_is_closed_in_time() {
    let Some(lair) = Lair::new(0) else { return };
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

/// The descriptors run out: those who are connected are served, one who comes later is told or waits, and once there is
/// room again everyone is served.
#[test]
fn when_descriptors_run_out_kill_and_list_still_work() {
    let Some(mut lair) = Lair::without_helper(0) else {
        return;
    };
    let mut command = Command::new("prlimit");
    let real = lair.command(&[]);
    command
        .arg("--nofile=80:80")
        .arg(real.get_program())
        .args(real.get_args())
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    lair.helper = Some(command.spawn().unwrap());
    wait_until("a helper that answers", || {
        Client::connect(&lair.socket()).is_ok()
    });
    let mut program = lair.enrolled(&["enrol=one"]);
    assert!(program.line().starts_with("enrolled"));
    let client = lair.client();
    let target = Target::from(&client.open("one").attestation);
    let mut crowd = Vec::new();
    let told = loop {
        let socket = Client::connect_silently(&lair.socket()).unwrap();
        match Client::greet(socket) {
            Ok(client) => crowd.push(client),
            Err(why) => break why.to_string(),
        }
        assert!(crowd.len() < 80);
    };
    assert!(!told.is_empty());
    assert_eq!(client.list().len(), 1);
    client.destroy(&target);
    drop(crowd);
    wait_until("room for another client", || {
        Client::connect(&lair.socket()).is_ok()
    });
}

/// The helper looks at who made the connection: its holder may be anyone.
#[test]
fn a_connection_whose_maker_has_ended_moves_nobody() {
    let Some(lair) = Lair::new(0) else { return };
    let mut maker = lair.enrolled(&["inherit=enrol=mine"]);
    assert_eq!(maker.line(), "refused IdentityUnproven");
    assert_eq!(lair.cgroups(), ["helper"]);
}

/// Whoever is root in a user namespace can forge credentials in a message; nobody asks for them.
#[test]
fn credentials_in_a_message_mean_nothing() {
    let Some(lair) = Lair::new(0) else { return };
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

#[test]
fn another_users_sessions_are_not_there() {
    let Some(lair) = Lair::new(0) else { return };
    let mut program = lair.enrolled(&["enrol=roots"]);
    assert!(program.line().starts_with("enrolled"));
    open_to_all(&lair);
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
