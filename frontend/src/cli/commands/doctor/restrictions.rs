//! What a unit's own settings take away, each as it is found here, and the setting that gives it back (systemd.exec(5)).

use std::path::{Path, PathBuf};

use cgleaf_shared::cgroup::{Mount, cgroup2_mounts};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::unistd::{AccessFlags, access};

use super::processes::hides_processes;
use super::words::unit_value;
use crate::base::Base;

/// What is taken away.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Restrictions {
    /// /proc hides processes: a helper that is locked down could not tell who asks it.
    pub(super) hidden_processes: bool,
    /// cgroup2 cannot be written.
    pub(super) read_only_cgroups: bool,
    /// There are no sockets of this machine's own.
    pub(super) no_unix_sockets: bool,
    /// The directory of our sockets, or what it would be made in, is on a file system that is read-only here.
    pub(super) read_only_place: Option<PathBuf>,
}

impl Restrictions {
    /// Those around this process.
    pub(super) fn here(mounts: &[Mount], base: &Base) -> Self {
        let cgroup2 = cgroup2_mounts(mounts).into_iter().next();
        Self {
            hidden_processes: hides_processes(),
            read_only_cgroups: cgroup2.is_some_and(|mount| mount.read_only),
            no_unix_sockets: has_no_unix_sockets(),
            read_only_place: read_only(base.root()),
        }
    }

    /// The settings that give them back.
    pub(super) fn settings(&self) -> Vec<String> {
        let place = self.read_only_place.as_deref().map(writable);
        [
            (self.hidden_processes, "ProtectProc=default"),
            (self.read_only_cgroups, "ProtectControlGroups=no"),
            (self.no_unix_sockets, "RestrictAddressFamilies=AF_UNIX"),
        ]
        .into_iter()
        .filter(|(taken, _)| *taken)
        .map(|(_, setting)| setting.to_owned())
        .chain(place)
        .collect()
    }
}

/// The setting that lets a directory be written.
pub(super) fn writable(directory: &Path) -> String {
    format!("ReadWritePaths={}", unit_value(directory))
}

/// The directory, or the nearest one above it that is there, if it is on a file system that cannot be written.
pub(super) fn read_only(directory: &Path) -> Option<PathBuf> {
    let there = directory.ancestors().find(|one| one.exists())?;
    (access(there, AccessFlags::W_OK) == Err(Errno::EROFS)).then(|| there.to_path_buf())
}

fn has_no_unix_sockets() -> bool {
    let flags = SockFlag::SOCK_CLOEXEC;
    let made = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None);
    matches!(
        made,
        Err(Errno::EAFNOSUPPORT | Errno::EPERM | Errno::EACCES)
    )
}
