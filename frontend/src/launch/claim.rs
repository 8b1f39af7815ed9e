//! The claim of an id and a name: made before anything else, taken back on every way out but success (DESIGN 4, 4.2).

use std::path::PathBuf;
use std::time::Duration;

use cgleaf_shared::attestation::{Attestation, Foreign, Verdict, verify};
use cgleaf_shared::cgroup::CgroupRoot;
use cgleaf_shared::id::{SessionId, SessionName};
use cgleaf_shared::process::ProcessId;
use cgleaf_shared::wire::{Reply, Request};

use super::Site;
use super::log::LogPlace;
use super::named_directory::NamedDirectory;
use super::program::new_mark;
use super::scope;
use crate::client::{Client, Patience, all_places, find_all};
use crate::error::{Code, Error, OrCode, Result};
use crate::group::{GcVerdict, GroupIdentity, gc_judges_over};
use crate::records::{Found, HelperRef, Maker, Names, Phase, Record, Store, Tier};
use crate::steps;
use crate::trace::{self, Field, Role};

/// An id that is ours, and a name. Unless it is kept, both are given back when this is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    /// `None` only under a root mode's helper, whose list is enough (DESIGN 4.2).
    store: Option<Store>,
    names: Option<Names>,
    record: Record,
    /// Who claimed it.
    claimant: Maker,
    kept: bool,
}

/// Who is claimed for.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// The id; a new one where there is none.
    pub session: Option<SessionId>,
    /// The name.
    pub name: Option<SessionName>,
}

impl Claim {
    /// Claims an id, and then a name.
    ///
    /// # Errors
    /// USAGE: the id was used before, or the name is that of a living session. STORAGE: the claim cannot be written, and
    /// no helper of a root mode keeps the session instead.
    pub(super) fn make(site: &Site<'_>, identity: &Identity, tier: Tier) -> Result<Self> {
        Self::with_log(site, identity, tier, None)
    }

    /// The same for a program whose output goes to a file: the record names it before it is made, so that a log without a
    /// record is nobody's.
    ///
    /// # Errors
    /// As [`Self::make`].
    pub(super) fn with_log(
        site: &Site<'_>,
        identity: &Identity,
        tier: Tier,
        log: Option<&LogPlace>,
    ) -> Result<Self> {
        let session = match (&identity.session, scope::entered_for()) {
            (Some(session), _) => session.clone(),
            (None, Some(session)) => session,
            (None, None) => SessionId::generate()?,
        };
        let mut record = Record::intent(session, identity.name.clone(), tier)?;
        record.mark = Some(new_mark()?);
        let mut claim = Self {
            store: None,
            names: None,
            claimant: record.maker,
            record,
            kept: false,
        };
        let started = trace::started();
        let claimed = claim.claim_id(site, identity.session.is_some(), log);
        trace::event(
            Role::Create,
            "Claim",
            started,
            &[("ok", Field::Flag(claimed.is_ok()))],
        );
        match claimed {
            Err(error) if error.code() == Code::Storage && has_root_helper(site) => {
                site.notice(&format!(
                    "{}; the session has no record, its helper alone knows of it",
                    error.message()
                ));
                claim.store = None;
            }
            other => other?,
        }
        steps::at("create:claimed");
        if let Some(name) = identity.name.clone() {
            claim.claim_name(site, &name)?;
        }
        Ok(claim)
    }

    fn claim_id(&mut self, site: &Site<'_>, chosen: bool, log: Option<&LogPlace>) -> Result<()> {
        let store = Store::open(site.base)?;
        self.record.log = log.map(|place| match place {
            LogPlace::Named(path) => path.clone(),
            LogPlace::BesideTheRecord => store.log_of(&self.record.session),
        });
        let session = &self.record.session;
        if chosen && let Ok(as_name) = session.as_str().parse::<SessionName>() {
            let names = Names::open(site.base)?;
            if let Some(holder) = names.holder(&as_name)?
                && holder != *session
                && !is_over(site, &store, &holder)?
            {
                let why = format!(
                    "session {holder} is called {session}: an id may not equal the name of a living session"
                );
                return Err(Error::new(Code::Usage, why));
            }
        }
        if chosen {
            require_unknown_to_helpers(site, session)?;
        }
        match store.claim(&self.record) {
            Err(error) if error.code() == Code::Usage => match self.own_intent(&store)? {
                // One claim, made once.
                Some(own) => self.record.created = own.created,
                None => return Err(error),
            },
            other => other?,
        }
        self.store = Some(store);
        Ok(())
    }

