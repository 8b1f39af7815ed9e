//! One session, with what its record and its helper say of it.

use std::path::{Path, PathBuf};

use cgleaf_shared::attestation::Attestation;
use cgleaf_shared::id::{BootTime, SessionId, SessionName, Uid};
use cgleaf_shared::wire::{Mode, SessionEntry};

use crate::records::{Found, Record, Tier};

/// What a helper says of a session.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The helper's socket.
    pub socket: PathBuf,
    /// Its mode.
    pub mode: String,
    /// Its statement.
    pub entry: SessionEntry,
}

/// A session that is known from its record, from a helper's list, or from both.
#[derive(Debug)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// What stands where its record should be.
    pub found: Option<Found>,
    /// What the helper that has its leaf says.
    pub listed: Option<Listed>,
}

impl Session {
    /// Its record, if it is one of ours.
    pub fn record(&self) -> Option<&Record> {
        match &self.found {
            Some(Found::Record(record)) => Some(record),
            _ => None,
        }
    }

    /// Why its record is set aside, if it is.
    pub fn set_aside(&self) -> Option<&str> {
        match &self.found {
            Some(Found::Damaged { why, .. }) => Some(why),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(&self) -> Option<&SessionName> {
        let listed = self.listed.as_ref().and_then(|l| l.entry.name.as_ref());
        listed.or_else(|| self.record().and_then(|record| record.name.as_ref()))
    }

    /// What is stated about its leaf: by the helper that has it, else by the record.
    pub fn attestation(&self) -> Option<&Attestation> {
        let listed = self.listed.as_ref().map(|listed| &listed.entry.attestation);
        listed.or_else(|| self.recorded())
    }

    /// What the record states about its leaf.
    pub(super) fn recorded(&self) -> Option<&Attestation> {
        self.record().and_then(|record| record.attestation.as_ref())
    }

    /// Whether the record tells of another leaf than the helper has: it was changed, or is an old one of an id that is used again.
    pub(super) fn tells_of_another_leaf(&self) -> bool {
        let listed = self.listed.as_ref().map(|listed| &listed.entry.attestation);
        matches!((self.recorded(), listed), (Some(recorded), Some(leaf)) if recorded != leaf)
    }

    /// How it is kept.
    pub fn tier(&self) -> Tier {
        match (self.record(), &self.listed) {
            (Some(record), None) => record.tier,
            _ => Tier::Cgroup,
        }
    }

    /// The same for whoever is told: a record that is set aside may still say it, or nothing does.
    pub fn told_tier(&self) -> Option<Tier> {
        match (&self.found, &self.listed) {
            (Some(Found::Damaged { readable, .. }), None) => {
                let told = readable.as_ref()?.get("tier")?;
                serde_json::from_value(told.clone()).ok()
            }
            _ => Some(self.tier()),
        }
    }

    /// When it was made.
    pub fn created(&self) -> Option<BootTime> {
        self.record()
            .map(|record| record.created)
            .or_else(|| self.attestation().map(|attestation| attestation.created))
    }

    /// The socket of the helper that keeps it.
    pub fn socket(&self) -> Option<&Path> {
        match &self.listed {
            Some(listed) => Some(&listed.socket),
            None => self.recorded_socket(),
        }
    }

    pub(super) fn recorded_socket(&self) -> Option<&Path> {
        let helper = self.record()?.helper.as_ref()?;
        Some(&helper.socket)
    }

    /// What to do where its leaf is there and no helper that answers has it. The services' helpers come back to their own
    /// leaves, and nobody else takes those over.
    pub(super) fn way_back(&self) -> String {
        let helper = self.record().and_then(|record| record.helper.as_ref());
        let unit = match helper.and_then(|helper| Mode::from_name(&helper.mode)) {
            Some(Mode::UserService) => "systemctl --user start cgleaf-helper.socket".to_owned(),
            Some(Mode::SystemService) => {
                format!("systemctl start cgleaf-helper@{}.socket", Uid::effective())
            }
            Some(Mode::NodeService) => "systemctl start cgleaf-helper-node.socket".to_owned(),
            _ => return "`cgleaf doctor` tells which were looked for".to_owned(),
        };
        format!(
            "it is the service's that does not answer: `{unit}` brings that back, where it is installed"
        )
    }
}
