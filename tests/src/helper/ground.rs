//! Where a helper of a root mode serves the cgroups of a test.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::unit::DESCRIPTORS;
use super::{Enrolled, Unit, client_in};
use crate::scratch::{Scratch, skip, tag};

/// A tree of cgroups and a helper of a root mode in it.
#[derive(Debug)]
pub struct Ground {
    /// The helper, once it was started.
    pub unit: Option<Unit>,
    scratch: Scratch,
    /// Where its socket lies.
    pub directory: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl Ground {
    /// One for a test. None, and a word about it, without root.
    ///
    /// # Panics
    /// If a directory cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            skip("the helper's tests need root");
            return None;
        }
        // A node service that starts looks for containers' sessions on the whole machine, and takes away what is empty.
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let directory = std::env::temp_dir().join(format!(
            "cgleaf-m{}-{}-{name}",
            tag(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        ));
        fs::create_dir(&directory).unwrap();
        Some(Self {
            unit: None,
            scratch: Scratch::new(0)?,
            directory,
            _turn: turn,
        })
    }

    /// A cgroup in it, made if need be.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn cgroup(&self, path: &str) -> PathBuf {
        let path = self.scratch.path().join(path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// The helper's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.join("helper.sock")
    }

    /// Starts the helper in that cgroup, which `owner` owns.
    pub fn start(&mut self, cgroup: &str, owner: u32, arguments: &[&str]) -> &mut Unit {
        let cgroup = self.cgroup(cgroup);
        let unit = Unit::start(&cgroup, &self.socket(), owner, arguments, None);
        drop(unit.client());
        self.unit.insert(unit)
    }

    /// The same with a helper that may have no more descriptors than these.
    pub fn start_with_descriptors(
        &mut self,
        cgroup: &str,
        descriptors: u32,
        arguments: &[&str],
    ) -> &mut Unit {
        let cgroup = self.cgroup(cgroup);
        let number = descriptors.to_string();
        let limit = [(DESCRIPTORS, number.as_ref())];
        let unit = Unit::with_environment(&cgroup, &self.socket(), 0, arguments, &limit);
        drop(unit.client());
        self.unit.insert(unit)
    }

    /// A command in that cgroup, in whose /run there is nothing but the directory of this helper's socket, as `/run/cgleaf/NAME`, and
    /// nobody can write there: what a container is given.
    #[must_use]
    pub fn with_own_run(&self, cgroup: &str, name: &str, words: &[&OsStr]) -> Command {
        const SCRIPT: &str = "echo $$ >\"$1/cgroup.procs\" && mount -t tmpfs none /run && mkdir -p \"/run/cgleaf/$0\" && \
            mount --bind \"$2\" \"/run/cgleaf/$0\" && mount -o remount,ro /run && shift 2 && exec \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", SCRIPT, name])
            .arg(self.cgroup(cgroup))
            .arg(&self.directory)
            .args(words)
            .stdin(Stdio::null())
            .env_remove("XDG_RUNTIME_DIR");
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("CGLEAF_") {
                command.env_remove(variable);
            }
        }
        command
    }

    /// Lets everybody connect, as to the node service's socket.
    ///
    /// # Panics
    /// If the modes cannot be changed.
    pub fn open_to_all(&self) {
        for (path, mode) in [(&self.directory, 0o755), (&self.socket(), 0o666)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
        }
    }

    /// Starts a client in that cgroup, as that uid.
    #[must_use]
    pub fn client(&self, cgroup: &str, uid: u32, before: &[&str], words: &[&str]) -> Enrolled {
        client_in(&self.cgroup(cgroup), uid, before, &self.socket(), words)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Some(unit) = &self.unit {
            eprintln!("{}", unit.said());
        }
        self.unit = None;
        let _ = fs::remove_dir_all(&self.directory);
    }
}
