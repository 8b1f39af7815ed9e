//! Any message comes back from its bytes as it was, in one packet or not at all, and no damage to the bytes is more than an
//! error.

use cgleaf_shared::attestation::Attestation;
use cgleaf_shared::cgroup::CgroupPath;
use cgleaf_shared::id::{BootId, BootTime, CgroupId, Nonce, SessionId, SessionName, Uid};
use cgleaf_shared::process::{Pid, ProcessId, StartTicks};
use cgleaf_shared::wire::{
    CodecError, Created, Enforcement, FreezeFlag, Hello, LeafState, MAX_REPLY, MAX_REQUEST, Member,
    MembersPage, NewSession, Opened, Refusal, Removal, Reply, Request, SessionEntry, Status,
    Target, Thawed, VerdictReport, Welcome, decode_hello, decode_reply, decode_request,
    decode_welcome, encode_hello, encode_reply, encode_request, encode_welcome,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

const ID: &str = "[A-Za-z0-9_][A-Za-z0-9._-]{0,63}";

fn session() -> impl Strategy<Value = SessionId> {
    ID.prop_map(|text| text.parse().expect("an id of its alphabet"))
}

fn name() -> impl Strategy<Value = SessionName> {
    ID.prop_map(|text| text.parse().expect("a name of its alphabet"))
}

fn path() -> impl Strategy<Value = CgroupPath> {
    vec("[^/\u{0}]{1,40}", 0..6)
        .prop_map(|parts| CgroupPath::parse(&format!("/{}", parts.join("/"))))
        .prop_filter_map("`.` and `..` are no components", Result::ok)
}

fn pid() -> impl Strategy<Value = Pid> {
    (1..=i32::MAX).prop_map(|raw| Pid::new(raw).expect("a positive number"))
}

fn process() -> impl Strategy<Value = ProcessId> {
    (pid(), any::<u64>()).prop_map(|(pid, start)| ProcessId {
        pid,
        start: StartTicks(start),
    })
}

fn nonce() -> impl Strategy<Value = Nonce> {
    any::<[u8; 16]>().prop_map(Nonce::from_bytes)
}

fn id() -> impl Strategy<Value = CgroupId> {
    any::<u64>().prop_map(CgroupId)
}

fn target() -> impl Strategy<Value = Target> {
    (session(), id(), nonce()).prop_map(|(session, leaf_id, nonce)| Target {
        session,
        leaf_id,
        nonce,
    })
}

fn new_session() -> impl Strategy<Value = NewSession> {
    (session(), option::of(name()), option::of(session())).prop_map(|(session, name, parent)| {
        NewSession {
            session,
            name,
            parent,
        }
    })
}

fn flag() -> impl Strategy<Value = FreezeFlag> {
    prop_oneof![Just(FreezeFlag::User), Just(FreezeFlag::Hold)]
}

fn attestation() -> impl Strategy<Value = Attestation> {
    let ids = (id(), id(), id(), any::<[u8; 16]>(), nonce());
    let rest = (
        any::<u16>(),
        session(),
        path(),
        path(),
        any::<u32>(),
        any::<u64>(),
        ".{0,20}",
    );
    (ids, rest).prop_map(|((root_id, domain_id, leaf_id, boot, nonce), rest)| {
        let (format, session, domain_path, leaf_path, uid, created, helper_build) = rest;
        Attestation {
            format,
            session,
            nonce,
            boot_id: BootId::from_bytes(boot),
            root_id,
            domain_path,
            domain_id,
            leaf_path,
            leaf_id,
            owner_uid: Uid(uid),
            created: BootTime(created),
            helper_build,
        }
    })
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        option::of(session()).prop_map(|after| Request::List { after }),
        session().prop_map(|session| Request::Open { session }),
        target().prop_map(|target| Request::Kill { target }),
        target().prop_map(|target| Request::Remove { target }),
        new_session().prop_map(|new| Request::CreateAndEnrol { new }),
        new_session().prop_map(|new| Request::Create { new }),
        (target(), pid()).prop_map(|(target, leader)| Request::Attest { target, leader }),
        (target(), flag()).prop_map(|(target, flag)| Request::Freeze { target, flag }),
        (target(), flag()).prop_map(|(target, flag)| Request::Thaw { target, flag }),
        target().prop_map(|target| Request::IsFrozen { target }),
        (target(), option::of(pid()))
            .prop_map(|(target, after)| Request::Members { target, after }),
        target().prop_map(|target| Request::Adopt { target }),
        target().prop_map(|target| Request::Lease { target }),
        attestation().prop_map(|attestation| Request::Verify { attestation }),
        Just(Request::Status),
        Just(Request::Stop),
    ]
}

