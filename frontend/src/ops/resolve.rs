//! From what a user types to a session, and from all places to all sessions.

use std::collections::BTreeMap;
use std::path::Path;

use cgleaf_shared::id::{SessionId, SessionName};
use cgleaf_shared::wire::{Reply, Request, SessionEntry};

use super::reach::{HelpersLeaf, Reach, unexpected};
use super::session::{Listed, Session};
use crate::client::{self, Client, Looked};
use crate::error::{Code, Error, Result};
use crate::records::{Found, Store};

/// Everything that could be found, and what stood in the way.
#[derive(Debug, Default)]
pub struct Everything {
    /// The sessions, in the order of their making; those without a date first.
    pub sessions: Vec<Session>,
    /// What could not be asked or read, for notices.
    pub trouble: Vec<Error>,
    /// The helper whose socket was named, by option or environment, does not tell of its sessions: which there are is not known.
    pub unanswered: Option<Error>,
    /// The records are there and cannot be read: which sessions there are is not known either.
    pub unread: Option<Error>,
}

impl Everything {
    /// Why it is not known which sessions there are, if so.
    pub fn unknown(&self) -> Option<&Error> {
        self.unread.as_ref().or(self.unanswered.as_ref())
    }
}

impl Reach {
    /// Finds the session that an id or a name stands for. An exact id wins.
    ///
    /// # Errors
    /// USAGE: it is neither. SESSION_NOT_FOUND: no record and no helper knows it. HELPER_UNREACHABLE: no record knows it, and a helper
    /// that might does not answer. STORAGE: no helper knows it, and the records cannot be read.
    pub fn resolve(&self, text: &str) -> Result<Session> {
        let id = parse(text)?;
        let unknown = match self.by_id(&id) {
            Ok(Some(session)) => return Ok(session),
            Ok(None) => self.unread().unwrap_or_else(|| not_found(text)),
            // It may be a name, of which the records tell.
            Err(error) if error.code() == Code::HelperUnreachable => error,
            Err(error) => return Err(error),
        };
        match self.id_of_name(text)? {
            Some(id) => self.by_id(&id)?.ok_or_else(|| not_found(text)),
            None => Err(unknown),
        }
    }

