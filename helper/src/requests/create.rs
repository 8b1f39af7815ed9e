//! Making a leaf: for a caller that is moved into it, or for a child that is born in it.

use std::os::fd::OwnedFd;

use cgleaf_shared::IoError;
use cgleaf_shared::cgroup::{CgroupDir, ControlFile, leaf_name};
use cgleaf_shared::id::{BootTime, Nonce, SessionName};
use cgleaf_shared::process::{Pid, ProcessId};
use cgleaf_shared::wire::{Created, NewSession, Refusal, RefusalCode, Reply, Target};

use super::{Answer, not_poisoned};
use crate::attrs::{self, Identity, Leader};
use crate::authorise::{self, Caller};
use crate::context::State;
use crate::peer;
use crate::place::Domain;
use crate::refuse;
use crate::requests::removal;
use crate::table::{Key, Row};
use crate::trace;
use crate::write;

mod parent;
mod room;
mod service_left;

/// How often a leaf is made again after it, or its parent, vanished: systemd removes empty cgroups beneath a unit that
/// restarts, also one that was just made.
const TRIES: usize = 4;

/// Makes a leaf and moves the caller into it, and nobody else.
pub(super) fn create_and_enrol(
    state: &mut State,
    caller: &Caller<'_>,
    new: &NewSession,
) -> Result<Answer, Refusal> {
    if caller.look.process.pid == Pid::INIT {
        return refuse::because(RefusalCode::NotAdoptable, "PID 1 is not moved");
    }
    // In a container it stays beneath what it was in, and that unit's `stop` and limits hold.
    let stays = matches!(caller.domain(), Ok(Domain::Container(_)));
    let left_service = if stays {
        None
    } else {
        service_left::by(&state.context.proc, &caller.look)
    };
    let (row, dir) = with_retry(|| {
        let (row, dir) = make(state, caller, new)?;
        match enrol(state, caller, &row, &dir) {
            Ok(()) => Ok((row, dir)),
            Err(failure) => {
                undo(state, &row);
                Err(failure)
            }
        }
    })?;
    finish(state, &row, &dir, left_service)
}

/// Makes an empty leaf for the caller to start a child in.
pub(super) fn create(
    state: &mut State,
    caller: &Caller<'_>,
    new: &NewSession,
) -> Result<Answer, Refusal> {
    let (row, dir) = with_retry(|| make(state, caller, new))?;
    state.unborn.insert((caller.connection, row.key()));
    finish(state, &row, &dir, None)
}

fn finish(
    state: &State,
    row: &Row,
    dir: &CgroupDir,
    left_service: Option<String>,
) -> Result<Answer, Refusal> {
    let created = Created {
        attestation: row.attestation(state.context.boot_id, state.context.root.id()),
        left_service,
    };
    let events = dir
        .open_file(ControlFile::Events)
        .map_err(|error| refuse::failed(&error))?;
    Ok(Answer {
        reply: Reply::Created(created),
        descriptor: Some(OwnedFd::from(events)),
    })
}

/// What came of one try.
pub(super) enum Failure {
    /// Something vanished meanwhile.
    Gone(IoError),
    Refused(Refusal),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<IoError> for Failure {
    fn from(error: IoError) -> Self {
        if error.is_gone() {
            Self::Gone(error)
        } else {
            Self::Refused(refuse::failed(&error))
        }
    }
}

fn with_retry<T>(mut attempt: impl FnMut() -> Result<T, Failure>) -> Result<T, Refusal> {
    for _ in 1..TRIES {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(Failure::Gone(_)) => {}
            Err(Failure::Refused(refusal)) => return Err(refusal),
        }
    }
    attempt().map_err(|failure| match failure {
        Failure::Gone(error) => refuse::kernel(
            RefusalCode::Kernel,
            &error,
            "it vanished again and again while the leaf was made; try once more",
        ),
        Failure::Refused(refusal) => refusal,
    })
}

/// Checks what is asked for, and makes the leaf with its attributes.
fn make(
    state: &mut State,
    caller: &Caller<'_>,
    new: &NewSession,
) -> Result<(Row, CgroupDir), Failure> {
    let place = parent::chosen(state, caller, new.parent.as_ref())?;
    check_id_and_name(state, &place.domain(), new)?;
    room::require(state, &place.domain())?;
    let (parent, domain) = parent::open(state, &place)?;
    let name = leaf_name(&new.session);
    write::make_dir(&parent, &name)
        .map_err(|error| parent::cannot_hold(state, &parent, new, error))?;
    let made = parent
        .open_child(&name)
        .and_then(|dir| describe(state, caller, new, dir, domain));
    let (row, dir) = match made {
        Ok(made) => made,
        Err(error) => {
            // Nobody knows of it yet; what cannot be removed now is swept at the next start.
            let _ = write::remove_dir(&parent, &name);
            return Err(attributes_failed(error));
        }
    };
    trace::event!(&new.session, "MakeLeaf");
    state.table.insert(row.clone());
    Ok((row, dir))
}

