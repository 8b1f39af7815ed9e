//! What the fuzzers of tests/fuzz run, as plain functions, so that tests/tests/corpus.rs replays every input that was ever
//! interesting without a fuzzer. A target takes any bytes; it panics where the code under test panics or breaks a promise.

use cgleaf::records;
use cgleaf_shared::cgroup::{self, CgroupPath, Events};
use cgleaf_shared::id::BootId;
use cgleaf_shared::process::{files, stat, status};
use cgleaf_shared::wire::{
    MAX_REPLY, MAX_REQUEST, decode_hello, decode_reply, decode_request, decode_welcome,
    encode_hello, encode_reply, encode_request, encode_welcome,
};

/// A target: its name, which is its corpus's directory too, and what it does.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[
    ("requests", requests),
    ("replies", replies),
    ("mountinfo", mountinfo),
    ("stat", process_stat),
    ("status", process_status),
    ("events", cgroup_events),
    ("proc_cgroup", process_cgroup),
    ("proc_files", process_files),
    ("record", record),
];

/// Runs the target of that name.
///
/// # Panics
/// Where there is none.
pub fn run(name: &str, data: &[u8]) {
    let (_, target) = TARGETS
        .iter()
        .find(|(known, _)| *known == name)
        .expect("a target of that name");
    target(data);
}

/// What a helper decodes. Whatever decodes can be sent on, fits its packet and comes back the same.
fn requests(data: &[u8]) {
    if let Ok(hello) = decode_hello(data) {
        let bytes = encode_hello(&hello).expect("a hello that came in a packet fits one");
        assert!(bytes.len() <= MAX_REQUEST);
        assert_eq!(decode_hello(&bytes), Ok(hello));
    }
    if let Ok(request) = decode_request(data) {
        let bytes = encode_request(&request).expect("a request that came in a packet fits one");
        assert!(bytes.len() <= MAX_REQUEST);
        assert_eq!(decode_request(&bytes), Ok(request));
    }
}

/// What a frontend decodes.
fn replies(data: &[u8]) {
    if let Ok(welcome) = decode_welcome(data) {
        let bytes = encode_welcome(&welcome).expect("a welcome that came in a packet fits one");
        assert!(bytes.len() <= MAX_REPLY);
        assert_eq!(decode_welcome(&bytes), Ok(welcome));
    }
    if let Ok(reply) = decode_reply(data) {
        let bytes = encode_reply(&reply).expect("a reply that came in a packet fits one");
        assert!(bytes.len() <= MAX_REPLY);
        assert_eq!(decode_reply(&bytes), Ok(reply));
    }
}

fn mountinfo(data: &[u8]) {
    let mounts = cgroup::parse_mountinfo(data);
    assert!(mounts.len() <= data.split(|byte| *byte == b'\n').count());
    let unified = cgroup::cgroup2_mounts(&mounts);
    assert!(
        unified
            .iter()
            .all(|mount| mount.fs_type == "cgroup2" && mounts.contains(mount))
    );
    let some_unified = matches!(
        cgroup::layout(&mounts),
        cgroup::Layout::Pure | cgroup::Layout::Hybrid
    );
    assert_eq!(some_unified, !unified.is_empty());
}

fn process_stat(data: &[u8]) {
    if let Some(stat) = stat::parse(data) {
        assert!(stat.id.pid.get() > 0);
        assert!(
            stat.comm.is_empty()
                || data
                    .windows(stat.comm.len())
                    .any(|window| window == stat.comm)
        );
    }
}

fn process_status(data: &[u8]) {
    if let Some(status) = status::parse(data) {
        assert!(status.pid.get() > 0 && status.tgid.get() > 0);
        assert!(status.ns_pids.iter().all(|pid| pid.get() > 0));
    }
}

fn cgroup_events(data: &[u8]) {
    if Events::parse(data).is_some() {
        let text = String::from_utf8_lossy(data);
        assert!(text.contains("populated ") && text.contains("frozen "));
    }
}

fn process_cgroup(data: &[u8]) {
    let Ok(path) = cgroup::parse_proc_cgroup(data) else {
        return;
    };
    assert_eq!(CgroupPath::parse(path.as_str()).as_ref(), Ok(&path));
    assert!(path.ancestors().all(|above| path.is_within(&above)));
    assert!(!path.relative().is_absolute());
    assert!(
        path.relative()
            .components()
            .all(|part| part != std::path::Component::ParentDir)
    );
}

fn process_files(data: &[u8]) {
    assert!(files::parse_children(data).iter().all(|pid| pid.get() > 0));
    assert!(files::parse_cmdline(data).len() <= data.len());
    let _ = files::parse_autogroup(data);
    if let Some(mark) = files::environ_value(data, "CGLEAF_MARK") {
        assert!(!mark.contains(&0));
    }
    if let Some(id) = std::str::from_utf8(data)
        .ok()
        .and_then(|text| text.parse::<BootId>().ok())
    {
        assert_eq!(id.to_string().parse(), Ok(id));
    }
}

/// The first line names the session that the record should be of.
fn record(data: &[u8]) {
    let (session, bytes) = data.split_at(data.iter().position(|byte| *byte == b'\n').unwrap_or(0));
    let session = std::str::from_utf8(session)
        .ok()
        .and_then(|text| text.parse().ok());
    let session = session.unwrap_or_else(|| "s".parse().expect("a session id"));
    if let records::Found::Record(record) = records::parse(bytes, &session) {
        assert_eq!(record.session, session);
    }
}
