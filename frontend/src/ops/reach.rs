//! What is at hand: the records, the helpers that answer, and the cgroup tree as this process sees it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cgleaf_shared::cgroup::CgroupRoot;
use cgleaf_shared::id::SessionId;
use cgleaf_shared::process::Proc;
use cgleaf_shared::wire::{Opened, Reply, Request, SessionEntry};

use crate::base::Base;
use crate::client::{self, Client, LeafEvents, Looked};
use crate::error::{Code, Error, Result};
use crate::launch::{self, Site};
use crate::records::{Found, Names, Store};

use super::session::Session;

/// What a command can reach. It can be shared between threads: every call makes connections of its own.
#[derive(Debug)]
pub struct Reach {
    base: Base,
    named: Option<PathBuf>,
    scope_dir: Option<PathBuf>,
    store: std::result::Result<Store, Error>,
    root: OnceLock<std::result::Result<CgroupRoot, String>>,
}

/// A session's leaf as the helper opened it.
#[derive(Debug)]
pub(super) struct HelpersLeaf {
    /// The connection that it was opened on.
    pub(super) client: Client,
    /// What the helper states.
    pub(super) entry: SessionEntry,
    /// The leaf's `cgroup.events`; absent if too many descriptors were in flight.
    pub(super) events: Option<LeafEvents>,
}

impl Reach {
    /// Takes the places of one user; `named` is the only socket to ask, where one was named.
    pub fn new(base: &Base, named: Option<&Path>) -> Self {
        Self {
            base: base.clone(),
            named: named.map(Path::to_path_buf),
            scope_dir: None,
            store: Store::open(base),
            root: OnceLock::new(),
        }
    }

    /// The cgroup directory for the leaves of a helper that has to be started.
    #[must_use]
    pub fn with_scope_dir(mut self, directory: Option<&Path>) -> Self {
        self.scope_dir = directory.map(Path::to_path_buf);
        self
    }

    /// The cgroup directory that was named for leaves.
    pub(super) fn scope_dir(&self) -> Option<&Path> {
        self.scope_dir.as_deref()
    }

    /// Where things lie.
    pub fn base(&self) -> &Base {
        &self.base
    }

    /// The socket that was named.
    pub fn named(&self) -> Option<&Path> {
        self.named.as_deref()
    }

    /// The records.
    ///
    /// # Errors
    /// STORAGE: their directory cannot be used. What is in a helper's list can be listed and ended all the same.
    pub fn store(&self) -> Result<&Store> {
        self.store.as_ref().map_err(Clone::clone)
    }

    /// Why the records that there are cannot be read; `None` too where there are none, and none can be made.
    pub(super) fn unread(&self) -> Option<Error> {
        let error = self.store.as_ref().err()?;
        let absent = |why: std::io::Error| why.kind() == std::io::ErrorKind::NotFound;
        match self.base.records_path().symlink_metadata().map_err(absent) {
            Err(true) => None,
            _ => Some(error.clone()),
        }
    }

    /// Whether no record was ever made here and none can be, as in a container whose root nobody can write to: a helper's list is
    /// all that there is, and whoever only looks lacks nothing.
    pub(super) fn has_no_place(&self) -> bool {
        let absent = |path: &Path| {
            let stat = path.symlink_metadata();
            stat.is_err_and(|why| why.kind() == std::io::ErrorKind::NotFound)
        };
        let (records, root) = (self.base.records_path(), self.base.root());
        self.store.is_err() && absent(records) && (!records.starts_with(root) || absent(root))
    }

    /// The names of living sessions.
    ///
    /// # Errors
    /// STORAGE.
    pub(super) fn names(&self) -> Result<Names> {
        Names::open(&self.base)
    }

    /// The record of a session; `None` too where records cannot be read.
    pub(super) fn record(&self, session: &SessionId) -> Result<Option<Found>> {
        match &self.store {
            Ok(store) => store.read(session),
            Err(_) => Ok(None),
        }
    }

    /// The root of the cgroup tree that paths are relative to, or why there is none.
    pub fn root(&self) -> std::result::Result<&CgroupRoot, &str> {
        self.root
            .get_or_init(|| CgroupRoot::open().map_err(|error| error.to_string()))
            .as_ref()
            .map_err(String::as_str)
    }

    /// /proc.
    pub(super) fn proc() -> Result<Proc> {
        Proc::system().map_err(untold_here)
    }

    /// The sockets to ask about a session: the one that its record names first.
    fn sockets(&self, first: Option<&Path>) -> Vec<PathBuf> {
        let places = client::all_places(&self.base, self.named());
        let mut sockets: Vec<PathBuf> = places.into_iter().map(|(_, path)| path).collect();
        // A socket that was named, by option or environment, is the only one.
        if sockets.len() > 1
            && let Some(first) = first
        {
            sockets.retain(|path| path != first);
            sockets.insert(0, first.to_path_buf());
        }
        sockets
    }

