//! Who is at the other end of a connection: by the connection alone, never by anything that was sent (DESIGN 3.2).

use std::os::fd::BorrowedFd;

use cgleaf_shared::cgroup::{CgroupPath, PathError};
use cgleaf_shared::id::Uid;
use cgleaf_shared::process::{Pid, Pidfd, Proc, ProcessDir, ProcessId, ReadError, State};
use cgleaf_shared::wire::{Refusal, RefusalCode};
use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt};

use crate::refuse;

/// The process that connected, or that made the socketpair, and what holds it.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Its pid, as the helper numbers it.
    pub(crate) pid: Pid,
    /// Its effective uid when it connected, as the helper's user namespace numbers it.
    pub(crate) uid: Uid,
    held: Held,
}

#[derive(Debug)]
enum Held {
    /// `SO_PEERPIDFD` (Linux 6.5).
    Pidfd(Pidfd),
    /// Before 6.5: the start time, which was the same before and after it was taken.
    Start(ProcessId),
}

/// What `/proc` says of a process, all of it read while that process was certainly alive.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    /// Its cgroup.
    pub(crate) cgroup: CgroupPath,
    /// How many pid namespaces it is in, from the helper's /proc on.
    pub(crate) depth: usize,
    /// Its number and its start.
    pub(crate) process: ProcessId,
    /// Its number in its own innermost pid namespace.
    pub(crate) inner: Pid,
    /// Its parent.
    pub(crate) parent: Option<Pid>,
    /// Whether its main thread has ended, of which alone /proc tells. That one stays where it was when the others are moved
    /// (cgroups(7)): its cgroup says nothing of theirs, and neither cgroup.procs nor cgroup.kill finds them where they come to.
    pub(crate) is_headless: bool,
}

fn unproven<T>(why: impl std::fmt::Display) -> Result<T, Refusal> {
    refuse::because(
        RefusalCode::IdentityUnproven,
        format!("who is asking cannot be proven: {why}"),
    )
}

impl Peer {
    /// The peer of a connected socket.
    pub(crate) fn of(socket: BorrowedFd<'_>, proc: &Proc) -> Result<Self, Refusal> {
        let said = getsockopt(&socket, sockopt::PeerCredentials)
            .or_else(|errno| unproven(format_args!("SO_PEERCRED: {errno}")))?;
        // 0: a process outside this pid namespace. Written to cgroup.procs it would mean the helper itself.
        let Some(pid) = Pid::new(said.pid()) else {
            return unproven("its pid namespace is outside of the helper's");
        };
        let uid = Uid(said.uid());
        if uid == Uid::OVERFLOW {
            return unproven("its uid has no number in the helper's user namespace");
        }
        let held = match getsockopt(&socket, sockopt::PeerPidfd) {
            Ok(fd) => Held::Pidfd(Pidfd::from_fd(fd)),
            // Only this answer means a kernel before 6.5. EINVAL is a peer that was reaped (6.12): taking its
            // number for an identity would fail in exactly the case that this is for.
            Err(Errno::ENOPROTOOPT) => Held::Start(start_of(proc, pid)?),
            Err(errno) => return unproven(format_args!("SO_PEERPIDFD: {errno}")),
        };
        let peer = Self { pid, uid, held };
        if peer.is_alive(proc) {
            Ok(peer)
        } else {
            unproven("it has ended")
        }
    }

    /// Is it still that process, and alive? If so, its number has meant nobody else since it connected.
    pub(crate) fn is_alive(&self, proc: &Proc) -> bool {
        match &self.held {
            Held::Pidfd(pidfd) => pidfd.is_alive().unwrap_or(false),
            Held::Start(process) => start_of(proc, self.pid).is_ok_and(|now| now == *process),
        }
    }

    /// Reads what counts, and makes sure that it was this process that it was read of.
    pub(crate) fn look(&self, proc: &Proc) -> Result<Look, Refusal> {
        let look = look(proc, self.pid)?;
        if !self.is_alive(proc) {
            unproven("it has ended")
        } else if look.is_headless {
            unproven("its main thread has ended, and where its other threads are cannot be told")
        } else {
            Ok(look)
        }
    }
}

/// /proc gave no answer: what it would have said is not known, or there was no descriptor to ask with.
fn unread<T>(error: ReadError) -> Result<T, Refusal> {
    let errno = match &error {
        ReadError::Unreadable { source, .. } => source.raw_os_error(),
        _ => None,
    };
    match errno.filter(|errno| refuse::exhausts(*errno)) {
        Some(errno) => Err(Refusal::kernel(
            RefusalCode::Exhausted,
            format!("who is asking cannot be looked at: {error}"),
            errno,
        )),
        None => unproven(error),
    }
}

fn start_of(proc: &Proc, pid: Pid) -> Result<ProcessId, Refusal> {
    let stat = proc.process(pid).and_then(|process| process.stat());
    match stat {
        Ok(stat) if stat.state != State::Zombie => Ok(stat.id),
        Ok(_) => unproven("it has ended"),
        Err(error) => unread(error),
    }
}

/// Reads what counts of the process that has this number now.
pub(crate) fn look(proc: &Proc, pid: Pid) -> Result<Look, Refusal> {
    let process = proc.process(pid).or_else(unread)?;
    let status = process.status().or_else(unread)?;
    let stat = process.stat().or_else(unread)?;
    Ok(Look {
        cgroup: cgroup_of(&process)?,
        depth: status.ns_pids.len().max(1),
        process: stat.id,
        inner: status.ns_pids.last().copied().unwrap_or(pid),
        parent: stat.parent,
        is_headless: stat.state == State::Zombie,
    })
}

/// The cgroup of a process, as the helper's cgroup namespace shows it.
pub(crate) fn cgroup_of(process: &ProcessDir) -> Result<CgroupPath, Refusal> {
    match process.cgroup().or_else(unread)? {
        Ok(path) => Ok(path),
        Err(why @ PathError::OutsideNamespace(_)) => refuse::because(
            RefusalCode::PlaceNotServed,
            format!("place not served: the caller's cgroup {why}"),
        ),
        Err(why) => unproven(why),
    }
}
