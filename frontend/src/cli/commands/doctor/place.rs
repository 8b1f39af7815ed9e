//! A place of ours that cannot be used: the directory of the sockets, or of the records.

use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};

use super::settings::Settings;
use super::unit::Unit;
use super::words::unit_value;
use crate::base::Base;

/// The lists by which a unit hides what the machine has at a path, so that no `ReadWritePaths=` shows it.
const HIDING: [&str; 2] = ["TemporaryFileSystem", "InaccessiblePaths"];

/// What is in the way there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// What it would be made in, and what is there after a boot too.
    directory: PathBuf,
    /// What names another place.
    variables: &'static str,
    /// Whether its file system cannot be written here.
    is_read_only: bool,
}

impl Place {
    /// Those that cannot be made or used here.
    pub(super) fn in_the_way(base: &Base) -> Vec<Self> {
        // One that is there is used as it is, and says nothing of what can be made in it.
        let is_closed = |path: &Path| access(path, AccessFlags::W_OK).is_err();
        let mut found = Vec::new();
        if base.run_dir().is_err() || is_closed(&base.root().join("run")) {
            found.push(Self::of_the_sockets(base));
        }
        if base.records_dir().is_err() || is_closed(base.records_path()) {
            found.push(Self::of_the_records(base));
        }
        found.dedup();
        found
    }

    /// The one that a path lies in.
    pub(super) fn around(base: &Base, path: Option<&str>) -> Self {
        match path {
            Some(path) if Path::new(path).starts_with(base.root()) => Self::of_the_sockets(base),
            _ => Self::of_the_records(base),
        }
    }

    fn of_the_sockets(base: &Base) -> Self {
        let root = base.root();
        // Root's own directory there is made anew after each boot.
        let directory = match root.strip_prefix("/run") {
            Ok(rest) if rest.starts_with("cgleaf") => Path::new("/run"),
            _ => root.parent().unwrap_or(root),
        };
        Self::new(directory, root, "XDG_RUNTIME_DIR")
    }

    /// Beneath the state directory there is one for each boot.
    fn of_the_records(base: &Base) -> Self {
        let records = base.records_path();
        if records.starts_with(base.root()) {
            return Self::of_the_sockets(base);
        }
        let state = records.ancestors().nth(2).unwrap_or(records);
        let directory = state.ancestors().find(|one| one.exists()).unwrap_or(state);
        Self::new(directory, records, "XDG_STATE_HOME, or XDG_RUNTIME_DIR,")
    }

    fn new(directory: &Path, wanted: &Path, variables: &'static str) -> Self {
        let nearest = wanted.ancestors().find(|one| one.exists());
        let is_read_only =
            nearest.is_some_and(|one| access(one, AccessFlags::W_OK) == Err(Errno::EROFS));
        Self {
            directory: directory.to_path_buf(),
            variables,
            is_read_only,
        }
    }

    /// The settings of a unit that give other ones, or give these back. Whoever has a runtime directory keeps the records in it.
    pub(super) fn settings_for(places: &[Self], unit: &Unit, settings: &Settings) -> Vec<String> {
        let of_each: Vec<_> = places
            .iter()
            .map(|place| place.settings(unit, settings))
            .collect();
        let is_runtime = |given: &&Vec<String>| given.len() > 1;
        match of_each.iter().find(is_runtime) {
            Some(given) => given.clone(),
            None => of_each.concat(),
        }
    }

    /// The settings of a unit that give another one, or give this one back.
    fn settings(&self, unit: &Unit, settings: &Settings) -> Vec<String> {
        let hides = |path: &Path| {
            HIDING
                .iter()
                .any(|list| settings.entry_around(list, path).is_some())
        };
        let is_named_itself = settings
            .entry_around("ReadOnlyPaths", &self.directory)
            .as_deref()
            == Some(&self.directory);
        if self.is_read_only && settings.are_known() && !hides(&self.directory) && !is_named_itself
        {
            return vec![writable(&self.directory)];
        }
        let name = unit.path.name().unwrap_or("unit");
        let name = format!("cgleaf-{}", name.strip_suffix(".service").unwrap_or(name));
        let (setting, above) = if unit.is_of_a_user {
            (
                "RuntimeDirectory",
                format!("/run/user/{}", cgleaf_shared::id::Uid::effective()),
            )
        } else if hides(Path::new("/run")) {
            ("StateDirectory", "/var/lib".to_owned())
        } else {
            ("RuntimeDirectory", "/run".to_owned())
        };
        vec![
            format!("{setting}={}", unit_value(&name)),
            format!(
                "Environment=XDG_RUNTIME_DIR={}",
                unit_value(format!("{above}/{name}"))
            ),
        ]
    }

    /// What helps where no unit's settings are in the way.
    pub(super) fn advice(&self, is_container: bool) -> String {
        let directory = self.directory.display();
        let elsewhere = format!(
            "set {} to a directory of yours that can be written",
            self.variables
        );
        match (self.is_read_only, is_container) {
            (true, true) => format!(
                "give this container a {directory} that can be written (docker: `--tmpfs {directory}`; kubernetes: an emptyDir volume there), \
                 or {elsewhere}"
            ),
            (true, false) => format!("let {directory} be written, or {elsewhere}"),
            (false, _) => elsewhere,
        }
    }
}

/// The setting that lets a directory be written.
pub(super) fn writable(directory: &Path) -> String {
    format!("ReadWritePaths={}", unit_value(directory))
}

#[cfg(test)]
mod tests {
    use super::super::settings::tests::settings;
    use super::super::unit::tests::unit;
    use super::*;

    #[test]
    fn what_a_unit_hides_is_not_asked_for_back() {
        let unit = unit("/system.slice/a.service");
        let place = |directory: &str, is_read_only| Place {
            directory: directory.into(),
            variables: "XDG_RUNTIME_DIR",
            is_read_only,
        };
        let own = [
            "RuntimeDirectory=cgleaf-a",
            "Environment=XDG_RUNTIME_DIR=/run/cgleaf-a",
        ];
        let strict = settings("ReadOnlyPaths=/\n");
        assert_eq!(
            place("/tmp", true).settings(&unit, &strict),
            ["ReadWritePaths=/tmp"]
        );
        for (told, read_only) in [
            ("TemporaryFileSystem=/tmp:ro\n", true),
            ("InaccessiblePaths=/tmp\n", false),
            ("ReadOnlyPaths=/tmp\n", true),
            ("", true),
        ] {
            assert_eq!(
                place("/tmp", read_only).settings(&unit, &settings(told)),
                own,
                "{told}"
            );
        }
        let hidden =
            place("/run", true).settings(&unit, &settings("TemporaryFileSystem=/run:ro\n"));
        assert_eq!(
            hidden,
            [
                "StateDirectory=cgleaf-a",
                "Environment=XDG_RUNTIME_DIR=/var/lib/cgleaf-a"
            ]
        );
        assert!(place("/tmp", true).advice(true).contains("`--tmpfs /tmp`"));
        assert!(!place("/tmp", true).advice(false).contains("tmpfs"));
    }
}
