//! The sessions of one user, as calls: what the command line does, for programs that embed it.
//!
//! A host starts programs in sessions, keeps their ids, and may die at any time; whoever comes later finds them again by
//! id, and acts on exactly those or on nothing.
//!
//! ```no_run
//! use cgleaf::sessions::{Sessions, Start};
//!
//! let sessions = Sessions::of_this_user()?;
//! let session = sessions.start(&Start::program(["make", "test"]))?;
//! println!("{} is {}", session.id, sessions.look(&session).state.name());
//! // Everything that make started, its daemons too, and proven to be over when this returns.
//! sessions.destroy(session.id.as_str(), &Default::default())?;
//! # Ok::<(), cgleaf::Error>(())
//! ```
//!
//! Needed is a helper that answers, or the program `cgleaf-helper` where this one's is, in libexec, or in
//! `/usr/libexec`: then one is started.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cgleaf_shared::id::{SessionId, SessionName};

use crate::base::{Base, Surroundings};
use crate::error::{Code, Error, Result};
use crate::launch::{self, Identity, Lease, Plan, Site, TierWanted};
use crate::ops::{
    self, DestroyOptions, Destroyed, Everything, Freeze, Look, Processes, Reach, Session,
    Signalled, ThawEnd, WaitOutcome,
};

/// What is to be started.
#[derive(Debug, Clone, Default)]
pub struct Start {
    /// The program and its arguments. It is looked for in `PATH` if it has no slash.
    pub program: Vec<OsString>,
    /// The session's id; a new one where there is none. An id is used once.
    pub session: Option<SessionId>,
    /// A name, unique among living sessions.
    pub name: Option<SessionName>,
    /// The session, by id or name, that it is to be in.
    pub parent: Option<String>,
    /// Where the output goes; beside the record where there is none.
    pub log: Option<PathBuf>,
}

impl Start {
    /// A program with its arguments, and everything else as it comes.
    pub fn program(words: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self {
            program: words.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }
}

/// The sessions of one user. It can be shared between threads, [`Sessions::start`] apart.
#[derive(Debug)]
pub struct Sessions {
    base: Base,
    socket: Option<PathBuf>,
    reach: Reach,
}

impl Sessions {
    /// Those of this process's user, by the helpers that are there.
    ///
    /// # Errors
    /// STORAGE: neither a runtime directory nor a home is known.
    pub fn of_this_user() -> Result<Self> {
        Ok(Self::at(Base::find(&Surroundings::of_process())?, None))
    }

    /// Those whose records lie at `base`; of the helper at `socket` alone, where one is named.
    pub fn at(base: Base, socket: Option<&Path>) -> Self {
        Self {
            reach: Reach::new(&base, socket),
            socket: socket.map(Path::to_path_buf),
            base,
        }
    }

    fn site(&self) -> Site<'_> {
        Site {
            base: &self.base,
            socket: self.socket.as_deref(),
            scope_dir: None,
            kept_descriptor: None,
            notices: &|_| {},
            trouble: &|_| {},
        }
    }

    /// Starts a program detached, in a leaf of its own: it and everything it starts is the session. A small process stays
    /// beside it, which writes down how it ended.
    ///
    /// This forks. Call it from a process with one thread, or before there is a second one; a host with more starts the
    /// program `cgleaf start --session ID -- PROGRAM…` instead, which is the same.
    ///
    /// # Errors
    /// USAGE: no such program, or the id or the name is taken. UNSUPPORTED, HELPER_UNREACHABLE: no leaf can be had.
    /// Nothing was started then, and nothing is left behind.
    pub fn start(&self, start: &Start) -> Result<Session> {
        let plan = Plan {
            identity: Identity {
                session: start.session.clone(),
                name: start.name.clone(),
            },
            parent: start.parent.clone(),
            tier: TierWanted::Cgroup,
            words: start.program.clone(),
        };
        let record = launch::start(&self.site(), &plan, start.log.as_deref())
            .map_err(|failure| failure.error().clone())?;
        self.find(record.session.as_str())
    }

    /// Every session that can be found, also those that are over, and what stood in the way of a whole answer.
    pub fn all(&self) -> Everything {
        self.reach.everything()
    }

    /// The session of an id or a name; an exact id wins.
    ///
    /// # Errors
    /// SESSION_NOT_FOUND: no record and no helper knows it.
    pub fn find(&self, session: &str) -> Result<Session> {
        self.reach.resolve(session)
    }

    /// How it is, as the kernel says. What was recorded is verified first, so that a namesake is never taken for it.
    pub fn look(&self, session: &Session) -> Look {
        self.reach.look(session)
    }

    /// Its processes.
    ///
    /// # Errors
    /// HELPER_UNREACHABLE, REFUSED, SESSION_NOT_RUNNING.
    pub fn processes(&self, session: &Session) -> Result<Processes> {
        ops::processes(&self.reach, session)
    }

    /// Freezes it: when this returns, every process of it stands still (cgroup v2, `cgroup.freeze`).
    ///
    /// # Errors
    /// PARTIAL: it did not stand still in time, and goes on.
    pub fn freeze(&self, session: &Session) -> Result<Freeze> {
        ops::freeze(&self.reach, session)
    }

    /// Thaws it.
    ///
    /// # Errors
    /// PARTIAL: a session around it is frozen, and named.
    pub fn thaw(&self, session: &Session) -> Result<ThawEnd> {
        ops::thaw(&self.reach, session)
    }

    /// Sends a signal to every process of it, and misses none that is being forked.
    ///
    /// # Errors
    /// As [`Self::processes`].
    pub fn signal(&self, session: &Session, signal: i32) -> Result<Signalled> {
        ops::signal(&self.reach, session, signal)
    }

    /// Waits until nothing of it lives, for as long as `timeout` at most.
    ///
    /// # Errors
    /// HELPER_UNREACHABLE, REFUSED: how it is cannot be told.
    pub fn wait(&self, session: &Session, timeout: Option<Duration>) -> Result<WaitOutcome> {
        ops::wait(&self.reach, session, timeout)
    }

    /// Ends everything of a session. A success is proven: nothing of it lives, and its id starts nothing any more.
    ///
    /// # Errors
    /// PARTIAL, TIMEOUT: what may live is named; a later call goes on from there. SESSION_NOT_FOUND, unless the options
    /// say that this is fine.
    pub fn destroy(&self, session: &str, options: &DestroyOptions) -> Result<Destroyed> {
        ops::destroy(&self.reach, session, options)
    }

    /// Ties the session's life to the value: when it is dropped, or this process ends in whatever way, the helper ends the
    /// session. The kernel tells it, by closing the connection.
    ///
    /// # Errors
    /// SESSION_NOT_RUNNING: it has no leaf. HELPER_UNREACHABLE, REFUSED.
    pub fn lease(&self, session: &Session) -> Result<Lease> {
        let record = session
            .record()
            .filter(|record| record.attestation.is_some());
        let record = record.ok_or_else(|| {
            Error::new(
                Code::SessionNotRunning,
                format!("{} has no leaf that a lease could be taken on", session.id),
            )
        })?;
        Lease::renew(&self.site(), record)
    }
}
