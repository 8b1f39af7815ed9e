//! The end of a scope directory that the helper made itself: nobody can remove the cgroup that it is in, and without
//! capabilities nothing can be removed from the hierarchy's root. So a small process stays outside, waits for the helper's
//! end, removes what is empty, and ends.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context as _, Result};
use caps::{CapSet, Capability, CapsHashSet};
use cgleaf_shared::cgroup::{
    CgroupDir, ControlFile, HELPER_DIR, attributes, own_path, session_of_leaf_name,
};
use cgleaf_shared::process::Pid;
use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{ForkResult, pipe2};

use crate::sys;
use crate::write;

/// A scope directory that a helper made: its parent, and its name there.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) parent: CgroupDir,
    pub(crate) name: String,
}

/// Forks it. The pipe's other end is open exactly as long as the helper lives.
pub(crate) fn start(made: &[Made]) -> Result<()> {
    if made.is_empty() {
        return Ok(());
    }
    let (ended, alive) = pipe2(OFlag::O_CLOEXEC).context("make a pipe")?;
    match sys::fork::fork_single_threaded().context("fork the cleaner")? {
        ForkResult::Parent { .. } => {
            // Kept for as long as this process lives, and closed by the kernel.
            let _ = std::mem::ManuallyDrop::new(alive);
            Ok(())
        }
        ForkResult::Child => {
            drop(alive);
            let mut kept: Vec<&dyn AsFd> = vec![&ended];
            kept.extend(made.iter().map(|one| &one.parent as &dyn AsFd));
            sys::fork::keep_only(&kept);
            settle();
            if stays_outside(made) && wait_for_the_helper(ended) {
                made.iter().for_each(clean);
            }
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

/// Leaves the directories that it is to remove, if it is in one: who starts a helper may be a session's own program.
fn stays_outside(made: &[Made]) -> bool {
    let is_inside = |one: &Made| {
        let path = one.parent.path().child(&one.name);
        match (own_path(), path) {
            (Ok(own), Ok(scope)) => own.is_within(&scope),
            _ => true,
        }
    };
    for one in made.iter().filter(|one| is_inside(one)) {
        let _ = write::control(&one.parent, ControlFile::Procs, &Pid::own().to_string());
    }
    !made.iter().any(is_inside)
}

/// Whether the helper has ended; `false` where that cannot be told.
fn wait_for_the_helper(ended: OwnedFd) -> bool {
    let mut byte = [0];
    let mut ended = std::fs::File::from(ended);
    while let Err(error) = ended.read(&mut byte) {
        if error.kind() != std::io::ErrorKind::Interrupted {
            return false;
        }
    }
    true
}

/// Removes the scope directories beside a new one whose helper and cleaner were both ended at once, as with a pid namespace. Who
/// is just moving into one of them finds it gone and looks again.
pub(crate) fn sweep(above: &CgroupDir, is_scope: impl Fn(&str) -> bool) {
    for name in above.children().unwrap_or_default() {
        if !is_scope(&name) {
            continue;
        }
        let Ok(scope) = above.open_child(&name) else {
            continue;
        };
        let is_made = matches!(scope.attribute(attributes::MADE), Ok(Some(_)));
        if is_made && scope.events().is_ok_and(|events| !events.populated) {
            let _ = write::remove_dir(&scope, HELPER_DIR);
            remove_emptied(above, &name, &scope);
        }
    }
}

/// Removes what is empty. A session that still lives keeps its leaf, and with it the scope directory: the next helper takes
/// them over, and sees to their end then.
fn clean(made: &Made) {
    let Ok(scope) = made.parent.open_child(&made.name) else {
        return;
    };
    if remove_own(&scope) {
        remove_emptied(&made.parent, &made.name, &scope);
    }
}

fn remove_emptied(parent: &CgroupDir, name: &str, scope: &CgroupDir) {
    for child in scope.children().unwrap_or_default() {
        if session_of_leaf_name(&child).is_some() {
            let _ = write::remove_dir(scope, &child);
        }
    }
    let _ = write::remove_dir(parent, name);
}

/// Removes the helper's own cgroup. An ending process closes its descriptors a moment before it leaves that; who is still in
/// it afterwards is another helper, which has taken the directory over, and then nothing here is ours to remove.
fn remove_own(scope: &CgroupDir) -> bool {
    const TRIES: usize = 500;
    const PAUSE: Duration = Duration::from_millis(10);
    for _ in 0..TRIES {
        match write::remove_dir(scope, HELPER_DIR) {
            Ok(()) => return true,
            Err(error) if error.errno() == Some(libc::EBUSY) => std::thread::sleep(PAUSE),
            Err(error) => return error.is_gone(),
        }
    }
    false
}
