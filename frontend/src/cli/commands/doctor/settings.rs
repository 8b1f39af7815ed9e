//! What the settings of the unit around this process say, as its manager tells them: by what is found here alone one that takes
//! something away cannot be told from another that does the same.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::systemd;
use super::unit::Unit;
use super::words::unit_value;

/// The ones that may be in the way (systemd.exec(5), systemd.resource-control(5)).
const NAMES: &str = "User,ProtectControlGroups,ProtectControlGroupsEx,ReadOnlyPaths,InaccessiblePaths,NoExecPaths,TemporaryFileSystem,\
                     MountAPIVFS";

/// The settings of a unit; none where its manager did not tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Settings(BTreeMap<String, String>);

impl Settings {
    /// Asks the unit's manager, which a unit's settings may keep from being asked.
    pub(super) fn of(unit: &Unit) -> Self {
        let Some(name) = unit.path.name() else {
            return Self::default();
        };
        let mut words = vec!["show".to_owned(), format!("--property={NAMES}")];
        words.extend(unit.is_of_a_user.then(|| "--user".to_owned()));
        words.extend(["--".to_owned(), name.to_owned()]);
        let words = words.into_iter().map(OsString::from).collect();
        systemd::told_by_systemctl(words)
            .map_or_else(|_| Self::default(), |text| Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        Self(
            pairs
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        )
    }

    /// Whether the manager has told them.
    pub(super) fn are_known(&self) -> bool {
        !self.0.is_empty()
    }

    /// A setting's value; empty where it is not set, and where the manager has told nothing.
    pub(super) fn value(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Whether it is set to something else than `no`.
    pub(super) fn is_on(&self, name: &str) -> bool {
        !matches!(self.value(name), "" | "no")
    }

    /// The entry of a list of paths that a path is, or lies beneath.
    pub(super) fn entry_around(&self, list: &str, path: &Path) -> Option<PathBuf> {
        let mut entries = self.value(list).split(' ').map(place_of);
        entries
            .find(|entry| entry.is_absolute() && path.starts_with(entry))
            .map(Path::to_path_buf)
    }

    /// What is to be assigned so that a list has an entry no more: an empty value begins it anew.
    pub(super) fn without(&self, list: &str, entry: &Path) -> Vec<String> {
        let others: Vec<&str> = self
            .value(list)
            .split(' ')
            .filter(|other| !other.is_empty() && place_of(other) != entry)
            .collect();
        let rest = (!others.is_empty()).then(|| format!("{list}={}", unit_value(others.join(" "))));
        std::iter::once(format!("{list}=")).chain(rest).collect()
    }
}

/// `-/path` need not be there, `+/path` is of the unit's own root, and `/path:ro` has mount options.
fn place_of(entry: &str) -> &Path {
    let path = entry.trim_start_matches(['-', '+']);
    Path::new(path.split(':').next().unwrap_or(path))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Those of a unit, as its manager tells them.
    pub(in super::super) fn settings(text: &str) -> Settings {
        Settings::parse(text)
    }

    #[test]
    fn an_entry_is_found_and_taken_out_of_its_list() {
        let settings = settings(
            "User=lab\nReadOnlyPaths=/sys -/a\nTemporaryFileSystem=/tmp:ro\nProtectControlGroups=no\n",
        );
        let around = |list: &str, path: &str| settings.entry_around(list, Path::new(path));
        assert_eq!(
            around("ReadOnlyPaths", "/sys/fs/cgroup"),
            Some("/sys".into())
        );
        assert_eq!(around("ReadOnlyPaths", "/system"), None);
        assert_eq!(around("TemporaryFileSystem", "/tmp"), Some("/tmp".into()));
        assert_eq!(
            settings.without("ReadOnlyPaths", Path::new("/sys")),
            ["ReadOnlyPaths=", "ReadOnlyPaths=-/a"]
        );
        assert!(!settings.is_on("ProtectControlGroups") && settings.is_on("User"));
        assert!(!Settings::default().are_known());
    }
}
