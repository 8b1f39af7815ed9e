//! The directory that a new leaf lies in.

use std::rc::Rc;

use cgleaf_shared::IoError;
use cgleaf_shared::cgroup::{CgroupDir, ControlFile};
use cgleaf_shared::id::SessionId;
use cgleaf_shared::wire::{NewSession, Refusal, RefusalCode};

use super::Failure;
use crate::authorise::{self, Caller};
use crate::context::State;
use crate::leaf;
use crate::limits;
use crate::place::{Domain, Place};
use crate::refuse;
use crate::table::DomainDir;

/// Where the caller's place puts it, narrowed by the parent that was named: that lies in the same domain, and beneath
/// the caller's own session if it has one.
pub(super) fn chosen(
    state: &State,
    caller: &Caller<'_>,
    parent: Option<&SessionId>,
) -> Result<Place, Refusal> {
    let place = caller.place(state)?;
    let Some(parent) = parent else {
        return Ok(place);
    };
    let row = authorise::session(state, caller, parent)?;
    let in_domain = row.domain.domain == place.domain();
    let beneath_own = match &place {
        Place::Leaf(own, _) => row.leaf_path.is_within(own),
        Place::Container(_) | Place::Scope => true,
    };
    if in_domain && beneath_own {
        return Ok(Place::Leaf(
            row.leaf_path.clone(),
            row.domain.domain.clone(),
        ));
    }
    refuse::because(
        RefusalCode::ParentNotAllowed,
        format!("session {parent} does not lie beneath the caller's own session and in its domain"),
    )
}

/// Opens it, and makes sure that a process can be made there.
pub(super) fn open(state: &State, place: &Place) -> Result<(CgroupDir, Rc<DomainDir>), Failure> {
    let (path, domain) = match place {
        Place::Scope => {
            let scope = state.scope()?;
            (scope.dir.path().clone(), scope.domain.clone())
        }
        Place::Container(root) => (root.clone(), container(state, root)?),
        Place::Leaf(leaf, domain) => {
            let row = state
                .table
                .at(leaf)
                .filter(|row| row.domain.domain == *domain);
            let gone = || {
                Refusal::new(
                    RefusalCode::NoSuchSession,
                    format!("the session of {leaf} is over"),
                )
            };
            (leaf.clone(), row.ok_or_else(gone)?.domain.clone())
        }
    };
    let dir = state.context.root.open_path(&path)?;
    if !matches!(place, Place::Scope) {
        refuse_threaded(&dir)?;
    }
    if let Some(frozen) = leaf::frozen_at_or_above(&state.context.root, &path) {
        return refuse::because(
            RefusalCode::ParentFrozen,
            format!("{frozen} is frozen, and a process that is made beneath it would hang: thaw it first"),
        )
        .map_err(Failure::from);
    }
    Ok((dir, domain))
}

/// The container's own directory as a domain, the one that its other sessions have if there are any.
fn container(
    state: &State,
    root: &cgleaf_shared::cgroup::CgroupPath,
) -> Result<Rc<DomainDir>, IoError> {
    let domain = Domain::Container(root.clone());
    let id = state.context.root.open_path(root)?.id()?;
    let known = state
        .table
        .domain_dir(&domain)
        .filter(|dir| dir.id == id)
        .cloned();
    Ok(known.unwrap_or_else(|| {
        Rc::new(DomainDir {
            domain,
            path: root.clone(),
            id,
        })
    }))
}

/// A cgroup beneath a threaded one takes no process until it is threaded itself, which no session could live with.
fn refuse_threaded(dir: &CgroupDir) -> Result<(), Failure> {
    let kind = dir.read(ControlFile::Type)?;
    let kind = String::from_utf8_lossy(kind.trim_ascii()).into_owned();
    if kind == "domain" {
        return Ok(());
    }
    refuse::because(
        RefusalCode::Unsupported,
        format!(
            "{} is of type \"{kind}\" (it is threaded, or controllers were enabled in it): no session can be nested there",
            dir.path()
        ),
    )
    .map_err(Failure::from)
}

/// Why the kernel made no directory there.
pub(super) fn cannot_hold(
    state: &State,
    parent: &CgroupDir,
    new: &NewSession,
    error: IoError,
) -> Failure {
    match error.errno() {
        Some(libc::EEXIST) => Failure::Refused(Refusal::new(
            RefusalCode::SessionExists,
            format!(
                "there is a leaf for session {} already: ids are used once",
                new.session
            ),
        )),
        Some(libc::EAGAIN) => {
            let limit = limits::above(&state.context.root, parent);
            let next = format!("{limit} is reached: {}", limits::what_gives_room(&limit));
            Failure::Refused(refuse::kernel(RefusalCode::CgroupLimit, &error, &next))
        }
        Some(libc::ENOSPC) => Failure::Refused(refuse::kernel(
            RefusalCode::CgroupLimit,
            &error,
            "this machine has run out of cgroup ids: destroy sessions, or `cgleaf gc` those that are over",
        )),
        Some(libc::EROFS | libc::EACCES | libc::EPERM) => Failure::Refused(refuse::kernel(
            RefusalCode::Kernel,
            &error,
            "the helper may make no cgroup there: it must be delegated and writable",
        )),
        _ => error.into(),
    }
}