    /// Every helper that answers, and every socket that was looked at.
    pub fn helpers(&self) -> (Vec<Client>, Vec<Looked>) {
        client::find_all(&self.base, self.named())
    }

    /// The leaf of that id, asked of every helper until one has it. None has it: `Ok(None)` if at least one answered or
    /// none runs; the first refusal or broken connection of one that might have it otherwise.
    pub(super) fn open_leaf(
        &self,
        session: &SessionId,
        first: Option<&Path>,
    ) -> Result<Option<HelpersLeaf>> {
        let mut trouble = None;
        for socket in self.sockets(first) {
            match open_at(&socket, session) {
                Ok(leaf) => return Ok(Some(leaf)),
                Err(error) if error.code() == Code::SessionNotFound => {}
                // Nobody listens there.
                Err(error) if client::is_absent(&error) => {}
                Err(error) => trouble = trouble.or(Some(error)),
            }
        }
        match trouble {
            Some(error) if error.code() != Code::Unsupported => Err(error),
            _ => Ok(None),
        }
    }

    /// The same where nothing else tells of that session: a socket that was named, by option or environment, has to answer.
    ///
    /// # Errors
    /// As [`Self::open_leaf`]. HELPER_UNREACHABLE: nobody listens at the named socket, or whoever does serves nobody here.
    pub(super) fn open_unknown(&self, session: &SessionId) -> Result<Option<HelpersLeaf>> {
        let places = client::places(&self.base, self.named());
        let [(named_by, socket)] = &places[..] else {
            return self.open_leaf(session, None);
        };
        if !client::is_named(named_by) {
            return self.open_leaf(session, None);
        }
        match open_at(socket, session) {
            Ok(leaf) => Ok(Some(leaf)),
            Err(error) => match error.code() {
                Code::SessionNotFound => Ok(None),
                Code::HelperUnreachable | Code::Unsupported => {
                    let is_absent = client::is_absent(&error);
                    Err(client::unanswered(
                        named_by,
                        socket,
                        error.message(),
                        is_absent,
                    ))
                }
                _ => Err(error),
            },
        }
    }

    /// A connection to a helper that can be asked about any session; none is started for that.
    ///
    /// # Errors
    /// HELPER_UNREACHABLE.
    pub(super) fn any_helper(&self, first: Option<&Path>) -> Result<Client> {
        let mut trouble = Vec::new();
        for socket in self.sockets(first) {
            match client::open(&socket) {
                Ok(client) => return Ok(client),
                Err(error) => trouble.push(error.message().to_owned()),
            }
        }
        Err(Error::new(
            Code::HelperUnreachable,
            format!(
                "no helper answers ({}); `cgleaf doctor` tells more",
                trouble.join("; ")
            ),
        ))
    }

    /// Starts the helper that takes over the leaf of one that died: in that one's directory, where it had one of its own.
    ///
    /// # Errors
    /// HELPER_UNREACHABLE.
    pub(super) fn start_own_helper(&self, session: &Session) -> Result<Client> {
        let directory = session.record().and_then(launch::directory_of);
        let site = self.site();
        launch::start_own(&Site {
            scope_dir: directory.as_deref().or(site.scope_dir),
            ..site
        })
    }

    pub(super) fn site(&self) -> Site<'_> {
        Site {
            base: &self.base,
            socket: self.named(),
            scope_dir: self.scope_dir.as_deref(),
            kept_descriptor: None,
            notices: &|_| {},
            trouble: &|_| {},
        }
    }
}

fn open_at(socket: &Path, session: &SessionId) -> Result<HelpersLeaf> {
    let mut client = Client::connect(socket)?;
    let request = Request::Open {
        session: session.clone(),
    };
    match client.call_with_descriptor(&request)? {
        (Reply::Opened(Opened { entry }), events) => Ok(HelpersLeaf {
            client,
            entry,
            events: events.map(LeafEvents::new),
        }),
        _ => Err(unexpected(&client, "open")),
    }
}

/// How sessions are cannot be told, since /proc cannot be read.
pub(super) fn untold_here(error: impl std::fmt::Display) -> Error {
    Error::new(
        Code::HelperUnreachable,
        format!(
            "how sessions are cannot be told from here: {error}; see to it that proc(5) is mounted at /proc and that `ulimit -n` \
             leaves descriptors"
        ),
    )
}

/// The error of an answer that does not belong to its question.
pub(super) fn unexpected(client: &Client, question: &str) -> Error {
    Error::new(
        Code::Protocol,
        format!(
            "the helper at {} answers {question} with something else",
            client.path().display()
        ),
    )
}
