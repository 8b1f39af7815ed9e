//! The directory of the records.

use cgleaf_shared::id::{BootId, BootTime, SessionId};
use cgleaf_shared::process::{Liveness, Proc, liveness};

use super::contradiction::contradiction;
use super::record::{FORMAT, Maker, Record};
use crate::base::{Base, machine_id};
use crate::error::{Code, Error, OrCode, Result};
use crate::private_dir::{Content, PrivateDir};

const RECORD: &str = ".json";
const TOMBSTONE: &str = ".tomb";
const LOG: &str = ".log";

/// What stands where a session's record should be.
#[derive(Debug)]
pub enum Found {
    /// A record of this machine.
    Record(Box<Record>),
    /// Something that is reported and set aside, never rewritten or acted on.
    Damaged {
        /// What is wrong with it.
        why: String,
        /// Whether a later version, or another machine, made it.
        foreign: bool,
        /// What could be read of it, for showing.
        readable: Option<serde_json::Value>,
    },
}

impl Found {
    /// A file is there, and the kernel does not let it be read: nothing is acted on, as with one that is damaged.
    pub fn unreadable(error: &Error) -> Self {
        Self::Damaged {
            why: error.message().to_owned(),
            foreign: false,
            readable: None,
        }
    }
}

/// The records and tombstones of one user.
#[derive(Debug)]
pub struct Store {
    dir: PrivateDir,
}

impl Store {
    /// Opens the directory, and makes it if need be.
    ///
    /// # Errors
    /// STORAGE.
    pub fn open(base: &Base) -> Result<Self> {
        Ok(Self {
            dir: base.records_dir()?,
        })
    }

    /// The ids for which something stands there.
    ///
    /// # Errors
    /// STORAGE.
    pub fn sessions(&self) -> Result<Vec<SessionId>> {
        self.ids(RECORD)
    }

    /// The ids for which a tombstone lies.
    ///
    /// # Errors
    /// STORAGE.
    pub fn tombstones(&self) -> Result<Vec<SessionId>> {
        self.ids(TOMBSTONE)
    }

    fn ids(&self, suffix: &str) -> Result<Vec<SessionId>> {
        let names = self.dir.names().or_code(Code::Storage)?;
        Ok(names
            .iter()
            .filter_map(|name| name.strip_suffix(suffix)?.parse().ok())
            .collect())
    }

    /// Reads a session's record; `None` where there is none.
    ///
    /// # Errors
    /// STORAGE.
    pub fn read(&self, session: &SessionId) -> Result<Option<Found>> {
        match self
            .dir
            .read(&format!("{session}{RECORD}"))
            .or_code(Code::Storage)?
        {
            None => Ok(None),
            Some(Content::NotOurs(why)) => Ok(Some(Found::Damaged {
                why,
                foreign: true,
                readable: None,
            })),
            Some(Content::Bytes(bytes)) => Ok(Some(parse(&bytes, session))),
        }
    }

    /// Claims an id: the record appears whole, or somebody else has the id. An id is used once.
    ///
    /// # Errors
    /// USAGE if the id was used before; STORAGE if it cannot be written (a full disk).
    pub fn claim(&self, record: &Record) -> Result<()> {
        let name = format!("{}{RECORD}", record.session);
        if self
            .dir
            .create(&name, &bytes_of(record)?)
            .or_code(Code::Storage)?
        {
            return Ok(());
        }
        let session = &record.session;
        Err(Error::new(
            Code::Usage,
            format!("session {session} exists already; an id is used once"),
        )
        .with("session", session.as_str()))
    }

    /// Replaces a record by a later phase of itself, also where somebody took it away. One that has gone further meanwhile, or
    /// another session's that has the id now, is left alone, and the answer is `false`.
    ///
    /// # Errors
    /// STORAGE; RECORD_DAMAGED if what stands there is not ours to rewrite.
    pub fn advance(&self, record: &Record) -> Result<bool> {
        // Between the reading and the rename nobody else's phase may be lost.
        let _turn = self.dir.take_turn();
        match self.read(&record.session)? {
            Some(Found::Record(current)) if !goes_on(&current, record) => Ok(false),
            Some(Found::Damaged { why, .. }) => Err(set_aside(&record.session, &why)),
            _ => self.write(record),
        }
    }

