//! What to do about a scope directory that was named, where it gives no leaves.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cgleaf_shared::id::Uid;
use nix::errno::Errno;

use super::words::{os_text, parent_pid, shell};

/// What a user must have of a cgroup to make leaves in it.
const FILES: [&str; 3] = ["", "cgroup.procs", "cgroup.subtree_control"];

/// How the named one stands to this user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Named {
    /// It is the hierarchy's root.
    Root,
    /// It is not there, and this user can make nothing above it.
    Absent,
    /// It is a unit's, and that is not this user's.
    OfAUnit,
    /// These of it are not this user's.
    OfOthers(Vec<PathBuf>),
    /// It is this user's, and a process cannot be moved into it from where this one is.
    OutOfReach,
    /// It is this user's, and there is no more to be told than what was answered.
    Own,
}

impl Named {
    /// How it stands. `mount`: the hierarchy's root; `reason`: what the helper answered; `is_inside`: whether this process is in it.
    pub(super) fn find(
        uid: Uid,
        directory: &Path,
        mount: Option<&Path>,
        reason: &str,
        is_inside: bool,
    ) -> Self {
        if mount.is_some_and(|mount| is_the_same(directory, mount)) {
            return Self::Root;
        }
        let is_denied = reason.contains(&os_text(Errno::EACCES));
        let others = match of_others(uid, directory) {
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && is_denied
                    && !is_owned_above(uid, directory) =>
            {
                return Self::Absent;
            }
            others => others.unwrap_or_default(),
        };
        if uid != Uid::ROOT && !others.is_empty() {
            return if is_a_units(directory) {
                Self::OfAUnit
            } else {
                Self::OfOthers(others)
            };
        }
        if is_denied && reason.contains("cgroup.procs") && !is_inside {
            return Self::OutOfReach;
        }
        Self::Own
    }

    /// What helps; `None` where nothing of the directory is in the way.
    pub(super) fn advice(&self, uid: Uid, directory: &Path) -> Option<String> {
        let place = shell(directory);
        let told = match self {
            Self::Root => format!(
                "unset CGLEAF_SCOPE_DIR, or leave --scope-dir out: {place} is the root of the hierarchy, which is nobody's to have"
            ),
            Self::Absent => format!(
                "there is no cgroup {place}, and this user may not make it: name one that is there, or unset CGLEAF_SCOPE_DIR"
            ),
            Self::OfAUnit => format!(
                "{place} is a unit's of systemd's, and not this user's: name a cgroup that is, or unset CGLEAF_SCOPE_DIR"
            ),
            Self::OfOthers(paths) => {
                let paths: Vec<String> = paths.iter().map(shell).collect();
                format!(
                    "it must be this user's: `chown {uid} {}`, as root; or unset CGLEAF_SCOPE_DIR",
                    paths.join(" ")
                )
            }
            Self::OutOfReach => {
                let above = directory.ancestors().find(|one| one.exists());
                let procs = above.unwrap_or(directory).join("cgroup.procs");
                format!(
                    "have root put the shell into it, from where nobody else may move it there: `echo {} >{}`",
                    parent_pid(),
                    shell(procs)
                )
            }
            Self::Own => return None,
        };
        Some(told)
    }
}

fn is_the_same(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| {
        std::fs::metadata(path)
            .ok()
            .map(|stat| (stat.dev(), stat.ino()))
    };
    id(one).is_some_and(|found| id(other) == Some(found))
}

fn is_owned_above(uid: Uid, directory: &Path) -> bool {
    let above = directory
        .parent()
        .and_then(|parent| std::fs::metadata(parent).ok());
    above.is_some_and(|stat| stat.uid() == uid.0)
}

/// Which files of it somebody else has.
fn of_others(uid: Uid, directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for name in FILES {
        let path = if name.is_empty() {
            directory.to_path_buf()
        } else {
            directory.join(name)
        };
        if std::fs::metadata(&path)?.uid() != uid.0 {
            found.push(path);
        }
    }
    Ok(found)
}

fn is_a_units(directory: &Path) -> bool {
    let suffix = directory.extension().and_then(|suffix| suffix.to_str());
    matches!(suffix, Some("slice" | "service" | "scope"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_told_to_take_what_is_no_users_to_have() {
        let uid = Uid(1000);
        let place = std::env::temp_dir().join(format!("cgleaf-named-{}", std::process::id()));
        std::fs::create_dir(&place).unwrap();
        let (mount, unit, other) = (place.as_path(), place.join("a.slice"), place.join("x"));
        for directory in [&unit, &other] {
            std::fs::create_dir(directory).unwrap();
            for file in &FILES[1..] {
                std::fs::write(directory.join(file), "").unwrap();
            }
        }
        let own = Uid(std::fs::metadata(mount).unwrap().uid());
        let stranger = Uid(own.0 + 1);
        let find = |uid: Uid, directory: &Path, reason: &str| {
            Named::find(uid, directory, Some(mount), reason, false)
        };
        assert_eq!(find(uid, mount, ""), Named::Root);
        assert_eq!(find(stranger, &unit, ""), Named::OfAUnit);
        assert!(matches!(find(stranger, &other, ""), Named::OfOthers(all) if all.len() == 3));
        let denied = "write to x/helper/cgroup.procs: Permission denied (os error 13)";
        assert_eq!(find(own, &other, denied), Named::OutOfReach);
        assert_eq!(find(own, &other, "RLIMIT_NOFILE is 16"), Named::Own);
        let absent = "make x: Permission denied (os error 13)";
        assert_eq!(find(stranger, &mount.join("y"), absent), Named::Absent);
        assert_eq!(Named::Own.advice(own, &other), None);
        std::fs::remove_dir_all(&place).unwrap();
    }
}
