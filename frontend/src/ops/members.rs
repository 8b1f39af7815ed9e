//! Who is in a leaf, and how to reach exactly them.

use cgleaf_shared::cgroup::{CgroupDir, CgroupPath, path_of};
use cgleaf_shared::process::{Pid, PidfdError, Proc, SignalHandle};
use cgleaf_shared::wire::{Member, MembersPage, Reply, Request};

use super::grip::Grip;
use super::reach::Reach;
use super::session::Session;
use super::state::{LeafSeen, Look};
use crate::error::{Code, Error, Result};
use crate::operations;
use crate::trace::Role;

/// The most cgroups that a listing walks through: a program may make as many as it likes.
const MOST_CGROUPS: usize = 100_000;

/// A process and the cgroup that held it when it was listed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seat {
    /// Its pid, as this pid namespace numbers it.
    pub(super) pid: Pid,
    /// Its cgroup, relative to the leaf: empty for the leaf itself.
    pub(super) cgroup: String,
}

/// One reading of a leaf's `cgroup.procs` and of those beneath it: no snapshot unless the leaf is frozen.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// The members, in the order of their pids.
    pub(super) members: Vec<Seat>,
    /// How many there are that this pid namespace cannot see.
    pub(super) hidden: usize,
}

/// What came of sending a signal to one member.
#[derive(Debug)]
pub(super) enum Sent {
    /// It was sent.
    Done,
    /// The process has ended, or is no member any more.
    NoMember,
    /// It could not be; why.
    Refused(String),
}

impl Grip {
    /// Lists the members once.
    ///
    /// # Errors
    /// INTERNAL, or what the helper answers where the paths cannot be read from here.
    pub(super) fn list_members(&mut self) -> Result<Listing> {
        let mut listing = match &self.dir {
            Some(dir) => from_tree(dir)?,
            None => self.ask_for_members()?,
        };
        listing.members.sort();
        listing.members.dedup_by_key(|seat| seat.pid);
        Ok(listing)
    }

    fn ask_for_members(&mut self) -> Result<Listing> {
        let proc = Reach::proc()?;
        let mut listing = Listing::default();
        let mut after = None;
        loop {
            let request = Request::Members {
                target: self.target.clone(),
                after,
            };
            let Reply::Members(MembersPage { members, more, .. }) = self.ask(&request)? else {
                return Err(self.unexpected("members"));
            };
            for member in &members {
                match self.own_number(&proc, member) {
                    Some(pid) => listing.members.push(Seat {
                        pid,
                        cgroup: member.cgroup.clone(),
                    }),
                    None => listing.hidden += 1,
                }
            }
            after = members.last().and_then(|member| member.pid);
            if !more || after.is_none() {
                return Ok(listing);
            }
        }
    }

    /// The helper's numbers are those of every pid namespace that the member is in, the outermost first. Ours is the
    /// one whose process shows exactly the rest of them in our own /proc.
    fn own_number(&self, proc: &Proc, member: &Member) -> Option<Pid> {
        let numbers: Vec<Pid> = member
            .ns_pids
            .iter()
            .copied()
            .filter_map(Pid::new)
            .collect();
        numbers.iter().copied().find(|pid| {
            proc.process(*pid)
                .and_then(|dir| dir.status())
                .is_ok_and(|status| numbers.ends_with(&status.ns_pids))
                && self.is_member(*pid)
        })
    }

    /// Whether that process is in the leaf now.
    pub(super) fn is_member(&self, pid: Pid) -> bool {
        cgroup_of(pid).is_some_and(|path| self.holds(&path))
    }

    /// Sends a signal to one process, which must be a member after its number was pinned: a pid may mean another
    /// process since it was listed.
    pub(super) fn send(&self, pid: Pid, signal: i32) -> Sent {
        if !pid.may_be_signalled() {
            return Sent::NoMember;
        }
        let pinned = match SignalHandle::open(pid) {
            Ok(pinned) => pinned,
            Err(PidfdError::Gone(_) | PidfdError::NotAProcess(_)) => return Sent::NoMember,
            Err(error) => return Sent::Refused(error.to_string()),
        };
        if !self.is_member(pid) {
            return Sent::NoMember;
        }
        operations::tell_signal(pid, signal);
        match pinned.send_signal(signal) {
            Ok(true) => Sent::Done,
            Ok(false) => Sent::NoMember,
            Err(error) => Sent::Refused(error.to_string()),
        }
    }
}

impl Reach {
    /// How many processes live in a session that was looked at; `None` where that cannot be told. It is a count of one
    /// reading.
    pub fn count_members(&self, session: &Session, look: &Look) -> Option<usize> {
        match &look.leaf {
            LeafSeen::Here(dir) => {
                let listing = from_tree(dir).ok()?;
                Some(listing.members.len() + listing.hidden)
            }
            LeafSeen::There(state) if !state.populated => Some(0),
            LeafSeen::There(_) => self.ask_for_count(session),
            LeafSeen::Gone | LeafSeen::EarlierBoot => Some(0),
            _ => look.state.is_over().then_some(0),
        }
    }

    fn ask_for_count(&self, session: &Session) -> Option<usize> {
        let mut grip = self.grip(session, Role::Client).ok()?;
        let request = Request::Members {
            target: grip.target.clone(),
            after: None,
        };
        match grip.ask(&request) {
            Ok(Reply::Members(page)) => usize::try_from(page.total).ok(),
            _ => None,
        }
    }
}

/// The cgroup of a process, if it can be read.
pub(super) fn cgroup_of(pid: Pid) -> Option<CgroupPath> {
    path_of(&format!("/proc/{pid}")).ok()
}

pub(super) fn from_tree(leaf: &CgroupDir) -> Result<Listing> {
    let mut listing = Listing::default();
    let subtree = match leaf.subtree(MOST_CGROUPS) {
        Err(error) if error.is_gone() => return Ok(listing),
        other => other?,
    };
    if subtree.len() >= MOST_CGROUPS {
        return Err(Error::new(
            Code::Partial,
            format!(
                "there are more than {MOST_CGROUPS} cgroups beneath {}: they are not all listed",
                leaf.shown().display()
            ),
        ));
    }
    for cgroup in subtree {
        let procs = match leaf.open_descendant(&cgroup).and_then(|dir| dir.procs()) {
            Err(error) if error.is_gone() => continue,
            other => other?,
        };
        for raw in procs {
            match Pid::new(raw) {
                Some(pid) => listing.members.push(Seat {
                    pid,
                    cgroup: cgroup.clone(),
                }),
                None => listing.hidden += 1,
            }
        }
    }
    Ok(listing)
}
