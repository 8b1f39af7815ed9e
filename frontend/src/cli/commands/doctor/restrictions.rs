//! What a unit's own settings take away, each as it is found here, and the setting that gives it back (systemd.exec(5)).

use std::path::Path;

use cgleaf_shared::cgroup::{Mount, cgroup2_mounts};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::place::writable;
use super::processes::hides_processes;
use super::settings::Settings;

/// What is taken away.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Restrictions {
    /// /proc hides processes: a helper that is locked down could not tell who asks it.
    pub(super) hidden_processes: bool,
    /// cgroup2 cannot be written.
    pub(super) read_only_cgroups: bool,
    /// There are no sockets of this machine's own.
    pub(super) no_unix_sockets: bool,
}

impl Restrictions {
    /// Those around this process.
    pub(super) fn here(mounts: &[Mount]) -> Self {
        let cgroup2 = cgroup2_mounts(mounts).into_iter().next();
        Self {
            hidden_processes: hides_processes(),
            read_only_cgroups: cgroup2.is_some_and(|mount| mount.read_only),
            no_unix_sockets: has_no_unix_sockets(),
        }
    }

    /// The settings that give them back. `mount`: where cgroup2 is; `told`: those that are set.
    pub(super) fn settings(&self, mount: &Path, told: &Settings) -> Vec<String> {
        let mut settings = Vec::new();
        if self.hidden_processes {
            settings.push("ProtectProc=default".to_owned());
        }
        if self.read_only_cgroups {
            settings.extend(writable_cgroups(mount, told));
        }
        if self.no_unix_sockets {
            settings.push("RestrictAddressFamilies=AF_UNIX".to_owned());
        }
        settings
    }
}

/// More than one setting makes cgroup2 read-only. Of two on one path the one that takes away wins.
fn writable_cgroups(mount: &Path, told: &Settings) -> Vec<String> {
    let is_protected = ["ProtectControlGroups", "ProtectControlGroupsEx"]
        .iter()
        .any(|name| told.is_on(name));
    let mut settings = Vec::new();
    if is_protected || !told.are_known() {
        settings.push("ProtectControlGroups=no".to_owned());
    }
    match told.entry_around("ReadOnlyPaths", mount) {
        Some(entry) if entry == mount => settings.extend(told.without("ReadOnlyPaths", &entry)),
        Some(_) => settings.push(writable(mount)),
        None if settings.is_empty() => settings.push(writable(mount)),
        None => {}
    }
    settings
}

fn has_no_unix_sockets() -> bool {
    let flags = SockFlag::SOCK_CLOEXEC;
    let made = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None);
    matches!(
        made,
        Err(Errno::EAFNOSUPPORT | Errno::EPERM | Errno::EACCES)
    )
}

#[cfg(test)]
mod tests {
    use super::super::settings::tests::settings;
    use super::*;

    #[test]
    fn what_makes_cgroups_read_only_is_what_is_changed() {
        let given =
            |told: &str| writable_cgroups(Path::new("/sys/fs/cgroup"), &settings(told)).join(" ");
        assert_eq!(
            given("ProtectControlGroups=yes\n"),
            "ProtectControlGroups=no"
        );
        assert_eq!(given(""), "ProtectControlGroups=no");
        for above in ["/", "/sys"] {
            assert_eq!(
                given(&format!("ReadOnlyPaths={above}\nProtectControlGroups=no\n")),
                "ReadWritePaths=/sys/fs/cgroup"
            );
        }
        assert_eq!(
            given("ReadOnlyPaths=/sys/fs/cgroup /a\nProtectControlGroups=no\n"),
            "ReadOnlyPaths= ReadOnlyPaths=/a"
        );
    }
}