    /// What this very process claimed before it was executed again in a scope of its own: pid and start ticks are the same
    /// across execve(2).
    fn own_intent(&self, store: &Store) -> Result<Option<Box<Record>>> {
        Ok(match store.read(&self.record.session)? {
            Some(Found::Record(record))
                if record.phase == Phase::Intent && record.maker == self.record.maker =>
            {
                Some(record)
            }
            _ => None,
        })
    }

    fn claim_name(&mut self, site: &Site<'_>, name: &SessionName) -> Result<()> {
        let Some(store) = &self.store else {
            return Ok(());
        };
        let names = Names::open(site.base)?;
        if let Ok(id) = name.as_str().parse()
            && id != self.record.session
            && store.read(&id)?.is_some()
        {
            let why = format!("there is a session with the id {name}: a name may not equal an id");
            return Err(Error::new(Code::Usage, why));
        }
        let session = &self.record.session;
        if !names.claim(name, session)? {
            match names.holder(name)? {
                Some(holder) if holder == *session => {}
                Some(holder) if !is_over(site, store, &holder)? => {
                    let why = format!(
                        "the name {name} is taken by session {holder}, which is not over: choose another, or destroy that one"
                    );
                    return Err(Error::new(Code::Usage, why).with("holder", holder.as_str()));
                }
                _ => names.replace(name, session)?,
            }
        }
        self.names = Some(names);
        Ok(())
    }

    /// The record as it was last written.
    pub(super) fn record(&self) -> &Record {
        &self.record
    }

    /// Changes what the next write writes.
    pub(super) fn record_mut(&mut self) -> &mut Record {
        &mut self.record
    }

    /// The records, where there are any.
    pub(super) fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }

    /// Looks for the tombstone: after enrolment, so that a destroy that laid it earlier is seen, and one that lays it later
    /// finds the leaf.
    ///
    /// # Errors
    /// SESSION_ALREADY_DESTROYED if it is there. STORAGE if that cannot be told.
    pub(super) fn look_for_tombstone(&self) -> Result<()> {
        steps::at("create:enrolled");
        let Some(store) = &self.store else {
            return Ok(());
        };
        if steps::is_left_out("look-for-tomb") {
            return Ok(());
        }
        let started = trace::started();
        let found = store.has_tombstone(&self.record.session)?;
        trace::event(
            Role::Create,
            "LookTomb",
            started,
            &[("found", Field::Flag(found))],
        );
        steps::at("create:looked");
        if found {
            Err(self.destroyed_meanwhile())
        } else {
            Ok(())
        }
    }

    fn destroyed_meanwhile(&self) -> Error {
        let session = &self.record.session;
        Error::new(
            Code::SessionAlreadyDestroyed,
            format!(
                "session {session} was destroyed before its program started: that id must not start any more"
            ),
        )
        .with("session", session.as_str())
    }

    /// Writes the phase `running`, with the leaf and the leader.
    ///
    /// # Errors
    /// SESSION_ALREADY_DESTROYED if a destroy has begun meanwhile. STORAGE.
    pub(super) fn write_running(&mut self) -> Result<()> {
        self.record.phase = Phase::Running;
        let started = trace::started();
        if let Some(store) = &self.store
            && !store.advance(&self.record)?
        {
            return Err(self.destroyed_meanwhile());
        }
        trace::event(Role::Create, "WriteRunning", started, &[]);
        steps::at("create:running");
        Ok(())
    }

    /// Puts the leaf, its helper and the leader into the record.
    pub(super) fn set_leaf(
        &mut self,
        attestation: Attestation,
        helper: HelperRef,
        leader: ProcessId,
    ) {
        self.record.attestation = Some(attestation);
        self.record.helper = Some(helper);
        self.record.leader = Some(leader);
    }

    /// Puts the identity of a session of the group tier into the record. `stays` is who may live longer than this process
    /// and write how the program ends.
    pub(super) fn set_group(
        &mut self,
        identity: &GroupIdentity,
        stays: Option<ProcessId>,
    ) -> Result<()> {
        self.record.tier = Tier::Group;
        self.record.leader = identity.start.map(|start| ProcessId {
            pid: identity.pid,
            start,
        });
        self.record.group = Some(serde_json::to_value(identity).or_code(Code::Internal)?);
        if let Some(process) = stays {
            self.record.maker.pid = process.pid;
            self.record.maker.start = process.start;
        }
        // Before the look for a tombstone: a destroy that comes behind it finds the group.
        if let Some(store) = &self.store
            && !store.advance(&self.record)?
        {
            return Err(self.destroyed_meanwhile());
        }
        Ok(())
    }

    /// Success: the id stays used, and the name taken.
    pub(super) fn keep(&mut self) {
        self.kept = true;
    }

    /// Gives the name back: the session is over.
    pub(super) fn release_name(&self) {
        if let (Some(names), Some(name)) = (&self.names, &self.record.name) {
            let _ = names.release(name, &self.record.session);
        }
    }

    /// Gives everything back. A record that a destroy has taken further is the destroy's.
    fn give_back(&self) {
        let session = &self.record.session;
        self.release_name();
        let Some(store) = &self.store else { return };
        // What cannot be removed now goes with gc.
        let _ = store.forget_if(session, |record| {
            [&self.claimant, &self.record.maker].contains(&&record.maker)
                && record.phase <= Phase::Running
        });
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.kept {
            let started = trace::started();
            self.give_back();
            trace::event(Role::Create, "GiveUp", started, &[]);
        }
    }
}

