//! The operations on the kernel, told as each begins: what `--verbose` shows.
//!
//! A program that embeds this crate hears them by [`hear`]. Until somebody does, nothing is even put into words.

use std::path::Path;
use std::sync::OnceLock;

use cgleaf_shared::attestation::Attestation;
use cgleaf_shared::process::Pid;
use cgleaf_shared::wire::{FreezeFlag, Request};

type Hearer = Box<dyn Fn(&str) + Send + Sync>;

static HEARER: OnceLock<Hearer> = OnceLock::new();

/// Has every operation told to `hearer`, in one line each, from whatever thread begins it. The first hearer of a process
/// stays; whether it was this one.
pub fn hear(hearer: impl Fn(&str) + Send + Sync + 'static) -> bool {
    HEARER.set(Box::new(hearer)).is_ok()
}

/// An operation begins.
pub(crate) fn tell(text: impl FnOnce() -> String) {
    if let Some(hearer) = HEARER.get() {
        hearer(&text());
    }
}

/// A signal is sent to one process, by its pidfd.
pub(crate) fn tell_signal(pid: Pid, signal: i32) {
    tell(|| format!("pidfd_send_signal(2): {} to pid {pid}", name(signal)));
}

/// A signal is sent to a process group.
pub(crate) fn tell_group_signal(group: Pid, signal: i32) {
    tell(|| format!("killpg(2): {} to group {group}", name(signal)));
}

/// A program takes a process's place.
pub(crate) fn tell_execve(pid: Pid, path: &Path) {
    tell(|| format!("execve(2): pid {pid} becomes {}", path.display()));
}

/// What is stated of a leaf is proven, or not, on what its path opens.
pub(crate) fn tell_verification(attestation: &Attestation) {
    tell(|| {
        format!(
            "openat2(2): {}, and is it cgroup {} with the session's nonce",
            attestation.leaf_path, attestation.leaf_id
        )
    });
}

/// A helper is asked for something.
pub(crate) fn tell_request(socket: &Path, request: &Request) {
    tell(|| format!("helper at {}: {}", socket.display(), words(request)));
}

fn name(signal: i32) -> String {
    nix::sys::signal::Signal::try_from(signal)
        .map_or_else(|_| format!("signal {signal}"), |known| known.to_string())
}

/// What the helper is asked for, and what it then does.
fn words(request: &Request) -> String {
    match request {
        Request::List { .. } => "list: the attributes of each leaf".to_owned(),
        Request::Open { session } => {
            format!("open {session}: its leaf by openat2(2), cgroup.events comes back")
        }
        Request::Create { new } => format!("create {0}: mkdir(2) cgleaf-{0}.leaf", new.session),
        Request::CreateAndEnrol { new } => format!(
            "create {0} and enrol: mkdir(2) cgleaf-{0}.leaf, this pid to its cgroup.procs",
            new.session
        ),
        Request::Attest { target, leader } => format!(
            "attest {}: is pid {leader} in cgroup.procs of cgroup {}",
            target.session, target.leaf_id
        ),
        Request::Kill { target } => format!(
            "kill {}: 1 to cgroup.kill of cgroup {}",
            target.session, target.leaf_id
        ),
        Request::Remove { target } => format!(
            "remove {}: rmdir(2) of cgroup {}, depth first",
            target.session, target.leaf_id
        ),
        Request::Freeze { target, flag } => format!(
            "{} {}: 1 to cgroup.freeze of cgroup {}",
            match flag {
                FreezeFlag::User => "freeze",
                FreezeFlag::Hold => "hold",
            },
            target.session,
            target.leaf_id
        ),
        Request::Thaw { target, flag } => format!(
            "{} {}: 0 to cgroup.freeze of cgroup {}, if nothing else keeps it frozen",
            match flag {
                FreezeFlag::User => "thaw",
                FreezeFlag::Hold => "let go of",
            },
            target.session,
            target.leaf_id
        ),
        Request::IsFrozen { target } => format!(
            "is {} frozen: cgroup.events of cgroup {} and of all beneath it",
            target.session, target.leaf_id
        ),
        Request::Members { target, .. } => format!(
            "members of {}: cgroup.procs of cgroup {} and of all beneath it",
            target.session, target.leaf_id
        ),
        Request::Adopt { target } => format!(
            "adopt into {}: a pid to cgroup.procs of cgroup {}",
            target.session, target.leaf_id
        ),
        Request::Lease { target } => format!(
            "lease of {}: 1 to cgroup.kill of cgroup {} when this connection ends",
            target.session, target.leaf_id
        ),
        Request::Verify { attestation } => format!(
            "verify {}: openat2(2) of {}, its id and nonce",
            attestation.session, attestation.leaf_path
        ),
        Request::Status => "status".to_owned(),
        Request::Stop => "stop".to_owned(),
    }
}
