//! A helper in direct mode, with a place of its own.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Client, Enrolled, client_program};
use crate::frontend::{programs, wait_for};
use crate::scratch::{Scratch, skip, wait_until};

/// A scope directory, a socket, and the helper that serves them. Dropping it ends everything in it.
#[derive(Debug)]
pub struct Lair {
    _scratch: Scratch,
    scope: PathBuf,
    outside: PathBuf,
    directory: PathBuf,
    uid: u32,
    /// The helper, while it runs.
    pub helper: Option<Child>,
}

impl Lair {
    /// Makes one whose helper runs as `uid`, and starts that.
    #[must_use]
    pub fn new(uid: u32) -> Option<Self> {
        let mut lair = Self::without_helper(uid)?;
        lair.start(&[]);
        Some(lair)
    }

    /// Makes one without a helper.
    ///
    /// # Panics
    /// Where the directory for the socket cannot be made.
    #[must_use]
    pub fn without_helper(uid: u32) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !nix::unistd::geteuid().is_root() {
            skip("the helper's tests need root");
            return None;
        }
        let scratch = Scratch::new(uid)?;
        let scope = scratch.child("scope", uid);
        let outside = scratch.child("outside", uid);
        let directory = std::env::temp_dir().join(format!(
            "cgleaf-h{}-{}",
            crate::scratch::tag(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        ));
        fs::create_dir(&directory).expect("make a directory");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).expect("chmod");
        chown(&directory, Some(uid), Some(uid)).expect("chown");
        Some(Self {
            _scratch: scratch,
            scope,
            outside,
            directory,
            uid,
            helper: None,
        })
    }

    /// The scope directory.
    #[must_use]
    pub fn scope(&self) -> &Path {
        &self.scope
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.join("helper.sock")
    }

    /// A helper's command line in this place, with more arguments.
    pub fn command(&self, more: &[&str]) -> Command {
        let mut command = self.outside(&programs().join("cgleaf-helper"), self.uid);
        command
            .args(["serve", "--mode", "direct", "--scope-dir"])
            .arg(self.scope())
            .arg("--socket")
            .arg(self.socket())
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::from(self.log()));
        command
    }

    /// A program to be started as `uid` in a cgroup beside the scope directory: a user's helper can move itself and others
    /// only within what was delegated to that user.
    #[must_use]
    pub fn outside(&self, program: &Path, uid: u32) -> Command {
        let mut command = Command::new("bash");
        command
            .arg("-c")
            .arg("echo $$ >\"$0/cgroup.procs\" && exec setpriv --reuid $1 --regid $1 --clear-groups -- \"$2\" \"${@:3}\"")
            .arg(&self.outside)
            .arg(uid.to_string())
            .arg(program);
        command
    }

    /// A process that enrols itself: see [`Enrolled`].
    #[must_use]
    pub fn enrolled(&self, words: &[&str]) -> Enrolled {
        let mut command = self.outside(&client_program(), self.uid);
        command.arg(self.socket()).args(words);
        Enrolled::start(command)
    }

    fn log(&self) -> fs::File {
        fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.directory.join("log"))
            .expect("open the helper's log")
    }

    /// What its helpers have said.
    #[must_use]
    pub fn said(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Starts a helper and waits until it answers.
    ///
    /// # Panics
    /// Where it ends instead.
    pub fn start(&mut self, more: &[&str]) {
        let mut helper = self.command(more).spawn().expect("start the helper");
        wait_until("a helper that answers", || {
            if let Some(status) = helper.try_wait().expect("look at the helper") {
                panic!("the helper ended with {status}: {}", self.said());
            }
            Client::connect(&self.socket()).is_ok()
        });
        self.helper = Some(helper);
    }

    /// The helper's pid.
    ///
    /// # Panics
    /// Where there is none.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.helper.as_ref().expect("a helper").id()
    }

    /// Kills the helper as nothing else would, and reaps it.
    ///
    /// # Panics
    /// Where it cannot be killed.
    pub fn kill_helper(&mut self) {
        let mut helper = self.helper.take().expect("a helper");
        helper.kill().expect("kill the helper");
        wait_for(&mut helper);
    }

    /// A client of the helper's.
    ///
    /// # Panics
    /// Where it cannot be had.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::connect(&self.socket()).expect("a client")
    }

    /// The names of the cgroups directly in the scope directory.
    #[must_use]
    pub fn cgroups(&self) -> Vec<String> {
        let mut found: Vec<String> = fs::read_dir(self.scope())
            .expect("list the scope directory")
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        found.sort();
        found
    }

    /// How many descriptors the helper has open.
    ///
    /// # Panics
    /// Where that cannot be read.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .expect("list the helper's descriptors")
            .count()
    }
}

impl Drop for Lair {
    fn drop(&mut self) {
        if let Some(mut helper) = self.helper.take() {
            let _ = helper.kill();
            let _ = helper.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A helper that was not started by [`Lair::start`], ended with this value.
#[derive(Debug)]
pub struct Other(pub Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
