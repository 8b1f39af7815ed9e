//! A real systemd with user managers: tests/lab/guest.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::held::Held;
use super::{Environment, available, hostile_dir, script};
use crate::frontend::programs;
use crate::scratch::skip;

/// How a guest is booted.
#[derive(Debug, Clone, Default)]
pub struct GuestOptions {
    root: Option<PathBuf>,
    binds: Vec<(PathBuf, PathBuf)>,
    second_user: bool,
    no_linger: bool,
}

impl GuestOptions {
    /// From this machine's own root file system, with one lingering user.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Boots another tree, as fetch-root makes them.
    #[must_use]
    pub fn root(mut self, tree: impl Into<PathBuf>) -> Self {
        self.root = Some(tree.into());
        self
    }

    /// Shows a folder of this machine inside, read-only.
    #[must_use]
    pub fn bind(mut self, from: impl Into<PathBuf>, inside: impl Into<PathBuf>) -> Self {
        self.binds.push((from.into(), inside.into()));
        self
    }

    /// With [`User::Other`] too.
    #[must_use]
    pub fn second_user(mut self) -> Self {
        self.second_user = true;
        self
    }

    /// User managers come with the first login and go with the last.
    #[must_use]
    pub fn no_linger(mut self) -> Self {
        self.no_linger = true;
        self
    }
}

/// The users of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// uid 1000, always there.
    Lab,
    /// uid 1001, with [`GuestOptions::second_user`].
    Other,
}

impl User {
    fn name(self) -> &'static str {
        match self {
            Self::Lab => "lab",
            Self::Other => "other",
        }
    }
}

/// A guest that is up. The programs of the workspace are in its /cgleaf, the hostile programs in /hostile.
#[derive(Debug)]
pub struct Guest {
    // In this order: the guest is down before its folder goes.
    _held: Held,
    dir: tempfile::TempDir,
}

impl Guest {
    /// Boots one; a second or two.
    ///
    /// # Errors
    /// Where it does not come up. The script's own words are on stderr then.
    pub fn up(options: &GuestOptions) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("cgleaf-guest-").tempdir()?;
        let mut command = script("guest");
        command.arg("-d").arg(dir.path()).arg("hold");
        if let Some(root) = &options.root {
            command.arg("--root").arg(root);
        }
        if options.second_user {
            command.arg("--second-user");
        }
        if options.no_linger {
            command.arg("--no-linger");
        }
        let programs = [
            (programs().to_path_buf(), PathBuf::from("/cgleaf")),
            (hostile_dir()?.to_path_buf(), PathBuf::from("/hostile")),
        ];
        for (from, inside) in programs.iter().chain(&options.binds) {
            let mut bind = OsString::from(from);
            bind.push(":");
            bind.push(inside);
            command.arg("--bind").arg(bind);
        }
        Ok(Self {
            _held: Held::start(command)?,
            dir,
        })
    }

    /// The one guest that the tests of this binary share, with both users, lingering. It ends with the binary.
    /// None (and a word about it) where this machine cannot have one.
    pub fn shared() -> Option<&'static Self> {
        static GUEST: OnceLock<Option<Guest>> = OnceLock::new();
        GUEST
            .get_or_init(|| {
                if !available(&[Environment::Systemd, Environment::Cc]) {
                    return None;
                }
                Self::up(&GuestOptions::new().second_user())
                    .inspect_err(|cause| skip(&format!("no systemd guest: {cause}")))
                    .ok()
            })
            .as_ref()
    }

    /// A command of [`User::Lab`] beneath its user manager. It ends with the command's exit code, 255 for a death by signal.
    #[must_use]
    pub fn user<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Command {
        self.as_user(User::Lab, words)
    }

    /// [`user`](Self::user) for either user.
    #[must_use]
    pub fn as_user<W: AsRef<OsStr>>(
        &self,
        user: User,
        words: impl IntoIterator<Item = W>,
    ) -> Command {
        self.command(&["user", "--as", user.name(), "--"], words)
    }

    /// A command of [`User::Lab`] in a login session's scope, which root owns.
    #[must_use]
    pub fn session<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Command {
        self.session_as(User::Lab, words)
    }

    /// [`session`](Self::session) for either user.
    #[must_use]
    pub fn session_as<W: AsRef<OsStr>>(
        &self,
        user: User,
        words: impl IntoIterator<Item = W>,
    ) -> Command {
        self.command(&["session", "--as", user.name(), "--"], words)
    }

    /// A command of root, a unit of the system manager.
    #[must_use]
    pub fn root<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Command {
        self.command(&["root", "--"], words)
    }

    /// A command of root in no unit at all: for looking, not for starting things.
    #[must_use]
    pub fn enter<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Command {
        self.command(&["enter", "--"], words)
    }

    /// The folder here that is /share inside, writable for everyone.
    #[must_use]
    pub fn share(&self) -> PathBuf {
        self.dir.path().join("share")
    }

    /// The guest's cgroup as this machine sees it: the root of what is in the guest's /sys/fs/cgroup.
    ///
    /// # Panics
    /// Where the guest is gone.
    #[must_use]
    pub fn cgroup(&self) -> PathBuf {
        let path = self.dir.path().join("cgroup");
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|cause| panic!("read {}: {cause}", path.display()));
        PathBuf::from(text.trim())
    }

    fn command<W: AsRef<OsStr>>(
        &self,
        how: &[&str],
        words: impl IntoIterator<Item = W>,
    ) -> Command {
        let mut command = script("guest");
        command.arg("-d").arg(self.dir()).args(how).args(words);
        command.stdin(std::process::Stdio::null());
        command
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }
}
