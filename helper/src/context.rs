//! What a helper knows from its start on, and what it knows of its sessions.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Instant;

use cgleaf_shared::cgroup::{CgroupDir, CgroupRoot};
use cgleaf_shared::id::BootId;
use cgleaf_shared::process::Proc;
use cgleaf_shared::wire::{Mode, Refusal, Welcome};

use crate::connection::ConnectionId;
use crate::holds::Holds;
use crate::place::{Domain, Rules};
use crate::quota::Quota;
use crate::refuse;
use crate::table::{DomainDir, Key, Table};

/// A scope directory, held open.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) dir: CgroupDir,
    pub(crate) domain: Rc<DomainDir>,
    /// Whether this helper made it, and so has a cleaner for it already.
    pub(crate) is_new: bool,
}

impl Scope {
    /// Takes an opened directory as one.
    pub(crate) fn new(dir: CgroupDir) -> Result<Self, cgleaf_shared::IoError> {
        let domain = Rc::new(DomainDir {
            domain: Domain::Scope,
            path: dir.path().clone(),
            id: dir.id()?,
        });
        Ok(Self {
            dir,
            domain,
            is_new: false,
        })
    }
}

/// What does not change after the start.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) mode: Mode,
    pub(crate) root: CgroupRoot,
    pub(crate) proc: Proc,
    pub(crate) boot_id: BootId,
    /// The scope directories; new leaves go to the first.
    pub(crate) scopes: Vec<Scope>,
    /// Where this helper is reached, for the leaves that it makes; empty where it has no socket.
    pub(crate) socket: String,
    pub(crate) rules: Rules,
    pub(crate) quota: Quota,
    /// In how many pid namespaces the helper is, from its /proc on.
    pub(crate) depth: usize,
    pub(crate) welcome: Welcome,
}

/// Leaves that end with a connection.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// Whose they are.
    pub(crate) held: BTreeSet<(ConnectionId, Key)>,
    /// Those found at the start, and when they end unless somebody comes back for them.
    pub(crate) waiting: Vec<(Instant, Key)>,
    /// Those that were ended, or came to nothing, until their leaves are removed, and when that is given up.
    pub(crate) ended: Vec<(Instant, Key)>,
}

/// Everything that a request may look at or change.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) context: Context,
    pub(crate) table: Table,
    pub(crate) holds: Holds,
    pub(crate) leases: Leases,
    /// Leaves made to be born in, until their leader is attested: with their connection they are removed if empty.
    pub(crate) unborn: BTreeSet<(ConnectionId, Key)>,
    /// How many connections there are now.
    pub(crate) clients: usize,
    /// Whether the helper is about to end.
    pub(crate) ending: bool,
}

impl State {
    /// With sessions that were found in the tree.
    pub(crate) fn new(context: Context, table: Table) -> Self {
        Self {
            context,
            table,
            holds: Holds::default(),
            leases: Leases::default(),
            unborn: BTreeSet::new(),
            clients: 0,
            ending: false,
        }
    }

    /// Forgets a session whose leaf is gone.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.table.remove(key);
        self.holds.forget(key);
        self.leases.waiting.retain(|(_, waiting)| waiting != key);
        self.leases.held.retain(|(_, held)| held != key);
        self.leases.ended.retain(|(_, ended)| ended != key);
        self.unborn.retain(|(_, unborn)| unborn != key);
    }

    /// The helper's first scope directory.
    pub(crate) fn scope(&self) -> Result<&Scope, Refusal> {
        match self.context.scopes.first() {
            Some(scope) => Ok(scope),
            None => refuse::because(
                cgleaf_shared::wire::RefusalCode::PlaceNotServed,
                "place not served: this helper has no scope directory",
            ),
        }
    }

    /// Whether any session has, or may have, a live process.
    pub(crate) fn has_live_session(&self) -> bool {
        self.table.rows().any(|row| {
            let leaf = self.context.root.open_path(&row.leaf_path);
            match leaf.and_then(|dir| dir.events()) {
                Ok(events) => events.populated,
                Err(error) => !error.is_gone(),
            }
        })
    }
}
