//! Bytes that are no message, or not the right one.

use std::os::fd::AsFd;

use cgleaf_shared::id::SessionId;
use cgleaf_shared::wire::{self, Hello, PROTOCOL, RefusalCode, Reply, Request, Target};

use super::{NOW, a_request_of_each_kind, resident, unharmed};
use crate::helper::{Client, Lair, session};
use crate::scratch::wait_until;

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

pub fn random_and_mutated_messages_are_answered_or_end_their_connection(lair: &Lair) {
    const EACH: usize = 100_000;
    let mut program = lair.enrolled(&["enrol=bystander"]);
    assert!(program.line().starts_with("enrolled"));
    let mut target = Target::from(&lair.client().open("bystander").attestation);
    // Mutations start from a target that is not there, so that none of them can hit the bystander by its own name.
    target.session = "nobody".parse().unwrap();
    let (descriptors, memory) = (lair.descriptors(), resident(lair, NOW));
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    pour(
        lair,
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
        lair,
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
    unharmed(lair, descriptors, memory);
    assert!(
        program.child.try_wait().unwrap().is_none(),
        "the bystander lives"
    );
    let state = lair.client().open("bystander").state;
    assert!(!state.frozen && !state.held);
}

pub fn malformed_packets_get_bad_message_and_the_next_one_is_served(lair: &Lair) {
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
            Reply::Refused(refusal) => {
                assert_eq!(refusal.kind(), RefusalCode::BadMessage);
                // A sentence, and no value as a debugger shows it.
                assert!(!refusal.message.contains(['{', '(']), "{refusal}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(client.call(&Request::Status), Reply::Status(_)));
}

/// Whoever begins with anything else than one whole Hello is no client: the connection ends, and nothing is said.
pub fn who_does_not_begin_with_hello_is_hung_up_on(lair: &Lair) {
    let hello = wire::encode_hello(&Hello::ours()).unwrap();
    let another = Hello {
        magic: !wire::MAGIC,
        ..Hello::ours()
    };
    let pipe = std::io::pipe().unwrap();
    let first: [(Vec<u8>, Option<std::os::fd::BorrowedFd<'_>>); 7] = [
        (wire::encode_request(&Request::Status).unwrap(), None),
        (wire::encode_hello(&another).unwrap(), None),
        ([hello.as_slice(), &[0]].concat(), None),
        (hello[..hello.len() - 1].to_vec(), None),
        (vec![0; wire::MAX_REQUEST + 1], None),
        (vec![0xff], None),
        (hello, Some(pipe.0.as_fd())),
    ];
    for (bytes, descriptor) in first {
        let socket = Client::connect_silently(&lair.socket()).unwrap();
        wire::send(socket.as_fd(), &bytes, descriptor, true).unwrap();
        let said = wire::receive(socket.as_fd(), wire::MAX_REPLY).unwrap();
        assert_eq!(said.map(|packet| packet.bytes), None, "{bytes:x?}");
    }
}

/// An id that could be anything else than a leaf does not even decode.
pub fn no_id_names_anything_but_a_leaf(lair: &Lair) {
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
        let why = bad.parse::<SessionId>().unwrap_err().to_string();
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
                let message = refusal.message;
                assert!(message.ends_with(&why), "its own reason: {message}");
                assert!(message.starts_with("the packet is no message of this protocol: \""));
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

pub fn another_version_lists_and_kills_and_is_told_who_is_older(lair: &Lair) {
    let mut program = lair.enrolled(&["enrol=versions"]);
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
