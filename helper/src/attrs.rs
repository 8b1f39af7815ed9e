//! What a leaf remembers: its extended attributes, written and read in one place.

use std::ffi::CStr;

use cgleaf_shared::IoError;
use cgleaf_shared::cgroup::{CgroupDir, attributes};
use cgleaf_shared::id::{BootTime, Nonce, SessionId, SessionName, Uid};
use cgleaf_shared::process::{Pid, ProcessId, StartTicks};
use cgleaf_shared::wire::FreezeFlag;

use crate::write;

/// What a leaf says of the session that it was made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) session: SessionId,
    pub(crate) nonce: Nonce,
    pub(crate) owner: Uid,
    pub(crate) created: BootTime,
    pub(crate) name: Option<SessionName>,
}

/// Writes it. The session comes last: its presence is what makes a directory a leaf.
pub(crate) fn write_identity(
    dir: &CgroupDir,
    identity: &Identity,
    socket: &str,
) -> Result<(), IoError> {
    write::set_attribute(dir, attributes::NONCE, &identity.nonce.to_string())?;
    write::set_attribute(dir, attributes::OWNER, &identity.owner.to_string())?;
    write::set_attribute(dir, attributes::CREATED, &identity.created.to_string())?;
    write::set_attribute(dir, attributes::SOCKET, socket)?;
    if let Some(name) = &identity.name {
        write::set_attribute(dir, attributes::NAME, name.as_str())?;
    }
    write::set_attribute(dir, attributes::SESSION, identity.session.as_str())
}

/// Reads it; `None` where something is missing or is none of ours.
///
/// # Errors
/// If the attributes cannot be read at all.
pub(crate) fn identity(dir: &CgroupDir) -> Result<Option<Identity>, IoError> {
    let session = parsed(dir, attributes::SESSION)?;
    let nonce = parsed(dir, attributes::NONCE)?;
    let owner = parsed(dir, attributes::OWNER)?;
    let created = parsed(dir, attributes::CREATED)?;
    let name = parsed(dir, attributes::NAME)?;
    Ok((|| {
        Some(Identity {
            session: session?,
            nonce: nonce?,
            owner: Uid(owner?),
            created: BootTime(created?),
            name,
        })
    })())
}

fn parsed<T: std::str::FromStr>(dir: &CgroupDir, name: &CStr) -> Result<Option<T>, IoError> {
    Ok(dir.attribute_text(name)?.and_then(|text| text.parse().ok()))
}

/// The leader and its number in its own innermost pid namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leader {
    pub(crate) process: ProcessId,
    pub(crate) inner: Pid,
}

/// Records the leader: `PID START INNER`.
pub(crate) fn write_leader(dir: &CgroupDir, leader: Leader) -> Result<(), IoError> {
    let ProcessId { pid, start } = leader.process;
    write::set_attribute(
        dir,
        attributes::LEADER,
        &format!("{pid} {start} {}", leader.inner),
    )
}

/// The recorded leader.
pub(crate) fn leader(dir: &CgroupDir) -> Result<Option<Leader>, IoError> {
    Ok(dir
        .attribute_text(attributes::LEADER)?
        .and_then(|text| parse_leader(&text)))
}

fn parse_leader(text: &str) -> Option<Leader> {
    let mut words = text.split(' ');
    let pid = Pid::new(words.next()?.parse().ok()?)?;
    let start = StartTicks(words.next()?.parse().ok()?);
    let inner = Pid::new(words.next()?.parse().ok()?)?;
    Some(Leader {
        process: ProcessId { pid, start },
        inner,
    })
}

/// The freeze flags of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Flags {
    pub(crate) user: bool,
    pub(crate) hold: bool,
}

impl Flags {
    /// These with one of them set or cleared.
    pub(crate) fn with(mut self, flag: FreezeFlag, set: bool) -> Self {
        match flag {
            FreezeFlag::User => self.user = set,
            FreezeFlag::Hold => self.hold = set,
        }
        self
    }

    /// Whether nothing keeps the leaf frozen.
    pub(crate) fn are_clear(self) -> bool {
        self == Self::default()
    }

    /// Those that are set.
    pub(crate) fn set(self) -> Vec<FreezeFlag> {
        [(self.user, FreezeFlag::User), (self.hold, FreezeFlag::Hold)]
            .into_iter()
            .filter_map(|(is_set, flag)| is_set.then_some(flag))
            .collect()
    }

    fn text(self) -> &'static str {
        match (self.user, self.hold) {
            (false, false) => "",
            (true, false) => "user",
            (false, true) => "hold",
            (true, true) => "user hold",
        }
    }
}

/// The flags that are recorded; `None` where the leaf was never frozen by this helper or one before it. No flag, and yet
/// recorded: a thaw that was not finished.
pub(crate) fn flags(dir: &CgroupDir) -> Result<Option<Flags>, IoError> {
    Ok(dir.attribute_text(attributes::FREEZE)?.map(|text| Flags {
        user: text.split(' ').any(|word| word == "user"),
        hold: text.split(' ').any(|word| word == "hold"),
    }))
}

/// Records the flags.
pub(crate) fn write_flags(dir: &CgroupDir, flags: Flags) -> Result<(), IoError> {
    write::set_attribute(dir, attributes::FREEZE, flags.text())
}

/// Forgets the flags: the leaf is thawed.
pub(crate) fn forget_flags(dir: &CgroupDir) -> Result<(), IoError> {
    write::remove_attribute(dir, attributes::FREEZE)
}

/// Whether the leaf ends with a connection.
pub(crate) fn is_leased(dir: &CgroupDir) -> Result<bool, IoError> {
    Ok(dir.attribute(attributes::LEASE)?.is_some())
}

/// Records or forgets that the leaf ends with a connection.
pub(crate) fn write_lease(dir: &CgroupDir, leased: bool) -> Result<(), IoError> {
    if leased {
        write::set_attribute(dir, attributes::LEASE, "1")
    } else {
        write::remove_attribute(dir, attributes::LEASE)
    }
}

/// Whether the leaf may hold a stranger.
pub(crate) fn is_poisoned(dir: &CgroupDir) -> Result<bool, IoError> {
    Ok(dir.attribute(attributes::POISONED)?.is_some())
}

/// Records, for good, that the leaf may hold a stranger.
pub(crate) fn poison(dir: &CgroupDir) -> Result<(), IoError> {
    write::set_attribute(dir, attributes::POISONED, "1")
}

/// Whether the leaf was killed.
pub(crate) fn is_killed(dir: &CgroupDir) -> Result<bool, IoError> {
    Ok(dir.attribute(attributes::KILLED)?.is_some())
}

/// Records, for good, that the leaf was killed.
pub(crate) fn write_killed(dir: &CgroupDir) -> Result<(), IoError> {
    write::set_attribute(dir, attributes::KILLED, "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_is_three_numbers() {
        let leader = parse_leader("17 4711 3").unwrap();
        assert_eq!(
            (
                leader.process.pid.get(),
                leader.process.start.0,
                leader.inner.get()
            ),
            (17, 4711, 3)
        );
        for bad in ["", "17", "17 4711", "0 1 1", "17 x 1", "-1 1 1"] {
            assert_eq!(parse_leader(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn flags_come_and_go_one_by_one() {
        let both = Flags::default()
            .with(FreezeFlag::User, true)
            .with(FreezeFlag::Hold, true);
        assert_eq!(both.text(), "user hold");
        let hold = both.with(FreezeFlag::User, false);
        assert_eq!(hold.set(), [FreezeFlag::Hold]);
        assert!(hold.with(FreezeFlag::Hold, false).are_clear());
    }
}
