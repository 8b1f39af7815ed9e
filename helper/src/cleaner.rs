//! The end of a scope directory that the helper made itself: nobody can remove the cgroup that it is in, and without
//! capabilities nothing can be removed from the hierarchy's root. So a small process stays outside, waits for the helper's
//! end, removes what is empty, and ends.

use std::io::Read;
use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result};
use cgleaf_shared::cgroup::{CgroupDir, session_of_leaf_name};
use nix::fcntl::OFlag;
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

fn wait_and_clean(ended: OwnedFd, parent: &CgroupDir, scope: &CgroupDir, name: &str) {
    // Before it waits: whoever looks for the helper's descriptors, terminal or working directory finds none of them here.
    let _ = nix::unistd::setsid();
    let _ = nix::sys::prctl::set_name(c"cgleaf-cleaner");
    let mut byte = [0];
    let mut ended = std::fs::File::from(ended);
    while let Err(error) = ended.read(&mut byte) {
        if error.kind() != std::io::ErrorKind::Interrupted {
            return;
        }
    }
    // A session that still lives keeps its leaf, and with it the scope directory: the next helper takes them over.
    for child in scope.children().unwrap_or_default() {
        if child == OWN || session_of_leaf_name(&child).is_some() {
            let _ = write::remove_dir(scope, &child);
        }
    }
    let _ = write::remove_dir(parent, name);
}
