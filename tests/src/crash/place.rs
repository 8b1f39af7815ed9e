//! Where a series runs: what the commands are given, and where their traces are.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::frontend::{Answer, finish};
use crate::scratch::cgroup_mount;

/// Who starts helpers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The frontend, as a program of its own.
    Direct,
    /// The frontend, in a transient scope of the user's manager.
    Scope,
    /// The user's manager, by its units.
    Service,
}

/// A place of one user, that nobody else uses.
#[derive(Debug)]
pub struct Place {
    /// Who starts helpers there.
    pub mode: Mode,
    program: PathBuf,
    runtime: PathBuf,
    scope_dir: Option<PathBuf>,
    /// All leaves and helpers lie beneath it.
    cgroups: PathBuf,
}

impl Place {
    /// Direct mode with a runtime directory of its own, and a scope directory that is yet to be made.
    #[must_use]
    pub fn direct(program: &Path, runtime: &Path, scope_dir: &Path) -> Self {
        Self {
            mode: Mode::Direct,
            program: program.to_path_buf(),
            runtime: runtime.to_path_buf(),
            cgroups: scope_dir.parent().expect("a parent").to_path_buf(),
            scope_dir: Some(scope_dir.to_path_buf()),
        }
    }

    /// Beneath the manager of the user who runs this.
    ///
    /// # Panics
    /// Outside of one.
    #[must_use]
    pub fn of_user(mode: Mode, program: &Path) -> Self {
        let uid = nix::unistd::geteuid();
        let mount = cgroup_mount().expect("a cgroup2 mount");
        let cgroups = mount.join(format!("user.slice/user-{uid}.slice/user@{uid}.service"));
        assert!(cgroups.is_dir(), "there is no {}", cgroups.display());
        Self {
            mode,
            program: program.to_path_buf(),
            runtime: PathBuf::from(format!("/run/user/{uid}")),
            scope_dir: None,
            cgroups,
        }
    }

    /// A command of cgleaf there, about to be started.
    pub fn cgleaf<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).stdin(Stdio::null());
        command.env("XDG_RUNTIME_DIR", &self.runtime);
        if let Some(directory) = &self.scope_dir {
            command.env("CGLEAF_SCOPE_DIR", directory);
        }
        command
    }

    /// Runs one to its end.
    pub fn run<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Answer {
        finish(self.cgleaf(words))
    }

    /// The path of `cgleaf`.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Where sockets, records and names are.
    #[must_use]
    pub fn base(&self) -> PathBuf {
        self.runtime.join("cgleaf")
    }

    /// All leaves there are, by their sessions' ids.
    #[must_use]
    pub fn leaves(&self) -> Vec<(String, PathBuf)> {
        let id = |path: &PathBuf| {
            let name = path.file_name()?.to_str()?;
            Some(
                name.strip_prefix("cgleaf-")?
                    .strip_suffix(".leaf")?
                    .to_owned(),
            )
        };
        self.cgroups()
            .into_iter()
            .filter_map(|path| Some((id(&path)?, path)))
            .collect()
    }

    /// The pids of all helpers, by the cgroups that they move themselves into.
    #[must_use]
    pub fn helpers(&self) -> Vec<i32> {
        self.cgroups()
            .iter()
            .filter(|path| path.ends_with("helper"))
            .flat_map(|path| fs::read_to_string(path.join("cgroup.procs")))
            .flat_map(|text| {
                text.lines()
                    .filter_map(|pid| pid.parse().ok())
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// The scope directories that are there because of a helper.
    #[must_use]
    pub fn scopes(&self) -> Vec<PathBuf> {
        let is_scope = |path: &PathBuf| {
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or("");
            self.scope_dir.as_ref() == Some(path)
                || (name.starts_with("cgleaf-helper") && name.ends_with(".scope"))
        };
        self.cgroups().into_iter().filter(is_scope).collect()
    }

    fn cgroups(&self) -> Vec<PathBuf> {
        let mut found = vec![self.cgroups.clone()];
        let mut next = 0;
        while let Some(directory) = found.get(next).cloned() {
            next += 1;
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            found.extend(
                entries
                    .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                    .map(|entry| entry.path()),
            );
        }
        found
    }
}
