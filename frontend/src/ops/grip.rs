//! A leaf that was proven and can be acted on: everything goes through what was opened and verified here.

use std::time::Duration;

use cgleaf_shared::attestation::Attestation;
use cgleaf_shared::cgroup::{CgroupDir, CgroupPath, leaf_name, own_path};
use cgleaf_shared::id::SessionId;
use cgleaf_shared::process::ProcessId;
use cgleaf_shared::wire::{LeafState, Reply, Request, Target};

use super::reach::{HelpersLeaf, Reach, unexpected};
use super::session::Session;
use super::state::{LeafSeen, Look, leader_outside};
use crate::client::{Client, Deadline, LeafEvents, WaitEnd};
use crate::error::{Code, Error, OrCode, Result};
use crate::launch;
use crate::records::{Phase, Tier};
use crate::trace::Role;

/// A proven leaf with the helper that may write to it.
#[derive(Debug)]
pub(super) struct Grip {
    /// Whose step it is, in a trace.
    pub(super) role: Role,
    pub(super) session: SessionId,
    pub(super) attestation: Attestation,
    pub(super) target: Target,
    pub(super) client: Client,
    pub(super) events: LeafEvents,
    /// What the helper said when it was opened.
    pub(super) state: LeafState,
    /// The leader, as the helper keeps it.
    pub(super) leader: Option<ProcessId>,
    /// The leaf's directory, where its path means the same to this process.
    pub(super) dir: Option<CgroupDir>,
}

impl Reach {
    /// Takes hold of a session's leaf, for an action that needs a living session.
    ///
    /// # Errors
    /// SESSION_NOT_RUNNING, SESSION_ALREADY_DESTROYED: it is over. UNSUPPORTED: it has no leaf. REFUSED: what is stated
    /// does not fit the leaf. RECORD_DAMAGED: and no helper has a leaf of that id. HELPER_UNREACHABLE.
    pub(super) fn grip(&self, session: &Session, role: Role) -> Result<Grip> {
        if session.tier() == Tier::Group {
            return Err(no_leaf(session));
        }
        if let Some(grip) = self.try_grip(session, role)? {
            return Ok(grip);
        }
        if let Some(why) = session.set_aside() {
            return Err(self.worthless_record(&session.id, why));
        }
        let look = self.look(session);
        // Where the leaf itself cannot be told, neither can it be told that its leader has left it.
        let is_told = !matches!(look.leaf, LeafSeen::Tampered(_) | LeafSeen::Unreadable(_));
        if look.state.is_over() || (is_told && leader_outside(session).is_some()) {
            return Err(not_running(session));
        }
        Err(self.no_grip(session, &look))
    }

