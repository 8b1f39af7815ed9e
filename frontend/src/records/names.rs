//! The names of living sessions: `BASE/names/<name>` holds the id.

use cgleaf_shared::id::{SessionId, SessionName};

use crate::base::Base;
use crate::error::{Code, OrCode, Result};
use crate::private_dir::{Content, PrivateDir};

/// The directory of the names.
#[derive(Debug)]
pub struct Names {
    dir: PrivateDir,
}

impl Names {
    /// Opens the directory, and makes it if need be.
    ///
    /// # Errors
    /// STORAGE.
    pub fn open(base: &Base) -> Result<Self> {
        Ok(Self {
            dir: base.names_dir()?,
        })
    }

    /// The session that has this name.
    ///
    /// # Errors
    /// STORAGE.
    pub fn holder(&self, name: &SessionName) -> Result<Option<SessionId>> {
        match self.dir.read(name.as_str()).or_code(Code::Storage)? {
            Some(Content::Bytes(bytes)) => Ok(String::from_utf8_lossy(&bytes).trim().parse().ok()),
            Some(Content::NotOurs(_)) | None => Ok(None),
        }
    }

    /// Claims a name; `false` if somebody has it.
    ///
    /// # Errors
    /// STORAGE.
    pub fn claim(&self, name: &SessionName, session: &SessionId) -> Result<bool> {
        self.dir
            .create(name.as_str(), format!("{session}\n").as_bytes())
            .or_code(Code::Storage)
    }

    /// Takes over the name of a session that was proven over.
    ///
    /// # Errors
    /// STORAGE.
    pub fn replace(&self, name: &SessionName, session: &SessionId) -> Result<()> {
        self.dir
            .replace(name.as_str(), format!("{session}\n").as_bytes())
            .or_code(Code::Storage)
    }

    /// Gives a name back, if it still is this session's.
    ///
    /// # Errors
    /// STORAGE.
    pub fn release(&self, name: &SessionName, session: &SessionId) -> Result<()> {
        if self.holder(name)?.as_ref() == Some(session) {
            self.dir.remove(name.as_str()).or_code(Code::Storage)?;
        }
        Ok(())
    }

    /// The directory, for what lies in it beside the names.
    pub fn dir(&self) -> &PrivateDir {
        &self.dir
    }

    /// Takes away a name that nobody can have: its file holds no id.
    ///
    /// # Errors
    /// STORAGE.
    pub fn discard(&self, name: &SessionName) -> Result<()> {
        self.dir.remove(name.as_str()).or_code(Code::Storage)
    }

    /// Every name that is taken, with its holder.
    ///
    /// # Errors
    /// STORAGE.
    pub fn all(&self) -> Result<Vec<(SessionName, Option<SessionId>)>> {
        let names = self.dir.names().or_code(Code::Storage)?;
        names
            .iter()
            .filter_map(|name| name.parse().ok())
            .map(|name| Ok((self.holder(&name)?, name)))
            .map(|found| found.map(|(holder, name)| (name, holder)))
            .collect()
    }
}
