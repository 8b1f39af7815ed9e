//! A cgroup directory that was named for leaves (docs/adr/0006): only a helper that makes its leaves there will do for a new session.

use std::path::{Path, PathBuf};

use cgleaf_shared::cgroup::{CgroupDir, CgroupPath, CgroupRoot, attributes, own_path};
use cgleaf_shared::id::CgroupId;
use cgleaf_shared::wire::{Mode, Reply, Request, Status};

use super::Site;
use crate::client::{Client, Deadline, is_named, places};
use crate::error::{Code, Error, OrCode, Result};
use crate::records::Record;

/// Such a directory, with the two sockets at one of which its helper is.
#[derive(Debug)]
pub(super) struct NamedDirectory {
    directory: PathBuf,
    /// The usual one, of whoever came first.
    usual: PathBuf,
    /// Its own.
    own: PathBuf,
}

impl NamedDirectory {
    /// The one that was named, unless a socket was: then that helper is meant, wherever its leaves lie.
    ///
    /// # Errors
    /// USAGE: it is a relative path, and there is no working directory.
    pub(super) fn of(site: &Site<'_>) -> Result<Option<Self>> {
        let Some(directory) = site.scope_dir else {
            return Ok(None);
        };
        let mut places = places(site.base, site.socket).into_iter();
        if places.any(|(by, _)| is_named(&by)) {
            return Ok(None);
        }
        let directory = std::path::absolute(directory).or_code(Code::Usage)?;
        Ok(Some(Self {
            usual: site.base.socket(Mode::Direct),
            own: site.base.socket_of(&directory),
            directory,
        }))
    }

    /// Where its helper may be, each with what [`places`] calls it.
    pub(super) fn places(&self) -> Vec<(String, PathBuf)> {
        [&self.usual, &self.own]
            .map(|socket| (Mode::Direct.name().to_owned(), socket.clone()))
            .to_vec()
    }

    /// The socket that its helper binds, where another helper has the usual one or not.
    pub(super) fn socket(&self, usual_is_anothers: bool) -> PathBuf {
        if usual_is_anothers {
            self.own.clone()
        } else {
            self.usual.clone()
        }
    }

    /// Whether that helper makes its leaves elsewhere. One that does not say where, as one of another version, is asked as any
    /// other is.
    ///
    /// # Errors
    /// HELPER_UNREACHABLE: it does not answer in time.
    pub(super) fn is_anothers(&self, client: &mut Client, deadline: Deadline) -> Result<bool> {
        if client.path() != self.usual {
            return Ok(false);
        }
        match client.call_full(&Request::Status, None, deadline) {
            Ok((Reply::Status(status), _)) => Ok(!has_its_leaves_in(&status, &self.directory)),
            Err(error) if crate::client::is_known_mute(client.path()) => Err(error),
            _ => Ok(false),
        }
    }
}

/// Whether the first scope directory of a helper is that one: its path beneath the root that the helper says it goes by.
fn has_its_leaves_in(status: &Status, directory: &Path) -> bool {
    status
        .scope_paths
        .first()
        .is_some_and(|path| is_shown_at(path, status.root_id, directory))
}

fn is_shown_at(path: &CgroupPath, root: CgroupId, directory: &Path) -> bool {
    let relative = path.relative();
    if path.is_root() || !directory.ends_with(relative) {
        return false;
    }
    let mount = directory.ancestors().nth(relative.components().count());
    mount.is_some_and(|mount| {
        CgroupDir::open_mount(mount)
            .and_then(|dir| dir.id())
            .is_ok_and(|id| id == root)
    })
}

/// The directory in which the helper of a record makes its leaves, where that is still the same one: it was named, or the helper
/// made it beneath its own cgroup. `None` for every other helper.
pub(crate) fn directory_of(record: &Record) -> Option<PathBuf> {
    let helper = record.helper.as_ref()?;
    let scope = helper.scope.as_ref()?;
    if helper.mode != Mode::Direct.name() {
        return None;
    }
    let root = CgroupRoot::open().ok()?;
    let same = root.id() == scope.root_id
        && root
            .open_path(&scope.path)
            .and_then(|dir| dir.id())
            .is_ok_and(|id| id == scope.id);
    same.then(|| root.mount().point.join(scope.path.relative()))
}

/// Rule 1, as the frontend itself sees it: whether this process's cgroup or any ancestor is a leaf.
///
/// # Errors
/// UNSUPPORTED: there is no cgroup tree to look at. INTERNAL: it cannot be read.
pub(super) fn is_inside_a_session() -> Result<bool> {
    let root = CgroupRoot::open().map_err(|why| Error::new(Code::Unsupported, why.to_string()))?;
    for path in own_path()?.ancestors() {
        let dir = root.open_path(&path)?;
        if dir.attribute(attributes::SESSION)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