    /// Takes hold of a session's leaf; `None` if no helper has it.
    ///
    /// # Errors
    /// REFUSED: what is stated does not fit the leaf. HELPER_UNREACHABLE: a helper does not answer.
    pub(super) fn try_grip(&self, session: &Session, role: Role) -> Result<Option<Grip>> {
        if let Some(leaf) = self.open_leaf(&session.id, session.socket())? {
            return self.hold_of(session, leaf, role);
        }
        // A leaf without a helper: it died. A new one takes the leaf over.
        let is_there = matches!(
            self.see_leaf(session),
            LeafSeen::Here(_) | LeafSeen::There(_)
        );
        if is_there {
            let helper = self.start_own_helper(session)?;
            if let Some(leaf) = self.open_leaf(&session.id, Some(helper.path()))? {
                return self.hold_of(session, leaf, role);
            }
        } else if self.has_directory_of(&session.id, session.attestation()) {
            // The record is lost, or an old one: only a helper can tell whose leaf that is.
            let asked = self
                .start_own_helper(session)
                .and_then(|helper| self.open_leaf(&session.id, Some(helper.path())));
            match asked {
                Ok(Some(leaf)) => return self.hold_of(session, leaf, role),
                _ if session.record().is_some() => {}
                Ok(None) => return Err(nobodys_leaf(&session.id)),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Whether a directory with the name of that session's leaf is where its record says, or where leaves are made here,
    /// whatever the record says otherwise. It proves nothing but that a helper is worth starting.
    pub(super) fn has_directory_of(&self, id: &SessionId, stated: Option<&Attestation>) -> bool {
        let recorded = stated.is_some_and(|stated| {
            self.root()
                .is_ok_and(|root| root.open_path(&stated.leaf_path).is_ok())
        });
        recorded
            || match self.scope_dir() {
                Some(scope) => scope.join(leaf_name(id)).is_dir(),
                None => self.root().is_ok_and(|root| launch::is_stranded(id, root)),
            }
    }

    fn hold_of(&self, session: &Session, leaf: HelpersLeaf, role: Role) -> Result<Option<Grip>> {
        let opened = Session {
            id: session.id.clone(),
            found: None,
            listed: Some(super::session::Listed {
                socket: leaf.client.path().to_path_buf(),
                mode: leaf.client.mode().to_owned(),
                entry: leaf.entry,
            }),
        };
        let dir = match self.see_leaf(&opened) {
            LeafSeen::Here(dir) => Some(dir),
            LeafSeen::There(_) => None,
            LeafSeen::Gone => return Ok(None),
            LeafSeen::EarlierBoot => return Err(earlier_boot(&session.id)),
            LeafSeen::Tampered(why) | LeafSeen::Unreadable(why) => {
                return Err(not_proven(&session.id, &why));
            }
            LeafSeen::None => return Err(not_proven(&session.id, "nothing is stated about it")),
        };
        let entry = match opened.listed {
            Some(listed) => listed.entry,
            None => return Ok(None),
        };
        let events = match (leaf.events, &dir) {
            (Some(events), _) => events,
            (None, Some(dir)) => {
                let file = dir.open_file(cgleaf_shared::cgroup::ControlFile::Events);
                LeafEvents::new(file?.into())
            }
            (None, None) => {
                return Err(Error::new(
                    Code::HelperUnreachable,
                    "the helper has too many descriptors in flight; try again",
                ));
            }
        };
        if session
            .recorded()
            .is_some_and(|recorded| is_copy(recorded, &entry.attestation))
        {
            let why = "its record and the leaf that its helper has state one nonce and two directories, so that one is a copy \
                       of the other";
            return Err(not_proven(&session.id, why));
        }
        Ok(Some(Grip {
            role,
            session: session.id.clone(),
            target: Target::from(&entry.attestation),
            attestation: entry.attestation,
            client: leaf.client,
            events,
            state: entry.state,
            // Elsewhere its number is another's.
            leader: entry.leader.filter(|_| dir.is_some()),
            dir,
        }))
    }

    /// The record is all that there is of a session, and is set aside.
    pub(super) fn worthless_record(&self, id: &SessionId, why: &str) -> Error {
        let place = match self.store() {
            Ok(store) => store.record_of(id).display().to_string(),
            Err(_) => "it".to_owned(),
        };
        Error::new(
            Code::RecordDamaged,
            format!(
                "the record of session {id} is set aside ({why}), and no helper has a leaf of that id: nothing was signalled \
                 on such a record alone; put {place} right, or end what runs of it yourself and remove that file"
            ),
        )
        .with("session", id.as_str())
    }

    fn no_grip(&self, session: &Session, look: &Look) -> Error {
        match &look.leaf {
            LeafSeen::Tampered(why) => not_proven(&session.id, why),
            LeafSeen::Unreadable(why) => Error::new(
                Code::HelperUnreachable,
                format!(
                    "how session {} is cannot be told from here: {why}",
                    session.id
                ),
            ),
            _ => Error::new(
                Code::HelperUnreachable,
                format!(
                    "no helper has the leaf of session {} ({}); {}",
                    session.id,
                    look.remark.as_deref().unwrap_or(look.state.name()),
                    session.way_back(),
                ),
            ),
        }
        .with("session", session.id.as_str())
    }
}

impl Grip {
    /// Asks the helper, about this leaf.
    pub(super) fn ask(&mut self, request: &Request) -> Result<Reply> {
        self.client.call(request).map_err(|error| {
            match (error.code(), self.client.version_skew()) {
                (Code::Protocol, Some(skew)) => Error::new(Code::Protocol, skew),
                _ => error,
            }
        })
    }

    /// An answer that does not belong to its question.
    pub(super) fn unexpected(&self, question: &str) -> Error {
        unexpected(&self.client, question)
    }

    /// Whether a process's cgroup is this leaf or lies beneath it.
    pub(super) fn holds(&self, path: &CgroupPath) -> bool {
        if self.dir.is_some() {
            return path.is_within(&self.attestation.leaf_path);
        }
        // Relative to another root: the leaf's own name, which no other directory has, must be on the way.
        let name = leaf_name(&self.session);
        path.ancestors().any(|one| one.name() == Some(&name))
    }

    /// Whether this process itself is in it.
    pub(super) fn is_around_us(&self) -> bool {
        own_path().is_ok_and(|path| self.holds(&path))
    }

    /// Where it is, for messages.
    pub(super) fn shown(&self) -> String {
        match &self.dir {
            Some(dir) => dir.shown().display().to_string(),
            None => self.attestation.leaf_path.to_string(),
        }
    }

    /// Waits for the end on the leaf's own descriptor.
    ///
    /// # Errors
    /// INTERNAL: its events cannot be read.
    pub(super) fn wait_for_end(&mut self, deadline: Option<Deadline>) -> Result<WaitEnd> {
        self.wait_until(deadline, |events| !events.populated)
    }

    /// Waits until the leaf's events are as wanted, it is removed, or the deadline passes. A signal that interrupts the
    /// wait and is not the end of this process changes nothing.
    pub(super) fn wait_until(
        &mut self,
        deadline: Option<Deadline>,
        wanted: impl Fn(cgleaf_shared::cgroup::Events) -> bool,
    ) -> Result<WaitEnd> {
        loop {
            match self.events.wait(deadline, &wanted) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                other => {
                    return other.or_code(Code::Internal).map_err(|error| {
                        error.while_doing(format!("read {}/cgroup.events", self.shown()))
                    });
                }
            }
        }
    }

    /// The nearest ancestor that was frozen by itself: whatever is done with the leaf, it stays frozen.
    pub(super) fn frozen_ancestor(&self, reach: &Reach) -> Option<CgroupPath> {
        let root = reach.root().ok().filter(|_| self.dir.is_some())?;
        let path = &self.attestation.leaf_path;
        path.ancestors().skip(1).find(|ancestor| {
            !ancestor.is_root()
                && root
                    .open_path(ancestor)
                    .and_then(|dir| dir.read(cgleaf_shared::cgroup::ControlFile::Freeze))
                    .is_ok_and(|content| content.trim_ascii() == b"1")
        })
    }
}

/// How long a request that the kernel carries out at once may take before something is wrong.
pub(super) const KERNEL: Duration = Duration::from_secs(10);

fn no_leaf(session: &Session) -> Error {
    Error::new(
        Code::Unsupported,
        format!(
            "session {} is kept by its processes (group tier), without a leaf: this cannot be had there; \
             `cgleaf doctor` tells what would raise the tier",
            session.id
        ),
    )
    .with("session", session.id.as_str())
    .with("tier", Tier::Group.name())
}

/// The error of an action on a session that is over.
pub(super) fn not_running(session: &Session) -> Error {
    let id = &session.id;
    let destroyed = session
        .record()
        .is_some_and(|record| record.phase == Phase::Destroyed);
    let (code, how) = if destroyed {
        (
            Code::SessionAlreadyDestroyed,
            "was destroyed: nothing of it runs",
        )
    } else if leader_outside(session).is_some() {
        (
            Code::SessionNotRunning,
            "has nobody in its leaf that this could be done to: its leader was moved out of it and runs on",
        )
    } else {
        (Code::SessionNotRunning, "has ended: nothing of it runs")
    };
    Error::new(code, format!("session {id} {how}")).with("session", id.as_str())
}

pub(super) fn not_proven(id: &SessionId, why: &str) -> Error {
    Error::new(
        Code::Refused,
        format!("session {id} is left alone: {why}; nothing was signalled"),
    )
    .with("session", id.as_str())
}

/// A nonce is made for one directory. Attributes can be copied to another, and so can what a record states.
fn is_copy(recorded: &Attestation, leaf: &Attestation) -> bool {
    recorded.nonce == leaf.nonce && recorded.leaf_id != leaf.leaf_id
}

fn nobodys_leaf(id: &SessionId) -> Error {
    let why = "there is a directory of that session's leaf, no record of it, and no helper has it";
    Error::new(Code::HelperUnreachable, format!("session {id}: {why}")).with("session", id.as_str())
}

pub(super) fn earlier_boot(id: &SessionId) -> Error {
    Error::new(
        Code::Refused,
        format!(
            "session {id} was recorded in an earlier boot: whatever it was has ended, and its numbers may be others' now; \
             nothing was signalled; `cgleaf gc` takes the record away"
        ),
    )
    .with("session", id.as_str())
}
