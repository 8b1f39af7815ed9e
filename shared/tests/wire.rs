//! The wire format, held to its bytes: an old frontend and a new helper must go on understanding each other.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};

use cgleaf_shared::attestation::Attestation;
use cgleaf_shared::cgroup::CgroupPath;
use cgleaf_shared::id::{BootId, BootTime, CgroupId, Nonce, SessionId, Uid};
use cgleaf_shared::process::{Pid, ProcessId, StartTicks};
use cgleaf_shared::wire::*;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

fn session() -> SessionId {
    "s-1".parse().unwrap()
}

fn path(text: &str) -> CgroupPath {
    CgroupPath::parse(text).unwrap()
}

fn attestation() -> Attestation {
    Attestation {
        format: 1,
        session: session(),
        nonce: Nonce::from_bytes([0xaa; 16]),
        boot_id: BootId::from_bytes([0xbb; 16]),
        root_id: CgroupId(1),
        domain_path: path("/d"),
        domain_id: CgroupId(300),
        leaf_path: path("/d/l"),
        leaf_id: CgroupId(70_000),
        owner_uid: Uid(1000),
        created: BootTime(5_000_000_000),
        helper_build: "0.1.0".into(),
    }
}

fn target() -> Target {
    Target::from(&attestation())
}

fn new_session() -> NewSession {
    NewSession {
        session: session(),
        name: Some("n".parse().unwrap()),
        parent: None,
    }
}

fn entry() -> SessionEntry {
    SessionEntry {
        attestation: attestation(),
        name: None,
        leader: Some(ProcessId {
            pid: Pid::new(77).unwrap(),
            start: StartTicks(9),
        }),
        leader_inner: None,
        state: LeafState {
            populated: true,
            frozen: false,
            user_frozen: false,
            held: true,
            leased: false,
            poisoned: false,
            ancestor_frozen: false,
        },
    }
}

const TARGET: &str = "03732d31fc70110100aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const ATTESTATION: &str = "0103732d31aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb01022f64fb2c01042f642f6cfc70110100\
    fbe803fd00f2052a0100000005302e312e30";
const STATE: &str = "01000001000000";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The requests in the order of their numbers, with the bytes that protocol 1 has for them.
fn requests() -> Vec<(Request, String)> {
    let pid = Pid::new(5).unwrap();
    vec![
        (
            Request::List {
                after: Some(session()),
            },
            "000103732d31".into(),
        ),
        (Request::Open { session: session() }, "0103732d31".into()),
        (Request::Kill { target: target() }, format!("02{TARGET}")),
        (Request::Remove { target: target() }, format!("03{TARGET}")),
        (
            Request::CreateAndEnrol { new: new_session() },
            "0403732d3101016e00".into(),
        ),
        (
            Request::Create { new: new_session() },
            "0503732d3101016e00".into(),
        ),
        (
            Request::Attest {
                target: target(),
                leader: pid,
            },
            format!("06{TARGET}0a"),
        ),
        (
            Request::Freeze {
                target: target(),
                flag: FreezeFlag::User,
            },
            format!("07{TARGET}00"),
        ),
        (
            Request::Thaw {
                target: target(),
                flag: FreezeFlag::Hold,
            },
            format!("08{TARGET}01"),
        ),
        (
            Request::IsFrozen { target: target() },
            format!("09{TARGET}"),
        ),
        (
            Request::Members {
                target: target(),
                after: None,
            },
            format!("0a{TARGET}00"),
        ),
        (Request::Adopt { target: target() }, format!("0b{TARGET}")),
        (Request::Lease { target: target() }, format!("0c{TARGET}")),
        (
            Request::Verify {
                attestation: attestation(),
            },
            format!("0d{ATTESTATION}"),
        ),
        (Request::Status, "0e".into()),
        (Request::Stop, "0f".into()),
    ]
}

#[test]
fn requests_have_the_bytes_that_they_always_had() {
    for (request, bytes) in requests() {
        assert_eq!(
            hex(&encode_request(&request).unwrap()),
            bytes,
            "{request:?}"
        );
        assert_eq!(
            decode_request(&encode_request(&request).unwrap()).unwrap(),
            request
        );
    }
}

