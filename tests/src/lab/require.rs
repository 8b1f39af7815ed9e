//! What a machine must have for a test, and the one rule for machines that lack it.

use std::path::Path;

use crate::scratch::{cgroup_mount, skip};

/// Something that a test needs of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Environment {
    /// To be root.
    Root,
    /// A cgroup2 mount in which root can make cgroups.
    Cgroup2,
    /// What a [`Guest`](super::Guest) of the machine's own system needs.
    Systemd,
    /// A static C toolchain, for the hostile programs.
    Cc,
    /// tmux, for programs on a terminal.
    Terminal,
    /// Loop devices and ext4, for a [`FrozenFilesystem`](super::FrozenFilesystem).
    LoopDevices,
    /// apt and a mirror, or an earlier download: for docker, kernels and other systems.
    Downloads,
    /// What tla/check needs.
    Model,
}

impl Environment {
    /// Why it is missing here, or None where it is there.
    #[must_use]
    pub fn missing(self) -> Option<String> {
        match self {
            Self::Root => (!nix::unistd::geteuid().is_root()).then(|| "needs root".to_owned()),
            Self::Cgroup2 => match cgroup_mount() {
                None => Some("needs a cgroup2 mount".to_owned()),
                Some(mount) => Self::Root.missing().or_else(|| {
                    nix::unistd::access(&mount, nix::unistd::AccessFlags::W_OK)
                        .err()
                        .map(|cause| format!("cannot write to {}: {cause}", mount.display()))
                }),
            },
            Self::Systemd => Self::Cgroup2
                .missing()
                .or_else(|| no_file("/lib/systemd/systemd"))
                .or_else(|| no_program(&["unshare", "nsenter", "setpriv", "dbus-daemon"])),
            Self::Cc => no_program(&["cc"]),
            Self::Terminal => no_program(&["tmux"]),
            Self::LoopDevices => Self::Root
                .missing()
                .or_else(|| no_file("/dev/loop-control"))
                .or_else(|| no_program(&["mkfs.ext4", "fsfreeze", "losetup"])),
            Self::Downloads => Self::Root
                .missing()
                .or_else(|| no_program(&["apt-get", "dpkg-deb"])),
            Self::Model => no_program(&["python3", "java"]),
        }
    }
}

/// Whether all of these are there. If not, says what is missing: a test then returns at once. See [`skip`] for what CI makes of it.
#[must_use]
pub fn available(environments: &[Environment]) -> bool {
    environments.iter().all(|environment| {
        environment
            .missing()
            .inspect(|reason| skip(reason))
            .is_none()
    })
}

/// Ends the test here where the machine lacks one of these [`Environment`]s: `require!(Root, Cgroup2);`
#[macro_export]
macro_rules! require {
    ($($environment:ident),+ $(,)?) => {
        if !$crate::lab::available(&[$($crate::lab::Environment::$environment),+]) {
            return;
        }
    };
}

fn no_file(path: &str) -> Option<String> {
    (!Path::new(path).exists()).then(|| format!("needs {path}"))
}

fn no_program(names: &[&str]) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(Into::into))
        .collect();
    names
        .iter()
        .find(|name| !folders.iter().any(|folder| folder.join(name).is_file()))
        .map(|name| format!("needs the program {name}"))
}