fn state() -> impl Strategy<Value = LeafState> {
    any::<[bool; 7]>().prop_map(
        |[
            populated,
            frozen,
            user_frozen,
            held,
            leased,
            poisoned,
            ancestor_frozen,
        ]| LeafState {
            populated,
            frozen,
            user_frozen,
            held,
            leased,
            poisoned,
            ancestor_frozen,
        },
    )
}

fn entry() -> impl Strategy<Value = SessionEntry> {
    (
        attestation(),
        option::of(name()),
        option::of(process()),
        option::of(pid()),
        state(),
    )
        .prop_map(
            |(attestation, name, leader, leader_inner, state)| SessionEntry {
                attestation,
                name,
                leader,
                leader_inner,
                state,
            },
        )
}

fn refusal() -> impl Strategy<Value = Refusal> {
    (any::<u16>(), ".{0,200}", any::<i32>(), ".{0,100}").prop_map(
        |(code, message, errno, socket)| Refusal {
            code,
            message,
            errno,
            socket,
        },
    )
}

fn members() -> impl Strategy<Value = MembersPage> {
    let member = (option::of(pid()), vec(any::<i32>(), 0..4), ".{0,60}").prop_map(
        |(pid, ns_pids, cgroup)| Member {
            pid,
            ns_pids,
            cgroup,
        },
    );
    (vec(member, 0..20), any::<u32>(), any::<bool>()).prop_map(|(members, total, more)| {
        MembersPage {
            members,
            total,
            more,
        }
    })
}

fn status() -> impl Strategy<Value = Status> {
    (pid(), vec(path(), 0..4), id(), id(), any::<[u32; 3]>()).prop_map(
        |(pid, scope_paths, scope_id, root_id, [sessions, clients, uid])| Status {
            pid,
            scope_paths,
            scope_id,
            root_id,
            sessions,
            clients,
            uid: Uid(uid),
        },
    )
}

fn reply() -> impl Strategy<Value = Reply> {
    let verdict = prop_oneof![
        state().prop_map(VerdictReport::Proven),
        Just(VerdictReport::Gone),
        ".{0,80}".prop_map(VerdictReport::Foreign),
        ".{0,80}".prop_map(VerdictReport::Unreadable),
    ];
    prop_oneof![
        refusal().prop_map(Reply::Refused),
        (vec(entry(), 0..5), any::<bool>())
            .prop_map(|(sessions, more)| Reply::Sessions { sessions, more }),
        entry().prop_map(|entry| Reply::Opened(Opened { entry })),
        Just(Reply::Killed),
        (any::<bool>(), vec((path(), any::<i32>()), 0..5))
            .prop_map(|(removed, leftover)| Reply::Removed(Removal { removed, leftover })),
        (attestation(), option::of(".{0,80}")).prop_map(|(attestation, left_service)| {
            Reply::Created(Created {
                attestation,
                left_service,
            })
        }),
        attestation().prop_map(Reply::Attested),
        Just(Reply::FreezeRequested),
        (vec(flag(), 0..3), option::of(path()), vec(path(), 0..3)).prop_map(
            |(still_flagged, frozen_ancestor, frozen_beneath)| Reply::Thawed(Thawed {
                still_flagged,
                frozen_ancestor,
                frozen_beneath,
            })
        ),
        option::of(".{0,60}").prop_map(|not_yet| Reply::Frozen { not_yet }),
        members().prop_map(Reply::Members),
        Just(Reply::Adopted),
        Just(Reply::Leased),
        verdict.prop_map(Reply::Verified),
        status().prop_map(Reply::Status),
        Just(Reply::Stopping),
    ]
}

fn welcome() -> impl Strategy<Value = Welcome> {
    let part =
        (".{0,20}", any::<bool>(), ".{0,80}").prop_map(|(part, enforced, detail)| Enforcement {
            part,
            enforced,
            detail,
        });
    (
        any::<u32>(),
        any::<u16>(),
        ".{0,20}",
        ".{0,20}",
        vec(part, 0..12),
    )
        .prop_map(|(magic, protocol, build, mode, enforced)| Welcome {
            magic,
            protocol,
            build,
            mode,
            enforced,
        })
}