fn attributes_failed(error: IoError) -> Failure {
    match error.errno() {
        Some(libc::EOPNOTSUPP) => Failure::Refused(refuse::kernel(
            RefusalCode::Unsupported,
            &error,
            "cgroups cannot hold extended attributes on this kernel (5.7 can), and the helper keeps what it knows there",
        )),
        _ => error.into(),
    }
}

fn describe(
    state: &State,
    caller: &Caller<'_>,
    new: &NewSession,
    dir: CgroupDir,
    domain: std::rc::Rc<crate::table::DomainDir>,
) -> Result<(Row, CgroupDir), IoError> {
    let identity = Identity {
        session: new.session.clone(),
        nonce: Nonce::generate()?,
        owner: caller.facts.uid,
        created: BootTime::now(),
        name: new.name.clone(),
    };
    attrs::write_identity(&dir, &identity, &state.context.socket)?;
    let row = Row {
        identity,
        leaf_path: dir.path().clone(),
        leaf_id: dir.id()?,
        domain,
    };
    Ok((row, dir))
}

/// Ids are used once. A name is free again when its session is over, and is never an id.
fn check_id_and_name(state: &mut State, domain: &Domain, new: &NewSession) -> Result<(), Refusal> {
    let key: Key = (new.session.clone(), domain.clone());
    if let Some(row) = state.table.get(&key).cloned() {
        match authorise::open_verified(state, &row) {
            Ok(_) => {
                return refuse::because(
                    RefusalCode::SessionExists,
                    format!(
                        "there is a session {} already: ids are used once",
                        new.session
                    ),
                );
            }
            // That it cannot be looked at just now is no end of it.
            Err(refusal) if refusal.kind() == RefusalCode::Exhausted => return Err(refusal),
            Err(_) => state.forget(&key),
        }
    }
    let taken = |name: &str, by: &str| {
        refuse::because(
            RefusalCode::NameTaken,
            format!("the name {name} is taken by {by}: choose another, or destroy that one"),
        )
    };
    if let Ok(as_name) = new.session.as_str().parse::<SessionName>()
        && is_living(state, domain, &as_name)
    {
        return taken(
            new.session.as_str(),
            "a living session, and an id may not equal it",
        );
    }
    let Some(name) = &new.name else { return Ok(()) };
    if is_living(state, domain, name) {
        return taken(name.as_str(), "a living session");
    }
    let is_id = name
        .as_str()
        .parse()
        .is_ok_and(|id| id == new.session || state.table.get(&(id, domain.clone())).is_some());
    if is_id {
        return taken(name.as_str(), "a session that has it as its id");
    }
    Ok(())
}

/// Whether a session of that name is not over: it has a live process, or nobody was in it yet.
fn is_living(state: &State, domain: &Domain, name: &SessionName) -> bool {
    let Some(row) = state.table.named(domain, name) else {
        return false;
    };
    let Ok(dir) = state.context.root.open_path(&row.leaf_path) else {
        return false;
    };
    let same = dir.id().is_ok_and(|id| id == row.leaf_id);
    same && (dir.events().is_ok_and(|events| events.populated)
        || attrs::leader(&dir).is_ok_and(|leader| leader.is_none()))
}

/// Moves the caller itself, and makes sure that it was the caller that moved.
fn enrol(state: &State, caller: &Caller<'_>, row: &Row, dir: &CgroupDir) -> Result<(), Failure> {
    let pid = caller.peer.pid;
    write::control(dir, ControlFile::Procs, &pid.to_string()).map_err(cannot_move)?;
    // Alive after the write: then the number meant this process all along. Else whoever has it now may be in the leaf.
    if !caller.peer.is_alive(&state.context.proc) {
        trace::event!(&row.identity.session, "Enrol", "\"ok\":false");
        return Err(poisoned(dir));
    }
    let look = caller.peer.look(&state.context.proc)?;
    if !look.cgroup.is_within(&row.leaf_path) {
        return refuse::because(
            RefusalCode::Kernel,
            format!(
                "process {pid} was moved to {} and is in {} now: something else on this machine moves processes",
                row.leaf_path, look.cgroup
            ),
        )
        .map_err(Failure::from);
    }
    let leader = Leader {
        process: look.process,
        inner: look.inner,
    };
    attrs::write_leader(dir, leader)?;
    trace::event!(&row.identity.session, "Enrol", "\"ok\":true");
    Ok(())
}

