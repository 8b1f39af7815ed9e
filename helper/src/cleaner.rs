//! The end of a scope directory that the helper made itself: nobody can remove the cgroup that it is in, and without
//! capabilities nothing can be removed from the hierarchy's root. So a small process stays outside, waits for the helper's
//! end, removes what is empty, and ends.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context as _, Result};
use caps::{CapSet, Capability, CapsHashSet};
use cgleaf_shared::cgroup::{CgroupDir, session_of_leaf_name};
use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{ForkResult, pipe2};

use crate::scope::OWN;
use crate::sys;
use crate::write;

/// Forks it. The pipe's other end is open exactly as long as the helper lives.
pub(crate) fn start(parent: &CgroupDir, scope: &CgroupDir, name: &str) -> Result<()> {
    let (ended, alive) = pipe2(OFlag::O_CLOEXEC).context("make a pipe")?;
    match sys::fork::fork_single_threaded().context("fork the cleaner")? {
        ForkResult::Parent { .. } => {
            // Kept for as long as this process lives, and closed by the kernel.
            let _ = std::mem::ManuallyDrop::new(alive);
            Ok(())
        }
        ForkResult::Child => {
            drop(alive);
            sys::fork::keep_only(&[&ended, parent, scope]);
            wait_and_clean(ended, parent, scope, name);
            std::process::exit(0)
        }
    }
}

/// What it does not need, it gives up: it removes directories and does nothing else. A signal that ends every helper must not
/// end it first, it comes to its end by itself.
fn settle() {
    let _ = nix::unistd::setsid();
    let _ = nix::sys::prctl::set_name(c"cgleaf-cleaner");
    let mut ending = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        ending.add(signal);
    }
    let _ = ending.thread_block();
    let permitted = caps::read(None, CapSet::Permitted).unwrap_or_default();
    let kept: CapsHashSet = permitted
        .into_iter()
        .filter(|capability| *capability == Capability::CAP_DAC_OVERRIDE)
        .collect();
    for set in [CapSet::Ambient, CapSet::Inheritable] {
        let _ = caps::clear(None, set);
    }
    for set in [CapSet::Effective, CapSet::Permitted] {
        let _ = caps::set(None, set, &kept);
    }
    let _ = nix::sys::prctl::set_no_new_privs();
}

fn wait_and_clean(ended: OwnedFd, parent: &CgroupDir, scope: &CgroupDir, name: &str) {
    settle();
    let mut byte = [0];
    let mut ended = std::fs::File::from(ended);
    while let Err(error) = ended.read(&mut byte) {
        if error.kind() != std::io::ErrorKind::Interrupted {
            return;
        }
    }
    remove_own(scope);
    // A session that still lives keeps its leaf, and with it the scope directory: the next helper takes them over.
    for child in scope.children().unwrap_or_default() {
        if session_of_leaf_name(&child).is_some() {
            let _ = write::remove_dir(scope, &child);
        }
    }
    let _ = write::remove_dir(parent, name);
}

/// An ending process closes its descriptors a moment before it leaves its cgroup.
fn remove_own(scope: &CgroupDir) {
    const TRIES: usize = 500;
    const PAUSE: Duration = Duration::from_millis(10);
    for _ in 0..TRIES {
        match write::remove_dir(scope, OWN) {
            Err(error) if error.errno() == Some(libc::EBUSY) => std::thread::sleep(PAUSE),
            _ => return,
        }
    }
}
