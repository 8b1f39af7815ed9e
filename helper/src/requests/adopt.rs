//! Taking a process that runs already into a session: by pidfd, one process each, in the user modes only.

use std::os::fd::{AsRawFd, OwnedFd};

use cgleaf_shared::cgroup::ControlFile;
use cgleaf_shared::process::{Pid, Pidfd};
use cgleaf_shared::wire::{Refusal, RefusalCode, Reply, Target};

use super::create::cannot_move;
use super::{Answer, not_poisoned};
use crate::attrs::{self, Leader};
use crate::authorise::{self, Caller};
use crate::context::State;
use crate::peer::{self, Look};
use crate::place::{self, Facts, Place};
use crate::refuse;
use crate::trace;
use crate::write;

/// Whoever could name a process to be moved there could name another's.
pub(super) fn not_in_root_modes<T>() -> Result<T, Refusal> {
    refuse::because(
        RefusalCode::Unsupported,
        "a helper that root runs for others adopts no process: start it with `cgleaf run` or `cgleaf exec`",
    )
}

/// Moves the process of the pidfd into the leaf.
pub(super) fn adopt(
    state: &mut State,
    caller: &Caller<'_>,
    target: &Target,
    descriptors: Vec<OwnedFd>,
) -> Result<Answer, Refusal> {
    let (row, dir) = authorise::target(state, caller, target)?;
    not_poisoned(&dir)?;
    let (pidfd, pid) = pidfd_of(descriptors)?;
    // Whoever killed it waits for `populated 0` and then says that all have ended: nobody comes after that.
    if attrs::is_killed(&dir).map_err(|error| refuse::failed(&error))? {
        return not_adoptable(pid, "the session is being destroyed");
    }
    let look = adoptable(state, caller, &pidfd, pid)?;
    write::control(&dir, ControlFile::Procs, &pid.to_string())
        .map_err(|error| cannot_move(error).into_refusal())?;
    if !pidfd.is_alive().unwrap_or(false) {
        trace::event!(&row.identity.session, "Enrol", "\"ok\":false");
        attrs::poison(&dir).map_err(|error| refuse::failed(&error))?;
        return not_adoptable(pid, "it ended while it was moved");
    }
    let after = peer::look(&state.context.proc, pid)?;
    if !after.cgroup.is_within(&row.leaf_path) {
        return not_adoptable(pid, &format!("it is in {} after the move", after.cgroup));
    }
    let record_leader = attrs::leader(&dir).is_ok_and(|leader| leader.is_none());
    if record_leader {
        let leader = Leader {
            process: look.process,
            inner: look.inner,
        };
        attrs::write_leader(&dir, leader).map_err(|error| refuse::failed(&error))?;
    }
    state.unborn.retain(|(_, key)| *key != row.key());
    trace::event!(&row.identity.session, "Enrol", "\"ok\":true");
    Ok(Reply::Adopted.into())
}

fn not_adoptable<T>(pid: Pid, why: &str) -> Result<T, Refusal> {
    refuse::because(
        RefusalCode::NotAdoptable,
        format!("process {pid} is not adopted: {why}"),
    )
}

/// The process that a received descriptor holds: only a pidfd has a `Pid:` line in its fdinfo (proc_pid_fdinfo(5)). It
/// is -1 for one that was reaped and 0 for one outside of the helper's pid namespace.
fn pidfd_of(descriptors: Vec<OwnedFd>) -> Result<(Pidfd, Pid), Refusal> {
    let wrong = |why: String| Refusal::new(RefusalCode::BadDescriptor, why);
    let fd = descriptors
        .into_iter()
        .next()
        .ok_or_else(|| wrong("no descriptor came with the request".to_owned()))?;
    let path = format!("/proc/self/fdinfo/{}", fd.as_raw_fd());
    let info = read(&path).map_err(|error| wrong(format!("read {path}: {error}")))?;
    let number = String::from_utf8_lossy(&info)
        .lines()
        .find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
    match number.map(Pid::new) {
        None => Err(wrong("the descriptor is no pidfd".to_owned())),
        Some(None) => refuse::because(
            RefusalCode::NotAdoptable,
            "the process has ended, or is outside of the helper's pid namespace",
        ),
        Some(Some(pid)) => Ok((Pidfd::from_fd(fd), pid)),
    }
}

/// Reads without asking for a size, as the system call filter wants it.
fn read(path: &str) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut content = vec![0; 4096];
    let mut file = std::fs::File::open(path)?;
    let length = file.read(&mut content)?;
    content.truncate(length);
    Ok(content)
}

/// The process as it is, if it may be adopted: the caller's own in all its uids, in no session, no deeper than the
/// helper, and where the helper serves it.
fn adoptable(state: &State, caller: &Caller<'_>, pidfd: &Pidfd, pid: Pid) -> Result<Look, Refusal> {
    if !pid.may_be_signalled() {
        return not_adoptable(pid, "PID 1 is not moved");
    }
    if pid == Pid::own() {
        return not_adoptable(pid, "it is the helper");
    }
    let look = peer::look(&state.context.proc, pid)?;
    let status = state
        .context
        .proc
        .process(pid)
        .and_then(|process| process.status());
    let Ok(status) = status else {
        return not_adoptable(pid, "it has ended");
    };
    if !pidfd.is_alive().unwrap_or(false) {
        return not_adoptable(pid, "it has ended");
    }
    if look.is_headless {
        return not_adoptable(pid, "its main thread has ended");
    }
    // A pidfd can hold a thread (PIDFD_THREAD, 6.9), and to move that is to move its whole process, which was not looked at.
    if status.tgid != pid {
        return not_adoptable(pid, &format!("it is a thread of process {}", status.tgid));
    }
    if !status.uids.are_all(caller.facts.uid.0) {
        return not_adoptable(
            pid,
            &format!("not all of its uids are {}", caller.facts.uid),
        );
    }
    if look.depth != state.context.depth {
        return not_adoptable(pid, "it is in a pid namespace of its own");
    }
    let facts = Facts {
        uid: caller.facts.uid,
        cgroup: look.cgroup.clone(),
        deeper: false,
        // Nobody is adopted in a container.
        container_is_genuine: false,
        inside: authorise::leaf_around(state, &look.cgroup)
            .map_err(|error| refuse::failed(&error))?,
    };
    if let Some(inside) = &facts.inside {
        return not_adoptable(pid, &format!("it is in the session of {}", inside.leaf));
    }
    match place::place(&facts, &state.context.rules) {
        Ok(Place::Scope) => Ok(look),
        _ => not_adoptable(
            pid,
            &format!("its cgroup {} is not served here", look.cgroup),
        ),
    }
}