fn poisoned(dir: &CgroupDir) -> Failure {
    if let Err(error) = attrs::poison(dir) {
        crate::log::line(format_args!("{error}"));
    }
    Failure::Refused(Refusal::new(
        RefusalCode::IdentityUnproven,
        "the caller ended while it was moved: whoever has its number now may be in the leaf, which is never killed",
    ))
}

/// What cgroup-v2.rst says about each answer to a write to cgroup.procs.
pub(super) fn cannot_move(error: IoError) -> Failure {
    let (code, next) = match error.errno() {
        Some(libc::EACCES | libc::EPERM) => (
            RefusalCode::MoveDenied,
            "the cgroup above both places is not the helper's to write: start from within the user's own scope or service",
        ),
        Some(libc::ESRCH) => (RefusalCode::IdentityUnproven, "the process has ended"),
        Some(libc::EOPNOTSUPP) => (
            RefusalCode::Unsupported,
            "the parent is threaded, or has controllers that make it so: no session can be nested there",
        ),
        Some(libc::EBUSY) => (
            RefusalCode::Unsupported,
            "the leaf hands controllers to cgroups beneath it, so that it takes no process itself",
        ),
        _ => return error.into(),
    };
    Failure::Refused(refuse::kernel(code, &error, next))
}

/// Removes a leaf that nobody got into; whether it is gone. One that somebody is in after all stays in the table, poisoned
/// as it is.
fn undo(state: &mut State, row: &Row) -> bool {
    let gone = removal::remove_leaf(state, &row.leaf_path);
    if gone {
        state.forget(&row.key());
    }
    gone
}

/// Removes a leaf whose child was never born.
pub(super) fn remove_unborn(state: &mut State, key: &Key) {
    let Some(row) = state.table.get(key).cloned() else {
        return;
    };
    let dir = match authorise::open_verified(state, &row) {
        Ok(dir) => dir,
        Err(refusal) if refusal.kind() == RefusalCode::Exhausted => {
            return super::remove_once_empty(state, key.clone());
        }
        Err(_) => return,
    };
    if dir.events().is_ok_and(|events| !events.populated) {
        if undo(state, &row) {
            trace::event!(&row.identity.session, "RemoveLeaf", "\"gone\":true");
        }
    } else {
        // A child was born there, and ends since its parent has: it was not attested, so that it is not let go.
        super::remove_once_empty(state, key.clone());
    }
}

/// Records who leads a session that was born in its leaf. That it is a member is what the kernel says, not the caller.
pub(super) fn attest(
    state: &mut State,
    caller: &Caller<'_>,
    target: &Target,
    leader: Pid,
) -> Result<Answer, Refusal> {
    let (row, dir) = authorise::target(state, caller, target)?;
    not_poisoned(&dir)?;
    let process = member_called(state, caller, &dir, leader)?;
    attrs::write_leader(&dir, process).map_err(|error| refuse::failed(&error))?;
    trace::event!(&row.identity.session, "Enrol", "\"ok\":true");
    state.unborn.remove(&(caller.connection, row.key()));
    Ok(Reply::Attested(row.attestation(state.context.boot_id, state.context.root.id())).into())
}

/// The member that the caller's pid namespace gives this number.
fn member_called(
    state: &State,
    caller: &Caller<'_>,
    dir: &CgroupDir,
    wanted: Pid,
) -> Result<Leader, Refusal> {
    let level = caller.look.depth;
    let members = dir.procs().map_err(|error| refuse::failed(&error))?;
    for pid in members.into_iter().filter_map(Pid::new) {
        if level == state.context.depth && pid != wanted {
            continue;
        }
        if let Some(found) = numbered(state, pid, level, wanted) {
            return Ok(found);
        }
    }
    refuse::because(
        RefusalCode::NotAMember,
        format!(
            "process {wanted} is not in {}: it has ended, or was started elsewhere",
            dir.path()
        ),
    )
}

/// The process of this number, if it is in at least `level` pid namespaces and `wanted` in that one.
fn numbered(state: &State, pid: Pid, level: usize, wanted: Pid) -> Option<Leader> {
    let process = state.context.proc.process(pid).ok()?;
    let status = process.status().ok()?;
    if !status.ns_pids.is_empty() && status.ns_pids.get(level - 1) != Some(&wanted) {
        return None;
    }
    let look = peer::look(&state.context.proc, pid).ok()?;
    Some(Leader {
        process: ProcessId {
            pid,
            start: look.process.start,
        },
        inner: look.inner,
    })
}

impl Failure {
    /// The refusal, for a caller that does not try again.
    pub(super) fn into_refusal(self) -> Refusal {
        match self {
            Self::Gone(error) => refuse::failed(&error),
            Self::Refused(refusal) => refusal,
        }
    }
}
