//! What the kernel and the attributes say of a leaf, and what all handlers do with one.

use cgleaf_shared::IoError;
use cgleaf_shared::cgroup::{CgroupDir, CgroupPath, CgroupRoot, ControlFile};
use cgleaf_shared::id::SessionId;
use cgleaf_shared::process::Proc;
use cgleaf_shared::wire::{LeafState, SessionEntry};

use crate::attrs::{self, Flags};
use crate::context::Context;
use crate::table::Row;
use crate::trace;
use crate::write;

/// The most cgroups of one leaf that one request looks at: a program may make as many as it likes, and nobody waits for
/// that.
pub(crate) const MOST_CGROUPS: usize = 16_384;

/// The leaf's state.
pub(crate) fn state(root: &CgroupRoot, dir: &CgroupDir) -> Result<LeafState, IoError> {
    let events = dir.events()?;
    let flags = attrs::flags(dir)?.unwrap_or_default();
    let above = dir.path().parent();
    let frozen_ancestor = above.and_then(|parent| frozen_at_or_above(root, &parent));
    Ok(LeafState {
        populated: events.populated,
        frozen: events.frozen,
        user_frozen: flags.user,
        held: flags.hold,
        leased: attrs::is_leased(dir)?,
        poisoned: attrs::is_poisoned(dir)?,
        ancestor_frozen: frozen_ancestor.is_some(),
    })
}

/// The nearest of a cgroup and those above it that is asked to be frozen. What cannot be read is passed over: the
/// hierarchy's root has no such file, and is never frozen.
pub(crate) fn frozen_at_or_above(root: &CgroupRoot, path: &CgroupPath) -> Option<CgroupPath> {
    path.ancestors()
        .take_while(|ancestor| !ancestor.is_root())
        .find(|ancestor| {
            root.open_path(ancestor)
                .is_ok_and(|dir| is_asked_to_freeze(&dir))
        })
}

/// Whether `cgroup.freeze`, the request, says 1.
pub(crate) fn is_asked_to_freeze(dir: &CgroupDir) -> bool {
    dir.read(ControlFile::Freeze)
        .is_ok_and(|content| content.trim_ascii() == b"1")
}

/// The session as it is told to its owner. The leader's inner number is read anew: it may have been recorded before the
/// program made itself a pid namespace of its own, and that does not change it.
pub(crate) fn entry(
    context: &Context,
    row: &Row,
    dir: &CgroupDir,
) -> Result<SessionEntry, IoError> {
    let leader = attrs::leader(dir)?;
    Ok(SessionEntry {
        attestation: row.attestation(context.boot_id, context.root.id()),
        name: row.identity.name.clone(),
        leader: leader.map(|leader| leader.process),
        leader_inner: leader.map(|leader| leader.inner),
        state: state(&context.root, dir)?,
    })
}

/// Puts a leaf's flags in force: they are recorded first, so that whoever finds the leaf frozen finds out why.
///
/// # Errors
/// What the kernel answers; `ENODEV`, `ENOENT`: the leaf was removed.
pub(crate) fn apply_flags(
    session: &SessionId,
    dir: &CgroupDir,
    flags: Flags,
) -> Result<(), IoError> {
    attrs::write_flags(dir, flags)?;
    trace::event!(
        session,
        "SetFlags",
        "\"user\":{},\"hold\":{}",
        flags.user,
        u8::from(flags.hold)
    );
    let value = if flags.are_clear() { "0" } else { "1" };
    write::control(dir, ControlFile::Freeze, value)?;
    trace::event!(session, "WriteFreeze", "\"value\":{value}");
    if flags.are_clear() {
        attrs::forget_flags(dir)?;
    }
    Ok(())
}

/// Clears the hold flag, for the last connection that held it or for those of a helper before this one, and thaws the
/// leaf if nothing else keeps it frozen.
pub(crate) fn drop_hold(session: &SessionId, dir: &CgroupDir) -> Result<(), IoError> {
    match attrs::flags(dir)? {
        // Also where no flag is left: that is a thaw which was not finished.
        Some(flags) if flags.hold || flags.are_clear() => apply_flags(
            session,
            dir,
            Flags {
                hold: false,
                ..flags
            },
        ),
        _ => Ok(()),
    }
}

/// Writes 1 to `cgroup.kill`.
///
/// # Errors
/// `ENOENT`: this kernel has none (before 5.14); `EOPNOTSUPP`: the cgroup is threaded.
pub(crate) fn kill(session: &SessionId, dir: &CgroupDir) -> Result<(), IoError> {
    write::control(dir, ControlFile::Kill, "1")?;
    trace::event!(session, "KillLeaf");
    Ok(())
}

/// The processes in a leaf's own directory and in everything beneath it, each with the cgroup that holds it (relative
/// to the leaf), sorted. 0 stands for a process outside the helper's pid namespace.
pub(crate) fn processes(context: &Context, dir: &CgroupDir) -> Result<Vec<(i32, String)>, IoError> {
    let mut found = Vec::new();
    if is_threaded(dir) {
        found = threaded_processes(context, dir);
    } else {
        for relative in dir.subtree(MOST_CGROUPS)? {
            let pids = match dir.open_descendant(&relative).and_then(|sub| sub.procs()) {
                Ok(pids) => pids,
                Err(error) if error.is_gone() && !relative.is_empty() => continue,
                Err(error) => return Err(error),
            };
            found.extend(pids.into_iter().map(|pid| (pid, relative.clone())));
        }
    }
    found.sort_unstable();
    // Nobody sits in two cgroups: one that is listed twice moved meanwhile. Those without a number stay.
    found.dedup_by(|next, before| next.0 == before.0 && next.0 != 0);
    Ok(found)
}

/// Whether processes of this cgroup are listed at its domain root.
pub(crate) fn is_threaded(dir: &CgroupDir) -> bool {
    dir.read(ControlFile::Type)
        .is_ok_and(|content| content.trim_ascii() == b"threaded")
}

/// The processes of a threaded leaf: those that its domain root lists and that /proc finds within the leaf.
fn threaded_processes(context: &Context, dir: &CgroupDir) -> Vec<(i32, String)> {
    let domain_root = dir
        .path()
        .ancestors()
        .skip(1)
        .filter_map(|path| context.root.open_path(&path).ok())
        .find(|above| !is_threaded(above));
    let pids = domain_root
        .and_then(|above| above.procs().ok())
        .unwrap_or_default();
    pids.into_iter()
        .filter_map(|pid| {
            let path = cgroup_of(&context.proc, pid)?;
            path.strip(dir.path()).map(|below| (pid, below.to_owned()))
        })
        .collect()
}

fn cgroup_of(proc: &Proc, pid: i32) -> Option<CgroupPath> {
    let pid = cgleaf_shared::process::Pid::new(pid)?;
    crate::peer::cgroup_of(&proc.process(pid).ok()?).ok()
}