    /// Changes a session's record as it stands now, and says whether that was done: not to one that is not there (any more), nor
    /// to that of a session which was claimed at another time and has the id now, nor back to an earlier phase.
    ///
    /// # Errors
    /// STORAGE; RECORD_DAMAGED if what stands there is not ours to rewrite.
    pub fn revise(
        &self,
        session: &SessionId,
        claimed: Option<BootTime>,
        change: impl FnOnce(&mut Record),
    ) -> Result<bool> {
        let _turn = self.dir.take_turn();
        match self.read(session)? {
            Some(Found::Record(current)) if claimed.is_none_or(|time| time == current.created) => {
                let mut record = (*current).clone();
                change(&mut record);
                Ok(goes_on(&current, &record) && self.write(&record)?)
            }
            Some(Found::Damaged { why, .. }) => Err(set_aside(session, &why)),
            _ => Ok(false),
        }
    }

    fn write(&self, record: &Record) -> Result<bool> {
        self.dir
            .replace(&format!("{}{RECORD}", record.session), &bytes_of(record)?)
            .or_code(Code::Storage)
            .map(|()| true)
    }

    /// Removes a record.
    ///
    /// # Errors
    /// STORAGE.
    pub fn forget(&self, session: &SessionId) -> Result<()> {
        self.dir
            .remove(&format!("{session}{RECORD}"))
            .or_code(Code::Storage)
    }

    /// Removes a record, and with it the log whose place cgleaf chose, if it is the one that is meant as it stands there now; whether
    /// it was.
    ///
    /// # Errors
    /// STORAGE.
    pub fn forget_if(
        &self,
        session: &SessionId,
        is_meant: impl FnOnce(&Record) -> bool,
    ) -> Result<bool> {
        // Between the reading and the removal nobody else's phase may be lost.
        let _turn = self.dir.take_turn();
        match self.read(session)? {
            Some(Found::Record(now)) if is_meant(&now) => {
                // A log that a user named is the user's.
                if now.log.as_ref() == Some(&self.log_of(session)) {
                    self.remove_log(session)?;
                }
                self.forget(session).map(|()| true)
            }
            _ => Ok(false),
        }
    }

    /// Whether a record that was read is still the one that stands there: that session's, and no further.
    pub fn stands(&self, read: &Record) -> bool {
        matches!(self.read(&read.session), Ok(Some(Found::Record(now))) if now.is_still(read))
    }

    /// Lays a tombstone: the id must not start any more. That it lies there already is fine.
    ///
    /// # Errors
    /// STORAGE.
    pub fn lay_tombstone(&self, session: &SessionId) -> Result<()> {
        let now = BootTime::now();
        let text = format!(
            "{{\"laid\":{now},\"boot_id\":\"{}\"}}\n",
            BootId::current().or_code(Code::HelperUnreachable)?
        );
        self.dir
            .create(&format!("{session}{TOMBSTONE}"), text.as_bytes())
            .or_code(Code::Storage)
            .map(|_| ())
    }

    /// Whether a tombstone lies for that id.
    ///
    /// # Errors
    /// STORAGE.
    pub fn has_tombstone(&self, session: &SessionId) -> Result<bool> {
        self.dir
            .has(&format!("{session}{TOMBSTONE}"))
            .or_code(Code::Storage)
    }

    /// When a tombstone was laid in this boot; `None` if it is of another boot or cannot be read.
    ///
    /// # Errors
    /// STORAGE.
    pub fn tombstone_laid(&self, session: &SessionId) -> Result<Option<BootTime>> {
        let Some(Content::Bytes(bytes)) = self
            .dir
            .read(&format!("{session}{TOMBSTONE}"))
            .or_code(Code::Storage)?
        else {
            return Ok(None);
        };
        let Ok(value) = serde_json::from_slice::<serde_json::Value>(&bytes) else {
            return Ok(None);
        };
        let boot = value["boot_id"]
            .as_str()
            .and_then(|text| text.parse::<BootId>().ok());
        let ours = boot == Some(BootId::current().or_code(Code::HelperUnreachable)?);
        Ok(value["laid"].as_u64().filter(|_| ours).map(BootTime))
    }

    /// Takes a tombstone away.
    ///
    /// # Errors
    /// STORAGE.
    pub fn lift_tombstone(&self, session: &SessionId) -> Result<()> {
        self.dir
            .remove(&format!("{session}{TOMBSTONE}"))
            .or_code(Code::Storage)
    }

    /// Where the record of a session is.
    pub fn record_of(&self, session: &SessionId) -> std::path::PathBuf {
        self.dir.path().join(format!("{session}{RECORD}"))
    }

    /// Where the log of a session is, if cgleaf chose the place.
    pub fn log_of(&self, session: &SessionId) -> std::path::PathBuf {
        self.dir.path().join(format!("{session}{LOG}"))
    }