    /// The id that an id or a name stands for, asking a helper only where no record tells. An exact id wins.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub(super) fn identify(&self, text: &str) -> Result<SessionId> {
        let id = parse(text)?;
        if self.record(&id)?.is_some() {
            return Ok(id);
        }
        self.resolve(text).map(|session| session.id)
    }

    /// The session of exactly that id.
    ///
    /// # Errors
    /// STORAGE, or a helper's answer that is none. HELPER_UNREACHABLE: there is no record, and a helper does not answer.
    pub fn by_id(&self, id: &SessionId) -> Result<Option<Session>> {
        let found = self.record(id)?;
        let socket = match &found {
            Some(Found::Record(record)) => record.helper.as_ref().map(|helper| &helper.socket),
            _ => None,
        };
        let listed = match self.listed(id, socket.map(std::path::PathBuf::as_path), found.is_some())
        {
            // That is no reason not to show what the record and the kernel say; without a record nothing is known.
            Err(error) if error.code() == Code::HelperUnreachable && found.is_some() => None,
            other => other?,
        };
        Ok((found.is_some() || listed.is_some()).then(|| Session {
            id: id.clone(),
            found,
            listed,
        }))
    }

    /// Whether a session of that id is known, or may be to a helper that does not answer.
    ///
    /// # Errors
    /// As [`Self::by_id`].
    pub(super) fn may_know(&self, id: &SessionId) -> Result<bool> {
        match self.by_id(id) {
            Err(error) if error.code() == Code::HelperUnreachable => Ok(true),
            other => other.map(|session| session.is_some()),
        }
    }

    fn listed(
        &self,
        id: &SessionId,
        first: Option<&Path>,
        is_recorded: bool,
    ) -> Result<Option<Listed>> {
        let opened = if is_recorded {
            self.open_leaf(id, first)
        } else {
            self.open_unknown(id)
        };
        match opened {
            Ok(leaf) => Ok(leaf.map(|leaf| leaf.into_listed())),
            Err(error) if error.code() == Code::Refused && first.is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The id of the session that has this name: as the names' directory says, as a helper says, and last as the
    /// latest record says.
    fn id_of_name(&self, text: &str) -> Result<Option<SessionId>> {
        let Ok(name) = text.parse::<SessionName>() else {
            return Ok(None);
        };
        let holder = match self.names() {
            Ok(names) => names.holder(&name)?,
            Err(_) => None,
        };
        // The record has the last word: a name's file alone could lead to anybody.
        if let Some(id) = holder
            && let Some(found) = self.record(&id)?
            && !matches!(&found, Found::Record(record) if record.name.as_ref() != Some(&name))
        {
            return Ok(Some(id));
        }
        let all = self.everything();
        let mut named = all.sessions.into_iter().filter(|s| s.name() == Some(&name));
        // The list is in the order of making, and a helper's word is about a living leaf.
        let last = named
            .by_ref()
            .fold(None::<Session>, |best, next| match best {
                Some(best) if best.listed.is_some() && next.listed.is_none() => Some(best),
                _ => Some(next),
            });
        Ok(last.map(|session| session.id))
    }

    /// Every session of the records and of every helper that answers. Nothing that is damaged or does not answer hides
    /// the others.
    pub fn everything(&self) -> Everything {
        let mut all = Everything::default();
        let mut sessions = BTreeMap::new();
        match self.store() {
            Ok(store) => all.unread = read_records(store, &mut sessions).err(),
            Err(error) => match self.unread() {
                Some(error) => all.unread = Some(error),
                None if self.has_no_place() => {}
                None => all.trouble.push(error),
            },
        }
        let (helpers, looked) = self.helpers();
        let named = looked.first().filter(|one| client::is_named(&one.named_by));
        let unanswered = |one: &Looked, why: &str| {
            client::unanswered(&one.named_by, &one.socket, why, one.absent)
        };
        for mut helper in helpers {
            let listed = list(&mut helper);
            let mode = helper.mode().to_owned();
            match (listed, named) {
                (Ok(entries), _) => merge(&mut sessions, &helper, &mode, entries),
                (Err(error), Some(one)) => all.unanswered = Some(unanswered(one, error.message())),
                (Err(error), None) => all.trouble.push(error),
            }
        }
        for one in &looked {
            if named.is_some() && !one.why_not.is_empty() {
                all.unanswered = Some(unanswered(one, &one.why_not));
            } else if one.is_trouble() {
                let message = format!("{}: {}", one.socket.display(), one.why_not);
                all.trouble
                    .push(Error::new(Code::HelperUnreachable, message));
            }
        }
        all.sessions = sessions.into_values().collect();
        all.sessions.sort_by_key(Session::created);
        all
    }
}

/// One that cannot be read is there all the same, and hides no other.
fn read_records(store: &Store, sessions: &mut BTreeMap<SessionId, Session>) -> Result<()> {
    for id in store.sessions()? {
        let found = match store.read(&id) {
            Ok(None) => continue,
            Ok(found) => found,
            Err(error) => Some(Found::unreadable(&error)),
        };
        let session = Session {
            id: id.clone(),
            found,
            listed: None,
        };
        sessions.insert(id, session);
    }
    Ok(())
}

impl HelpersLeaf {
    fn into_listed(self) -> Listed {
        Listed {
            socket: self.client.path().to_path_buf(),
            mode: self.client.mode().to_owned(),
            entry: self.entry,
        }
    }
}

fn merge(
    sessions: &mut BTreeMap<SessionId, Session>,
    helper: &Client,
    mode: &str,
    entries: Vec<SessionEntry>,
) {
    for entry in entries {
        let id = entry.attestation.session.clone();
        let session = sessions.entry(id.clone()).or_insert(Session {
            id,
            found: None,
            listed: None,
        });
        // Two helpers may have an id each; the first one asked is the one that commands go to.
        session.listed.get_or_insert(Listed {
            socket: helper.path().to_path_buf(),
            mode: mode.to_owned(),
            entry,
        });
    }
}

/// All pages of a helper's list.
fn list(helper: &mut Client) -> Result<Vec<SessionEntry>> {
    let mut entries: Vec<SessionEntry> = Vec::new();
    loop {
        let after = entries
            .last()
            .map(|entry| entry.attestation.session.clone());
        match helper.call(&Request::List { after })? {
            Reply::Sessions { sessions, more } => {
                let empty = sessions.is_empty();
                entries.extend(sessions);
                if !more || empty {
                    return Ok(entries);
                }
            }
            _ => return Err(unexpected(helper, "list")),
        }
    }
}

/// A session's id or name, or a usage error that tells the rule.
pub(super) fn parse(text: &str) -> Result<SessionId> {
    text.parse::<SessionId>().map_err(|why| {
        Error::new(
            Code::Usage,
            format!("{text:?} is no session's id or name: {why}"),
        )
    })
}

/// The error of a session that nobody knows.
pub(super) fn not_found(text: &str) -> Error {
    Error::new(
        Code::SessionNotFound,
        format!("no such session: {text}; `cgleaf list --all` shows those that are known"),
    )
    .with("session", text)
}