/// How long each of several helpers is waited for that may know an id.
const ASKED_FOR: Duration = Duration::from_secs(2);

/// Helpers of one user, as of several named directories, know nothing of each other. What keeps an id from being used by two of them
/// is its record, and that may have been lost: so each is asked. One alone sees to it itself.
fn require_unknown_to_helpers(site: &Site<'_>, session: &SessionId) -> Result<()> {
    let root = site.base.root();
    let sockets: Vec<PathBuf> = all_places(site.base, site.socket)
        .into_iter()
        .map(|(_, socket)| socket)
        .filter(|socket| socket.starts_with(root) && socket.exists())
        .collect();
    if sockets.len() < 2 {
        return Ok(());
    }
    let _patience = Patience::for_each(ASKED_FOR);
    for socket in sockets {
        let request = Request::Open {
            session: session.clone(),
        };
        let asked = Client::connect(&socket).and_then(|mut client| client.call(&request));
        if matches!(asked, Ok(Reply::Opened(_))) {
            let why = format!(
                "session {session} exists already, at the helper that has {}; an id is used once",
                socket.display()
            );
            return Err(Error::new(Code::Usage, why));
        }
    }
    Ok(())
}

/// Whether a helper answers that serves as root, with the record optional. Where a directory was named it is not asked.
fn has_root_helper(site: &Site<'_>) -> bool {
    if matches!(NamedDirectory::of(site), Ok(Some(_))) {
        return false;
    }
    let (clients, _) = find_all(site.base, site.socket);
    clients.iter().any(|client| {
        cgleaf_shared::wire::Mode::from_name(client.mode())
            .is_some_and(cgleaf_shared::wire::Mode::is_root_mode)
    })
}

/// Whether a session is proven over, so that its name may be taken. What cannot be told is not.
fn is_over(site: &Site<'_>, store: &Store, session: &SessionId) -> Result<bool> {
    Ok(match store.read(session)? {
        Some(Found::Record(record)) if record.phase.is_over() => true,
        Some(Found::Record(record)) if record.tier == Tier::Group => group_is_over(&record),
        Some(Found::Record(record)) => match (&record.attestation, record.phase) {
            (Some(attestation), _) => leaf_is_over(attestation),
            (None, Phase::Intent) => !record.maker.may_live() && no_helper_has(site, session),
            (None, _) => false,
        },
        Some(Found::Damaged { .. }) => false,
        None => no_helper_has(site, session),
    })
}

/// As gc judges it.
fn group_is_over(record: &Record) -> bool {
    let identity = record.group.clone().map(serde_json::from_value);
    let Some(Ok(identity)) = identity else {
        return record.phase == Phase::Intent && !record.maker.may_live();
    };
    let being_destroyed = || record.phase == Phase::Destroying;
    matches!(
        gc_judges_over(&identity, &being_destroyed, &|| false),
        Ok(GcVerdict::Over)
    )
}

/// Only `Gone`, an earlier boot, or `populated 0` of a leaf whose leader was in it says so.
fn leaf_is_over(attestation: &Attestation) -> bool {
    let Ok(root) = CgroupRoot::open() else {
        return false;
    };
    match verify(attestation, &root) {
        Verdict::Gone | Verdict::Foreign(Foreign::EarlierBoot) => true,
        Verdict::Proven(dir) => dir.events().is_ok_and(|events| !events.populated),
        _ => false,
    }
}

fn no_helper_has(site: &Site<'_>, session: &SessionId) -> bool {
    let (mut clients, _) = find_all(site.base, site.socket);
    clients.iter_mut().all(|client| lacks(client, session))
}

fn lacks(client: &mut Client, session: &SessionId) -> bool {
    let request = Request::Open {
        session: session.clone(),
    };
    match client.call(&request) {
        Ok(Reply::Opened(opened)) => !opened.entry.state.populated && opened.entry.leader.is_some(),
        Err(error) => error.code() == Code::SessionNotFound,
        Ok(_) => false,
    }
}