    /// The ids for which a log lies there.
    ///
    /// # Errors
    /// STORAGE.
    pub fn logs(&self) -> Result<Vec<SessionId>> {
        self.ids(LOG)
    }

    /// Removes the log of a session whose place cgleaf chose.
    ///
    /// # Errors
    /// STORAGE.
    pub fn remove_log(&self, session: &SessionId) -> Result<()> {
        self.dir
            .remove(&format!("{session}{LOG}"))
            .or_code(Code::Storage)
    }

    /// The directory, for a log file beside the records.
    pub fn dir(&self) -> &PrivateDir {
        &self.dir
    }
}

/// Whether `next` is a later state of the same session.
fn goes_on(current: &Record, next: &Record) -> bool {
    current.created == next.created && current.phase.may_become(next.phase)
}

fn set_aside(session: &SessionId, why: &str) -> Error {
    Error::new(
        Code::RecordDamaged,
        format!("the record of {session}: {why}"),
    )
}

fn bytes_of(record: &Record) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(record).or_code(Code::Internal)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Tells a record of ours from one that is torn, newer, or another machine's.
pub fn parse(bytes: &[u8], session: &SessionId) -> Found {
    let damaged = |why: String, foreign, readable| Found::Damaged {
        why,
        foreign,
        readable,
    };
    let value: serde_json::Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(_) if bytes.iter().all(|byte| *byte == 0) => {
            return damaged(
                format!("it is empty ({} zero bytes)", bytes.len()),
                false,
                None,
            );
        }
        Err(error) => return damaged(format!("it is torn: {error}"), false, None),
    };
    match value["format"].as_u64() {
        Some(format) if format > u64::from(FORMAT) => {
            let why = format!(
                "it has format {format}, this version knows {FORMAT}: a newer cgleaf wrote it"
            );
            return damaged(why, true, Some(value));
        }
        Some(_) => {}
        None => return damaged("it has no format number".to_owned(), false, Some(value)),
    }
    match serde_json::from_value::<Record>(value.clone()) {
        Err(error) => damaged(format!("it cannot be read: {error}"), false, Some(value)),
        Ok(record) if record.session != *session => damaged(
            format!("it speaks of session {}", record.session),
            false,
            Some(value),
        ),
        Ok(record) if record.machine_id != machine_id() => {
            damaged("another machine wrote it".to_owned(), true, Some(value))
        }
        Ok(record) => match contradiction(&record) {
            Some(why) => damaged(why, false, Some(value)),
            None => Found::Record(Box::new(record)),
        },
    }
}

impl Maker {
    /// This process.
    ///
    /// # Errors
    /// INTERNAL if /proc does not show it.
    pub fn this_process() -> Result<Self> {
        let proc = Proc::system().or_code(Code::Internal)?;
        let pid = cgleaf_shared::process::Pid::own();
        // Also where this /proc numbers processes in another way.
        let stat = proc
            .own()
            .and_then(|dir| dir.stat())
            .or_code(Code::Internal)?;
        let boot_id = BootId::current()?;
        Ok(Self {
            pid,
            start: stat.id.start,
            boot_id,
            pid_namespace: proc.own_pid_namespace().ok(),
        })
    }

    /// Whether it lives; what cannot be told counts as alive, since gc goes by this.
    pub fn may_live(&self) -> bool {
        let Ok(proc) = Proc::system() else {
            return true;
        };
        if BootId::current().is_ok_and(|boot| boot != self.boot_id) {
            return false;
        }
        if self.pid_namespace.is_some() && proc.own_pid_namespace().ok() != self.pid_namespace {
            return true;
        }
        let process = cgleaf_shared::process::ProcessId {
            pid: self.pid,
            start: self.start,
        };
        !matches!(liveness::of(&proc, process), dead if Liveness::is_dead(&dead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_record_of_ours_is_set_aside_with_its_reason() {
        let session: SessionId = "s".parse().unwrap();
        let reason = |bytes: &[u8]| match parse(bytes, &session) {
            Found::Damaged { why, foreign, .. } => (why, foreign),
            Found::Record(record) => panic!("taken: {record:?}"),
        };
        assert!(reason(b"").0.contains("empty"));
        assert!(reason(&[0; 300]).0.contains("300 zero bytes"));
        assert!(reason(b"{\"format\":1,\"sess").0.contains("torn"));
        assert!(reason(b"{}").0.contains("no format"));
        let (why, foreign) = reason(b"{\"format\":99}");
        assert!(why.contains("newer cgleaf") && foreign);
        assert!(!reason(b"{\"format\":1}").1);
    }
}
