//! Who may do what to which session: the one place. Authority is (uid, domain), the uid by the connection and the domain
//! by where the caller's cgroup lies now.

use cgleaf_shared::attestation::{Foreign, Unreadable, Verdict, verify};
use cgleaf_shared::cgroup::{CgroupDir, CgroupPath, attributes};
use cgleaf_shared::id::{SessionId, Uid};
use cgleaf_shared::wire::{Refusal, RefusalCode, Target};

use crate::audience::Audience;
use crate::connection::ConnectionId;
use crate::context::State;
use crate::peer::{Look, Peer};
use crate::place::{self, Domain, Facts, Inside, NoPlace, Place};
use crate::refuse;
use crate::table::Row;
use crate::trace;

/// Whoever asks, looked at anew for each request: it may have moved since its last one.
#[derive(Debug)]
pub(crate) struct Caller<'a> {
    pub(crate) connection: ConnectionId,
    pub(crate) peer: &'a Peer,
    pub(crate) look: Look,
    pub(crate) facts: Facts,
    /// Root outside every container: every session is within its reach.
    pub(crate) is_host_root: bool,
    /// In whose terms it is answered.
    pub(crate) audience: Audience,
    domain: Result<Domain, NoPlace>,
}

/// Finds out who asks.
pub(crate) fn caller<'a>(
    state: &State,
    connection: ConnectionId,
    peer: &'a Peer,
) -> Result<Caller<'a>, Refusal> {
    let (look, around) = look_and_surroundings(state, peer)?;
    let facts = Facts {
        uid: peer.uid,
        cgroup: look.cgroup.clone(),
        deeper: look.depth > state.context.depth,
        container_is_genuine: around.container_is_genuine,
        inside: around.leaf,
    };
    Ok(Caller {
        connection,
        peer,
        is_host_root: place::is_host_root(&facts, &state.context.rules),
        domain: place::domain(&facts, &state.context.rules),
        audience: Audience::of(&facts, &look, &state.context.rules),
        look,
        facts,
    })
}

/// What is found above a caller's cgroup.
struct Around {
    leaf: Option<Inside>,
    container_is_genuine: bool,
}

/// It may move between the look at its cgroup and the walk above it; then it is looked at again.
fn look_and_surroundings(state: &State, peer: &Peer) -> Result<(Look, Around), Refusal> {
    const TRIES: usize = 4;
    for _ in 1..TRIES {
        let look = peer.look(&state.context.proc)?;
        match around(state, &look.cgroup) {
            Ok(around) => return Ok((look, around)),
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(refuse::failed(&error)),
        }
    }
    let look = peer.look(&state.context.proc)?;
    let around = around(state, &look.cgroup).map_err(|error| refuse::failed(&error))?;
    Ok((look, around))
}

fn around(state: &State, cgroup: &CgroupPath) -> Result<Around, cgleaf_shared::IoError> {
    Ok(Around {
        leaf: leaf_around(state, cgroup)?,
        container_is_genuine: container_is_genuine(state, cgroup)?,
    })
}

