//! What the system call filter ends the process for, and what it lets pass; and what landlock alone refuses where the
//! filter does not come first.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use cgleaf_tests::probe::{Probe, Tried};
use cgleaf_tests::scratch::{Scratch, Sleeper, cgroup_mount};
use nix::libc::SIGSYS;

const PROBE: &str = env!("CARGO_BIN_EXE_sandbox-probe");

fn probe(scratch: &Scratch) -> Probe {
    Probe::new(
        PROBE,
        &cgroup_mount().expect("there is a scratch cgroup in it"),
        scratch.path(),
    )
}

fn done() -> Tried {
    Tried::Done("done".to_owned())
}

#[test]
fn what_is_not_on_the_list_is_the_end() {
    let Some(scratch) = Scratch::new(0) else {
        return;
    };
    for case in [
        "execve",
        "fork",
        "clone3",
        "thread",
        "socket-inet",
        "socket-unix",
        "connect",
        "bind",
        "mprotect",
        "prctl",
        "ioctl",
        "setsockopt",
    ] {
        assert_eq!(
            probe(&scratch).arg(case).run(),
            Tried::Died(SIGSYS),
            "{case}"
        );
    }
}

#[test]
fn arguments_count() {
    let Some(scratch) = Scratch::new(0) else {
        return;
    };
    for (case, allowed) in [
        ("mmap-plain", true),
        ("mmap-exec", false),
        ("mmap-file", false),
        ("fcntl-flags", true),
        ("fcntl-owner", false),
        ("peer", true),
        ("getsockopt", false),
    ] {
        let expected = if allowed { done() } else { Tried::Died(SIGSYS) };
        assert_eq!(probe(&scratch).arg(case).run(), expected, "{case}");
    }
}

#[test]
fn nobody_is_signalled_or_traced() {
    let Some(scratch) = Scratch::new(0) else {
        return;
    };
    let mut member = Sleeper::new(0);
    std::fs::write(
        scratch.path().join("cgroup.procs"),
        member.pid().to_string(),
    )
    .expect("move the member");
    for case in ["kill", "tgkill", "ptrace"] {
        assert_eq!(
            probe(&scratch)
                .arg(case)
                .arg(member.pid().to_string())
                .run(),
            Tried::Died(SIGSYS),
            "{case}"
        );
    }
    assert!(member.alive());
}

/// The second wall: without the filter the same attempts meet landlock.
#[test]
fn landlock_alone_refuses_signals_tracing_tcp_and_abstract_sockets() {
    let Some(scratch) = Scratch::new(0) else {
        return;
    };
    let alone = || probe(&scratch).arg("--landlock-only");
    let report = alone().arg("enforced").run();
    let Tried::Done(report) = report else {
        panic!("it is only asked: {report:?}")
    };
    for item in ["landlock_files", "landlock_tcp", "landlock_scopes"] {
        if report.contains(&format!("not {item}")) {
            cgleaf_tests::scratch::skip(&report);
            return;
        }
    }
    let refused = |name: &str| Tried::Refused(name.to_owned());
    let member = Sleeper::new(0);
    let pid = member.pid().to_string();
    for case in ["kill", "tgkill", "ptrace"] {
        assert_eq!(
            alone().arg(case).arg(&pid).run(),
            refused("EPERM"),
            "{case}"
        );
    }
    for case in ["connect", "bind"] {
        assert_eq!(alone().arg(case).run(), refused("EACCES"), "{case}");
    }
    assert_eq!(alone().arg("execve").run(), refused("EACCES"));
    let name = format!("cgleaf-test-{}", cgleaf_tests::scratch::tag());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let _listener = UnixListener::bind_addr(&address).expect("bind");
    assert_eq!(alone().arg("abstract").arg(&name).run(), refused("EPERM"));
}