/// What a hostile or broken peer may do to a packet.
#[derive(Debug, Clone)]
enum Damage {
    Cut(prop::sample::Index),
    Flip(prop::sample::Index, u8),
    Append(Vec<u8>),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        any::<prop::sample::Index>().prop_map(Damage::Cut),
        (any::<prop::sample::Index>(), 1_u8..).prop_map(|(at, bits)| Damage::Flip(at, bits)),
        vec(any::<u8>(), 1..40).prop_map(Damage::Append),
    ]
}

fn apply(damage: &Damage, bytes: &mut Vec<u8>) {
    match damage {
        Damage::Cut(at) => bytes.truncate(at.index(bytes.len())),
        Damage::Flip(at, bits) => {
            let at = at.index(bytes.len());
            bytes[at] ^= bits;
        }
        Damage::Append(more) => bytes.extend(more),
    }
}

proptest! {
    #[test]
    fn a_request_comes_back_as_it_was(request in request()) {
        let bytes = encode_request(&request).expect("every request fits a packet");
        prop_assert!(bytes.len() <= MAX_REQUEST);
        prop_assert_eq!(decode_request(&bytes), Ok(request));
    }

    #[test]
    fn a_reply_comes_back_as_it_was(reply in reply()) {
        let bytes = encode_reply(&reply).expect("replies of this size fit a packet");
        prop_assert!(bytes.len() <= MAX_REPLY);
        prop_assert_eq!(decode_reply(&bytes), Ok(reply));
    }

    #[test]
    fn the_greetings_come_back_as_they_were(welcome in welcome(), magic: u32, protocol: u16, build in ".{0,20}") {
        let bytes = encode_welcome(&welcome).expect("it fits");
        prop_assert_eq!(decode_welcome(&bytes), Ok(welcome));
        let hello = Hello { magic, protocol, build };
        let bytes = encode_hello(&hello).expect("it fits");
        prop_assert_eq!(decode_hello(&bytes), Ok(hello));
    }

    #[test]
    fn a_prefix_is_no_message_and_neither_is_a_longer_text(request in request(), at: prop::sample::Index, more in 1_u8..) {
        let mut bytes = encode_request(&request).expect("it fits");
        prop_assert!(decode_request(&bytes[..at.index(bytes.len())]).is_err());
        bytes.push(more);
        prop_assert_eq!(decode_request(&bytes), Err(CodecError::Trailing(1)));
    }

    /// A damaged request is refused or is another request that this version could have sent.
    #[test]
    fn damage_gives_an_error_or_a_message(request in request(), hits in vec(damage(), 1..4)) {
        let mut bytes = encode_request(&request).expect("it fits");
        for hit in &hits {
            if bytes.is_empty() {
                break;
            }
            apply(hit, &mut bytes);
        }
        if let Ok(other) = decode_request(&bytes) {
            prop_assert_eq!(decode_request(&encode_request(&other).expect("it came in a packet")), Ok(other));
        }
    }

    #[test]
    fn any_bytes_are_an_error_or_a_message(bytes in vec(any::<u8>(), 0..300)) {
        for (name, target) in cgleaf_tests::fuzzing::TARGETS {
            if matches!(*name, "requests" | "replies") {
                target(&bytes);
            }
        }
    }
}

#[test]
fn a_packet_over_its_direction_s_limit_is_not_even_read() {
    assert_eq!(
        decode_request(&vec![0; MAX_REQUEST + 1]),
        Err(CodecError::TooLong(MAX_REQUEST + 1))
    );
    assert_eq!(
        decode_reply(&vec![0; MAX_REPLY + 1]),
        Err(CodecError::TooLong(MAX_REPLY + 1))
    );
}

/// A length that no packet can hold must not be believed: it would be allocated.
#[test]
fn a_length_beyond_the_packet_is_refused() {
    // Hello: magic and protocol as variable-length integers, then a build of 2^63 bytes.
    let mut bytes = encode_hello(&Hello {
        magic: 1,
        protocol: 1,
        build: String::new(),
    })
    .expect("it fits");
    bytes.pop();
    bytes.push(253);
    bytes.extend((1_u64 << 63).to_le_bytes());
    assert!(matches!(
        decode_hello(&bytes),
        Err(CodecError::Malformed(_))
    ));
}