/// Whether the cgroup of a container around this one, if its name says that it is one, was made by somebody who may: whoever has
/// a part of the tree gives what he makes there any name. So nothing above it may belong to anybody but root, or the user whom
/// the helper serves.
fn container_is_genuine(
    state: &State,
    cgroup: &CgroupPath,
) -> Result<bool, cgleaf_shared::IoError> {
    let Some(container) = place::container_root(&state.context.rules.container_roots, cgroup)
    else {
        return Ok(true);
    };
    let trusted = [Uid::ROOT, state.context.rules.uid];
    for above in container.ancestors().skip(1) {
        let (owner, mode) = state.context.root.open_path(&above)?.owner_and_mode()?;
        if !trusted.contains(&owner) || mode & 0o022 != 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The innermost leaf around a cgroup, that cgroup itself included: the nearest ancestor with a session attribute.
pub(crate) fn leaf_around(
    state: &State,
    cgroup: &CgroupPath,
) -> Result<Option<Inside>, cgleaf_shared::IoError> {
    for path in cgroup.ancestors() {
        let dir = state.context.root.open_path(&path)?;
        let Some(session) = dir.attribute_text(attributes::SESSION)? else {
            continue;
        };
        let ours = state
            .table
            .at(&path)
            .filter(|row| row.identity.session.as_str() == session)
            .filter(|row| dir.id().is_ok_and(|id| id == row.leaf_id))
            .map(|row| row.domain.domain.clone());
        let socket = dir.attribute_text(attributes::SOCKET)?.unwrap_or_default();
        return Ok(Some(Inside {
            leaf: path,
            ours,
            socket,
        }));
    }
    Ok(None)
}

/// The refusal for a caller that has no place.
fn no_place(caller: &Caller<'_>, why: NoPlace) -> Refusal {
    match why {
        NoPlace::OtherHelpers { leaf, .. } if !caller.audience.sees(&leaf) => Refusal::new(
            RefusalCode::InsideSession,
            "the caller's container is inside a session of the host, by another helper: nothing is moved out of a session",
        ),
        NoPlace::OtherHelpers { leaf, socket } => {
            let ask = if socket.is_empty() {
                "has no socket".to_owned()
            } else {
                format!("is at {socket}")
            };
            Refusal {
                socket,
                ..Refusal::new(
                    RefusalCode::InsideSession,
                    format!(
                        "the caller is inside {leaf}, a session of another helper, which {ask}: nothing is moved out \
                         of a session"
                    ),
                )
            }
        }
        NoPlace::NotServed(why) => Refusal::new(
            RefusalCode::PlaceNotServed,
            format!(
                "place not served: process {} is in {}; {why}",
                caller.look.process.pid, caller.facts.cgroup
            ),
        ),
    }
}

impl Caller<'_> {
    /// Where a new leaf of this caller's goes.
    pub(crate) fn place(&self, state: &State) -> Result<Place, Refusal> {
        place::place(&self.facts, &state.context.rules).map_err(|why| no_place(self, why))
    }

    /// The domain that it acts in.
    pub(crate) fn domain(&self) -> Result<Domain, Refusal> {
        self.domain.clone().map_err(|why| no_place(self, why))
    }

    /// Whether this helper has anything to say to it.
    pub(crate) fn is_served(&self) -> Result<(), Refusal> {
        if self.is_host_root {
            Ok(())
        } else {
            self.domain().map(|_| ())
        }
    }

    /// Whether it may see and control this session.
    pub(crate) fn may_control(&self, row: &Row) -> bool {
        self.is_host_root
            || (row.identity.owner == self.facts.uid
                && self.domain.as_ref() == Ok(&row.domain.domain))
    }

    /// Whether it sits in that leaf or somewhere beneath it.
    pub(crate) fn is_within(&self, leaf: &CgroupPath) -> bool {
        self.facts.cgroup.is_within(leaf)
    }
}

/// The caller's session of that id. Another's is not told from none.
pub(crate) fn session<'s>(
    state: &'s State,
    caller: &Caller<'_>,
    id: &'s SessionId,
) -> Result<&'s Row, Refusal> {
    caller.is_served()?;
    let own = caller.domain.as_ref().ok();
    let mut found: Vec<&Row> = state
        .table
        .of_id(id)
        .filter(|row| caller.may_control(row))
        .collect();
    // Root's own domain first, where several have that id.
    found.sort_by_key(|row| Some(&row.domain.domain) != own);
    found.first().copied().map_or_else(
        || {
            refuse::because(
                RefusalCode::NoSuchSession,
                format!("there is no session {id} of uid {} here", caller.facts.uid),
            )
        },
        Ok,
    )
}

/// The session that a target names, and its leaf, opened and verified: whatever follows goes through that descriptor.
pub(crate) fn target(
    state: &mut State,
    caller: &Caller<'_>,
    target: &Target,
) -> Result<(Row, CgroupDir), Refusal> {
    caller.is_served()?;
    let named = state
        .table
        .of_id(&target.session)
        .find(|row| caller.may_control(row) && row.is_target(target))
        .cloned();
    let Some(row) = named else {
        // That there is one, and that it is another, is told to those only who may know.
        let other = session(state, caller, &target.session)?;
        return Err(not_the_target(other, target));
    };
    let dir = open_verified(state, &row)?;
    Ok((row, dir))
}

/// Which of the things that name a leaf is another's.
fn not_the_target(row: &Row, target: &Target) -> Refusal {
    let session = &target.session;
    if row.leaf_id == target.leaf_id {
        return Refusal::new(
            RefusalCode::NonceMismatch,
            format!(
                "leaf {} of session {session} has another nonce than the one that was named: the record was tampered with",
                row.leaf_id
            ),
        );
    }
    Refusal::new(
        RefusalCode::TargetMismatch,
        format!(
            "session {session} has leaf {}, not leaf {}: the record is of another one of that id",
            row.leaf_id, target.leaf_id
        ),
    )
}

/// Opens a session's leaf and has it proven. One that is gone is forgotten.
pub(crate) fn open_verified(state: &mut State, row: &Row) -> Result<CgroupDir, Refusal> {
    let attestation = row.attestation(state.context.boot_id, state.context.root.id());
    let verdict = verify(&attestation, &state.context.root);
    trace::event!(
        &row.identity.session,
        "Verify",
        "\"verdict\":\"{}\"",
        trace::verdict_name(&verdict)
    );
    match verdict {
        Verdict::Proven(dir) => Ok(dir),
        Verdict::Gone => {
            state.forget(&row.key());
            refuse::because(
                RefusalCode::NoSuchSession,
                format!(
                    "session {} is over: its leaf {} was removed",
                    row.identity.session, row.leaf_path
                ),
            )
        }
        Verdict::Foreign(why) => {
            let code = match why {
                Foreign::Tampered => RefusalCode::NonceMismatch,
                _ => RefusalCode::TargetMismatch,
            };
            refuse::because(code, format!("{} is not touched: {why}", row.leaf_path))
        }
        Verdict::Unreadable(Unreadable::Refused(error)) if refuse::is_exhaustion(&error) => {
            Err(refuse::failed(&error))
        }
        Verdict::Unreadable(why) => refuse::because(
            RefusalCode::Kernel,
            format!("{} cannot be verified: {why}", row.leaf_path),
        ),
    }
}
