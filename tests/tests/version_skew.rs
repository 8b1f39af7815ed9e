//! A frontend and a helper that are one protocol version apart, both ways: sessions are listed and ended, and one line says which
//! side is older. In between stands somebody who makes of this version's helper another version's: it tells that number, and
//! answers what is not frozen as that one would.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use cgleaf_shared::wire::{self, Hello, PROTOCOL, Refusal, RefusalCode, Reply};
use cgleaf_tests::frontend::{Sandbox, finish};
use cgleaf_tests::helper::Client;
use cgleaf_tests::scratch::cgroup_mount;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept4, bind, listen, socket,
};

/// Listens at a socket for as long as the test runs.
fn other_version(at: &Path, helper: PathBuf, protocol: u16) {
    let flags = SockFlag::SOCK_CLOEXEC;
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).expect("a socket");
    bind(listener.as_raw_fd(), &UnixAddr::new(at).expect("a path")).expect("bind");
    listen(&listener, Backlog::new(16).expect("a backlog")).expect("listen");
    std::thread::spawn(move || {
        while let Ok(client) = accept4(&listener, flags) {
            let helper = helper.clone();
            // It ends with either side's end.
            std::thread::spawn(move || relay(&client, &helper, protocol));
        }
    });
}

fn relay(client: &OwnedFd, helper: &Path, protocol: u16) -> Option<()> {
    let upstream = Client::connect_silently(helper).ok()?;
    let greeting = wire::receive(client.as_fd(), wire::MAX_REQUEST).ok()??;
    let hello = wire::decode_hello(&greeting.bytes).ok()?;
    assert_eq!(hello.protocol, PROTOCOL);
    let ours = wire::encode_hello(&Hello::ours()).ok()?;
    wire::send(upstream.as_fd(), &ours, None, true).ok()?;
    let welcome = wire::receive(upstream.as_fd(), wire::MAX_REPLY).ok()??;
    let mut welcome = wire::decode_welcome(&welcome.bytes).ok()?;
    welcome.protocol = protocol;
    let welcome = wire::encode_welcome(&welcome).ok()?;
    wire::send(client.as_fd(), &welcome, None, true).ok()?;
    loop {
        let packet = wire::receive(client.as_fd(), wire::MAX_REQUEST).ok()??;
        let request = wire::decode_request(&packet.bytes).ok()?;
        if !request.is_frozen() {
            let refusal = Refusal::new(RefusalCode::Version, "of another version");
            let reply = wire::encode_reply(&Reply::Refused(refusal)).ok()?;
            wire::send(client.as_fd(), &reply, None, true).ok()?;
            continue;
        }
        let descriptor = packet.descriptors.first().map(AsFd::as_fd);
        wire::send(upstream.as_fd(), &packet.bytes, descriptor, true).ok()?;
        let reply = wire::receive(upstream.as_fd(), wire::MAX_REPLY).ok()??;
        let descriptor = reply.descriptors.first().map(AsFd::as_fd);
        wire::send(client.as_fd(), &reply.bytes, descriptor, true).ok()?;
    }
}

/// B25: a helper of another protocol version keeps running, and its sessions can be listed and ended.
#[test]
fn sessions_of_another_versions_helper_are_listed_and_ended() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for (protocol, older) in [
        (PROTOCOL - 1, "the helper is older"),
        (PROTOCOL + 1, "this cgleaf is older"),
    ] {
        let ids = ["a", "b", "c"].map(|id| format!("{id}{protocol}"));
        let mut leaders = ids
            .each_ref()
            .map(|id| sandbox.background(id, ["sh", "-c", "sleep 1000 & exec sleep 1000"]));
        let socket = sandbox.runtime().join(format!("v{protocol}.sock"));
        let helper = sandbox.runtime().join("cgleaf/run/direct.sock");
        other_version(&socket, helper, protocol);
        let run = |words: &[&str]| {
            let named = ["--socket", socket.to_str().expect("a path")];
            sandbox.run(named.iter().chain(words))
        };
        let listed = run(&["--json", "list"]);
        let sessions = listed.json()["result"]["sessions"].clone();
        assert_eq!(sessions[0]["state"], "running", "{listed:?}");
        assert_eq!(
            sessions.as_array().expect("sessions").len(),
            3,
            "{listed:?}"
        );

        // What is not frozen: one line, which says who is older.
        for words in [&["freeze", &ids[0]][..], &["signal", &ids[0], "WINCH"]] {
            let refused = run(words);
            assert_eq!(refused.code(), 9, "{refused:?}");
            assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
            assert!(refused.stderr.contains(older), "{refused:?}");
        }
        for words in [&["exec", "--", "true"][..], &["run", "--", "true"]] {
            let refused = run(words);
            assert_eq!(refused.code(), 125, "{refused:?}");
            assert!(refused.stderr.contains(older), "{refused:?}");
        }

        // With its record, and without one.
        let destroyed = run(&["--json", "destroy", &ids[0]]);
        assert_eq!(destroyed.code(), 0, "{destroyed:?}");
        assert_eq!(destroyed.json()["result"]["destroyed"], true);
        let file = sandbox.sessions().join(format!("{}.json", ids[1]));
        fs::remove_file(file).expect("lose a record");
        let destroyed = run(&["destroy", &ids[1]]);
        assert_eq!(destroyed.code(), 0, "{destroyed:?}");
        // And from another cgroup namespace, where only the helper can say who is in the leaf.
        let elsewhere = sandbox.scope().join("elsewhere");
        let _ = fs::create_dir(&elsewhere);
        let mount = cgroup_mount().expect("a cgroup2 mount");
        let script = format!(
            "echo $$ >{0}/cgroup.procs; unshare --cgroup --mount sh -ec 'umount -l {1}; mount -t cgroup2 none {1}; \
             exec {2} --socket {3} destroy {4}'; status=$?; echo $$ >{1}/cgroup.procs; rmdir {0}; exit $status",
            elsewhere.display(),
            mount.display(),
            sandbox.program().display(),
            socket.display(),
            ids[2]
        );
        let destroyed = finish(sandbox.bash(&script));
        assert_eq!(destroyed.code(), 0, "{destroyed:?}");
        assert!(destroyed.stderr.contains(older), "{destroyed:?}");
        for leader in &mut leaders {
            assert_eq!(leader.wait(), 137);
        }
        assert_eq!(sandbox.leaves(), Vec::<String>::new());
    }
}