#[test]
fn the_frozen_answers_have_the_bytes_that_they_always_had() {
    let frozen: [(Reply, String); 5] = [
        (
            Reply::Refused(Refusal::new(RefusalCode::NoSuchSession, "no")),
            "0006026e6f0000".into(),
        ),
        (
            Reply::Sessions {
                sessions: vec![entry()],
                more: false,
            },
            format!("0101{ATTESTATION}00019a0900{STATE}00"),
        ),
        (
            Reply::Opened(Opened { entry: entry() }),
            format!("02{ATTESTATION}00019a0900{STATE}"),
        ),
        (Reply::Killed, "03".into()),
        (
            Reply::Removed(Removal {
                removed: false,
                leftover: vec![(path("/d/l/x"), 16)],
            }),
            "040001062f642f6c2f7820".into(),
        ),
    ];
    for (reply, bytes) in frozen {
        assert_eq!(hex(&encode_reply(&reply).unwrap()), bytes, "{reply:?}");
        assert_eq!(decode_reply(&encode_reply(&reply).unwrap()).unwrap(), reply);
    }
}

#[test]
fn the_greetings_have_the_bytes_that_they_always_had() {
    let hello = Hello {
        magic: MAGIC,
        protocol: 1,
        build: "0.1.0".into(),
    };
    assert_eq!(
        hex(&encode_hello(&hello).unwrap()),
        "fc666c67630105302e312e30"
    );
    let part = Enforcement {
        part: "seccomp".into(),
        enforced: true,
        detail: String::new(),
    };
    let welcome = Welcome {
        magic: MAGIC,
        protocol: 1,
        build: "0.1.0".into(),
        mode: "scope".into(),
        enforced: vec![part],
    };
    let bytes = encode_welcome(&welcome).unwrap();
    assert_eq!(
        hex(&bytes),
        "fc666c67630105302e312e300573636f70650107736563636f6d700100"
    );
    assert_eq!(decode_welcome(&bytes).unwrap(), welcome);
}

#[test]
fn anything_but_exactly_one_message_is_refused() {
    assert!(matches!(decode_request(&[]), Err(CodecError::Malformed(_))));
    assert_eq!(decode_request(&[0x0e, 0]), Err(CodecError::Trailing(1)));
    assert!(
        matches!(decode_request(&[0xfa]), Err(CodecError::Malformed(_))),
        "an unknown variant"
    );
    assert_eq!(
        decode_request(&vec![0; MAX_REQUEST + 1]),
        Err(CodecError::TooLong(MAX_REQUEST + 1))
    );
    for (request, _) in requests() {
        let bytes = encode_request(&request).unwrap();
        for cut in 0..bytes.len() {
            assert!(
                decode_request(&bytes[..cut]).is_err(),
                "{request:?} cut to {cut}"
            );
        }
    }
    // A length of 2^64-1 must not be believed.
    let huge = [&[0x01, 0xfd][..], &[0xff; 8]].concat();
    assert!(matches!(
        decode_request(&huge),
        Err(CodecError::Malformed(_))
    ));
    // Ids are checked where they come in.
    for id in ["..", "a/b", "", "a\0"] {
        let mut bytes = vec![0x01, u8::try_from(id.len()).unwrap()];
        bytes.extend_from_slice(id.as_bytes());
        assert!(
            matches!(decode_request(&bytes), Err(CodecError::Malformed(_))),
            "{id:?}"
        );
    }
}

fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
    )
    .unwrap()
}

#[test]
fn a_packet_keeps_its_bounds_and_carries_one_descriptor() {
    let (here, there) = pair();
    assert_eq!(
        receive(there.as_fd(), 10).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    let file = std::fs::File::open("/dev/null").unwrap();
    send(here.as_fd(), b"one", Some(file.as_fd()), false).unwrap();
    send(here.as_fd(), b"two", None, false).unwrap();
    send(here.as_fd(), &[b'x'; 11], None, false).unwrap();
    let packet = receive(there.as_fd(), 10).unwrap().unwrap();
    assert_eq!(
        (
            packet.bytes.as_slice(),
            packet.descriptors.len(),
            packet.truncated
        ),
        (&b"one"[..], 1, false)
    );
    assert_eq!(receive(there.as_fd(), 10).unwrap().unwrap().bytes, b"two");
    assert!(
        receive(there.as_fd(), 10).unwrap().unwrap().truncated,
        "one byte over the limit"
    );
    drop(here);
    assert!(receive(there.as_fd(), 10).unwrap().is_none());
    assert_eq!(
        send(there.as_fd(), b"x", None, false).unwrap_err().kind(),
        ErrorKind::BrokenPipe
    );
}

#[test]
fn a_reply_fits_a_packet_of_the_default_buffer() {
    let (here, there) = pair();
    send(here.as_fd(), &vec![7; MAX_REPLY], None, false).unwrap();
    assert_eq!(
        receive(there.as_fd(), MAX_REPLY)
            .unwrap()
            .unwrap()
            .bytes
            .len(),
        MAX_REPLY
    );
}
