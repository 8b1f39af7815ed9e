//! A session of the group tier in a test: started, ended and judged by `group-host`, and gone with the value that names it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use cgleaf::group::{GroupIdentity, MARK_VARIABLE};
use cgleaf_shared::process::{Pid, Pidfd, Proc, State};
use tempfile::TempDir;

use crate::scratch::wait_until;

/// One session: a folder for its files and a mark that nobody else has.
#[derive(Debug)]
pub struct GroupCase {
    dir: TempDir,
    mark: String,
    host: PathBuf,
    enter: Vec<String>,
    trace: Option<PathBuf>,
}

/// What a destroy answered: exit status and the line it printed.
pub type Answer = (i32, String);

impl GroupCase {
    /// One that `host` (`env!("CARGO_BIN_EXE_group-host")`) will serve.
    ///
    /// # Panics
    /// Where there is no folder to be had.
    #[must_use]
    pub fn new(host: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = tempfile::tempdir().expect("a folder");
        open_to_all(dir.path());
        let mark = format!("group-test-{}-{count}", crate::scratch::tag());
        Self {
            dir,
            mark,
            host: host.into(),
            enter: Vec::new(),
            trace: None,
        }
    }

    /// Has destroys and gcs write their events to this file.
    #[must_use]
    pub fn traced(mut self, file: &Path) -> Self {
        self.trace = Some(file.to_path_buf());
        self
    }

    /// Has everything done by way of this command (`nsenter …`).
    #[must_use]
    pub fn by_way_of(mut self, enter: &[&str]) -> Self {
        self.enter = enter.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// Its folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Its mark.
    #[must_use]
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// The file of its identity.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.dir.path().join("identity.json")
    }

    /// A command of `group-host` about this session.
    #[must_use]
    pub fn command(&self, name: &str) -> Command {
        let mut words = self.enter.iter();
        let mut command = match words.next() {
            Some(first) => Command::new(first),
            None => Command::new(&self.host),
        };
        if !self.enter.is_empty() {
            command.args(words).arg(&self.host);
        }
        if let Some(trace) = &self.trace {
            command.env("CGLEAF_TRACE", trace);
        }
        command.arg(name).arg(self.file()).stdin(Stdio::null());
        command
    }

    /// `setsid group-host exec`: a program that leads a POSIX session and a group of its own.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn exec(&self, program: &(impl AsRef<OsStr> + ?Sized), arguments: &[&str]) -> Child {
        let mut command = match self.enter.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg("setsid");
                command
            }
            None => Command::new("setsid"),
        };
        command
            .arg(&self.host)
            .arg("exec")
            .arg(self.file())
            .arg(&self.mark)
            .arg(program)
            .args(arguments);
        let child = command
            .stdin(Stdio::null())
            .spawn()
            .expect("start group-host exec");
        wait_until("a recorded identity", || self.file().exists());
        child
    }

    /// `group-host run`, with what becomes of leftovers.
    #[must_use]
    pub fn run(
        &self,
        leftovers: &str,
        program: &(impl AsRef<OsStr> + ?Sized),
        arguments: &[&str],
    ) -> Command {
        let mut command = self.command("run");
        command
            .arg(&self.mark)
            .arg(leftovers)
            .arg(program)
            .args(arguments);
        command
    }

    /// `group-host start`.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn start(&self, program: &(impl AsRef<OsStr> + ?Sized), arguments: &[&str]) {
        let mut command = self.command("start");
        let status = command
            .arg(&self.mark)
            .arg(program)
            .args(arguments)
            .status()
            .expect("start group-host");
        assert!(status.success(), "group-host start: {status}");
    }

    /// What was recorded, once it is.
    ///
    /// # Panics
    /// Where that does not come.
    #[must_use]
    pub fn identity(&self) -> GroupIdentity {
        wait_until("a recorded identity", || self.file().exists());
        let text = fs::read(self.file()).expect("the identity");
        serde_json::from_slice(&text).expect("an identity")
    }

    /// Writes another identity in its place.
    ///
    /// # Panics
    /// Where that fails.
    pub fn record(&self, identity: &GroupIdentity) {
        fs::write(self.file(), serde_json::to_vec(identity).expect("JSON"))
            .expect("write the identity");
    }

    /// A destroy: its exit status and what it printed.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn destroy(&self, milliseconds: u32, strays: &str) -> Answer {
        let mut command = self.command("destroy");
        answer(command.arg(milliseconds.to_string()).arg(strays))
    }

    /// What a gc says.
    ///
    /// # Panics
    /// Where it fails.
    #[must_use]
    pub fn gc(&self) -> String {
        let (code, text) = answer(&mut self.command("gc"));
        assert_eq!(code, 0, "{text}");
        text
    }

    /// The living processes that carry the mark.
    ///
    /// # Panics
    /// Where /proc cannot be read.
    #[must_use]
    pub fn living(&self) -> Vec<Pid> {
        let proc = Proc::system().expect("/proc");
        let carries = |pid: &Pid| {
            let value = proc
                .process(*pid)
                .and_then(|process| process.environ_value(MARK_VARIABLE));
            matches!(value, Ok(Some(value)) if value == self.mark.as_bytes())
        };
        proc.pids()
            .expect("a listing")
            .into_iter()
            .filter(carries)
            .collect()
    }
}

impl Drop for GroupCase {
    fn drop(&mut self) {
        // Chains move on while they are killed; nothing of a test is left behind, however it ended.
        for _ in 0..2_000 {
            let living = self.living();
            if living.is_empty() {
                return;
            }
            for pid in living {
                if let Ok(held) = Pidfd::open(pid) {
                    let _ = held.send_signal(nix::libc::SIGKILL);
                }
            }
        }
    }
}

fn answer(command: &mut Command) -> Answer {
    let output = command.output().expect("start group-host");
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let errors = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    (
        output.status.code().unwrap_or(-1),
        if errors.is_empty() {
            text
        } else {
            format!("{text} {errors}")
        },
    )
}

fn open_to_all(dir: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).expect("chmod");
}

/// The state of a process; `None` once it is gone.
///
/// # Panics
/// Where /proc cannot be read.
#[must_use]
pub fn state(pid: Pid) -> Option<State> {
    let proc = Proc::system().expect("/proc");
    proc.process(pid)
        .and_then(|process| process.stat())
        .ok()
        .map(|stat| stat.state)
}

/// Does it live, and not as a zombie?
#[must_use]
pub fn lives(pid: Pid) -> bool {
    state(pid).is_some_and(|state| !state.is_over())
}

/// A child's pid.
///
/// # Panics
/// Never: a child has one.
#[must_use]
pub fn pid_of(child: &Child) -> Pid {
    Pid::new(i32::try_from(child.id()).expect("a pid")).expect("a pid")
}
