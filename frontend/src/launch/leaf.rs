//! A leaf for a session: this process moved into it, or an empty one for a child to be born in.

use cgleaf_shared::attestation::Attestation;
use cgleaf_shared::id::{SessionId, SessionName};
use cgleaf_shared::process::{Pid, Proc, ProcessId};
use cgleaf_shared::wire::{Created, Mode, NewSession, Refusal, Reply, Request};

use super::helper::{self, Answered, Asked};
use super::{Site, TierWanted, scope};
use crate::client::{Client, LeafEvents};
use crate::error::{Code, Error, OrCode, Result};
use crate::records::{HelperRef, Names, Record, ScopeRef, Store};

/// A leaf that was made.
#[derive(Debug)]
pub(super) struct Leaf {
    /// The connection to the helper that made it.
    pub(super) client: Client,
    /// What the helper states about it.
    pub(super) attestation: Attestation,
    /// What a record says of the helper.
    pub(super) helper: HelperRef,
    /// Its `cgroup.events`, where the helper could pass it.
    pub(super) events: Option<LeafEvents>,
}

/// What asking for one came to.
#[derive(Debug)]
pub(super) enum Made {
    /// There it is.
    Leaf(Box<Leaf>),
    /// No helper serves this place: what each said.
    NotServed(Vec<String>),
    /// This process cannot be moved from where it is.
    MoveDenied(Refusal),
}

/// Whether this process is moved, or a child is born there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// This process.
    Move,
    /// A child.
    Birth,
}

/// Asks for a leaf for the session that a record claims.
///
/// # Errors
/// As [`helper::ask`].
pub(super) fn make(
    site: &Site<'_>,
    record: &Record,
    parent: Option<&SessionId>,
    entry: Entry,
) -> Result<Made> {
    let new = NewSession {
        session: record.session.clone(),
        name: record.name.clone(),
        parent: parent.cloned(),
    };
    let request = match entry {
        Entry::Move => Request::CreateAndEnrol { new },
        Entry::Birth => Request::Create { new },
    };
    match helper::ask(site, &request)? {
        Asked::NotServed(said) => Ok(Made::NotServed(said)),
        Asked::MoveDenied(refusal) => Ok(Made::MoveDenied(refusal)),
        Asked::Answered(answered) => leaf(site, *answered).map(|leaf| Made::Leaf(Box::new(leaf))),
    }
}

fn leaf(site: &Site<'_>, answered: Answered) -> Result<Leaf> {
    let Reply::Created(Created {
        attestation,
        left_service,
    }) = answered.reply
    else {
        return Err(Error::new(
            Code::Protocol,
            "the helper answers a create with something else",
        ));
    };
    if let Some(unit) = left_service {
        site.notice(&scope::leaves(&unit));
    }
    Ok(Leaf {
        helper: helper_of(&answered.client, &attestation),
        client: answered.client,
        attestation,
        events: answered.descriptor.map(LeafEvents::new),
    })
}

/// What a record says of a helper.
fn helper_of(client: &Client, attestation: &Attestation) -> HelperRef {
    // A unit's helper comes back to its own cgroup by itself.
    let is_taken_over = [Mode::Scope, Mode::Direct]
        .iter()
        .any(|mode| mode.name() == client.mode());
    HelperRef {
        socket: client.path().to_path_buf(),
        mode: client.mode().to_owned(),
        scope: is_taken_over.then(|| ScopeRef {
            path: attestation.domain_path.clone(),
            id: attestation.domain_id,
            root_id: attestation.root_id,
        }),
    }
}

/// The session that `--parent` names: an exact id wins.
///
/// # Errors
/// SESSION_NOT_FOUND; STORAGE.
pub(super) fn parent(site: &Site<'_>, named: Option<&str>) -> Result<Option<SessionId>> {
    let Some(text) = named else { return Ok(None) };
    let unknown = || {
        Error::new(
            Code::SessionNotFound,
            format!("--parent {text}: there is no such session"),
        )
    };
    let id: SessionId = text.parse().map_err(|_| unknown())?;
    if Store::open(site.base)?.read(&id)?.is_some() {
        return Ok(Some(id));
    }
    let name: SessionName = text.parse().map_err(|_| unknown())?;
    match Names::open(site.base)?.holder(&name)? {
        Some(holder) => Ok(Some(holder)),
        // A helper may have it although its record is lost.
        None => Ok(Some(id)),
    }
}

/// What not being served means for the tier that is wanted.
pub(super) fn not_served(wanted: TierWanted, said: &[String]) -> Error {
    let reasons = helper::reasons(said);
    let what = match wanted {
        TierWanted::Cgroup => "--tier cgroup: no leaf can be had here",
        TierWanted::Auto | TierWanted::Group => "no leaf can be had here",
    };
    Error::new(
        Code::Unsupported,
        format!("{what}: {reasons}; `cgleaf doctor` says what would change that"),
    )
}

/// A process of this pid namespace, with its start.
///
/// # Errors
/// INTERNAL if /proc does not show it.
pub(super) fn process(pid: Pid) -> Result<ProcessId> {
    let proc = Proc::system().or_code(Code::Internal)?;
    let stat = proc.process(pid).and_then(|directory| directory.stat());
    stat.map(|stat| stat.id).or_code(Code::Internal)
}
