//! `cgleaf` itself: the built programs, and a place of its own for each test, with a helper of its own.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::scratch::{DEADLINE, Scratch, skip, wait_until};

/// Names a directory whose `cgleaf` and `cgleaf-helper` are tested instead of fresh ones: a release's.
const PROGRAMS: &str = "CGLEAF_TEST_PROGRAMS";

/// The directory that holds freshly built `cgleaf` and `cgleaf-helper`, or those that `CGLEAF_TEST_PROGRAMS` names.
///
/// # Panics
/// Where they cannot be built.
pub fn programs() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| std::env::var_os(PROGRAMS).map_or_else(|| build(None, &[]), PathBuf::from))
}

/// Whether [`programs`] are a release's, and not built here for testing.
#[must_use]
pub fn are_released() -> bool {
    std::env::var_os(PROGRAMS).is_some()
}

/// The same with cargo features of the frontend, such as `steps`, in a target directory of their own.
///
/// # Panics
/// Where they cannot be built.
pub fn programs_with(features: &[&str]) -> PathBuf {
    build(Some(&features.join("-")), features)
}

/// The same with everything that lets a test look into them: `steps`, and `trace`.
///
/// # Panics
/// Where they cannot be built.
pub fn instrumented_programs() -> PathBuf {
    programs_with(&["steps", "trace"])
}

/// Cargo's own lock lets several test programs ask for this at once; the second finds everything done.
fn build(apart: Option<&str>, features: &[&str]) -> PathBuf {
    let (target, profile) = target_directory();
    let target = apart.map_or_else(|| target.clone(), |name| target.join(name));
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args([
            "build",
            "--quiet",
            "--locked",
            "-p",
            "cgleaf",
            "-p",
            "cgleaf-helper",
        ])
        .arg("--target-dir")
        .arg(&target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null());
    if profile == "release" {
        cargo.arg("--release");
    }
    for feature in features {
        cargo.arg("--features").arg(format!("cgleaf/{feature}"));
    }
    let status = cargo.status().expect("start cargo");
    assert!(status.success(), "cargo build: {status}");
    target.join(profile)
}

/// The target directory that this test was built in, and the profile's directory in it.
fn target_directory() -> (PathBuf, String) {
    let own = std::env::current_exe().expect("the test's own path");
    let profile = own.ancestors().nth(2).expect("target/PROFILE/deps/test");
    let name = profile
        .file_name()
        .expect("a profile")
        .to_string_lossy()
        .into_owned();
    (
        profile.parent().expect("a target directory").to_path_buf(),
        name,
    )
}

/// An isolated place: a runtime directory, a scope directory, and so a helper that nobody else uses. Dropping it ends
/// everything that was started in it, and removes it.
#[derive(Debug)]
pub struct Sandbox {
    runtime: PathBuf,
    scope: Scratch,
    programs: PathBuf,
}

/// What a command answered.
#[derive(Debug)]
pub struct Answer {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote on stdout.
    pub stdout: String,
    /// What it wrote on stderr.
    pub stderr: String,
}

impl Answer {
    /// The exit status as a shell shows it.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Its stdout without the white space around it, if it ended with this exit status.
    ///
    /// # Panics
    /// Where it ended otherwise, with all that it said.
    #[track_caller]
    pub fn expect(&self, code: i32) -> &str {
        assert_eq!(self.code(), code, "unexpected exit status: {self:#?}");
        self.stdout.trim()
    }

    /// The JSON envelope on stdout.
    ///
    /// # Panics
    /// Where stdout is no JSON.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|why| panic!("no JSON ({why}): {:?} {:?}", self.stdout, self.stderr))
    }
}

impl Sandbox {
    /// Makes one. None (and a word about it) where this machine has no cgroup2 tree that may be written.
    #[must_use]
    pub fn new() -> Option<Self> {
        Self::with(programs().to_path_buf())
    }

    /// One that uses programs from another directory, as [`programs_with`] makes it.
    ///
    /// # Panics
    /// Where the runtime directory cannot be made.
    #[must_use]
    pub fn with(programs: PathBuf) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !nix::unistd::geteuid().is_root() {
            skip("the frontend's tests need root");
            return None;
        }
        let scope = Scratch::new(0)?;
        let runtime = std::env::temp_dir().join(format!(
            "cgleaf-t{}-{}",
            crate::scratch::tag(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        ));
        fs::create_dir(&runtime).expect("make a runtime directory");
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700)).expect("chmod");
        Some(Self {
            runtime,
            scope,
            programs,
        })
    }

    /// The runtime directory.
    #[must_use]
    pub fn runtime(&self) -> &Path {
        &self.runtime
    }

    /// Another runtime directory inside this one, where no helper is.
    ///
    /// # Panics
    /// Where it cannot be made.
    #[must_use]
    pub fn other_runtime(&self, name: &str) -> PathBuf {
        let path = self.runtime.join(name);
        match fs::create_dir(&path) {
            Err(why) if why.kind() != std::io::ErrorKind::AlreadyExists => panic!("{why}"),
            _ => {}
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("chmod");
        path
    }

    /// The scope directory.
    #[must_use]
    pub fn scope(&self) -> &Path {
        self.scope.path()
    }

    /// Where the records are.
    #[must_use]
    pub fn sessions(&self) -> PathBuf {
        self.runtime.join("cgleaf/sessions")
    }

    /// The path of `cgleaf`.
    #[must_use]
    pub fn program(&self) -> PathBuf {
        self.programs.join("cgleaf")
    }

    /// A command of cgleaf, about to be started with an empty stdin.
    pub fn cgleaf<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(self.program());
        command.args(arguments).stdin(Stdio::null());
        self.adjust(&mut command);
        command
    }

    /// Any command, such as a shell whose script calls `cgleaf` (which is on its PATH).
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.stdin(Stdio::null());
        self.adjust(&mut command);
        command
    }

    /// A script for bash, with `cgleaf` on its PATH.
    #[must_use]
    pub fn bash(&self, script: &str) -> Command {
        let mut command = self.command("bash");
        command.arg("-c").arg(script);
        command
    }

    fn adjust(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CGLEAF_") {
                command.env_remove(name);
            }
        }
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .env("XDG_RUNTIME_DIR", &self.runtime)
            .env("CGLEAF_SCOPE_DIR", self.scope.path())
            .env("PATH", format!("{}:{path}", self.programs.display()));
    }

    /// Runs `cgleaf` to its end.
    ///
    /// # Panics
    /// Where it does not end within [`DEADLINE`].
    pub fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Answer {
        finish(self.cgleaf(arguments))
    }

    /// The leaves directly in the scope directory, by their sessions' ids.
    #[must_use]
    pub fn leaves(&self) -> Vec<String> {
        let mut found = names(self.scope.path());
        found.retain(|name| name.ends_with(".leaf"));
        found.iter_mut().for_each(|name| {
            *name = name
                .trim_start_matches("cgleaf-")
                .trim_end_matches(".leaf")
                .to_owned();
        });
        found
    }

    /// The pids in a session's leaf itself.
    #[must_use]
    pub fn members(&self, session: &str) -> Vec<i32> {
        let file = self.leaf(session).join("cgroup.procs");
        fs::read_to_string(file)
            .unwrap_or_default()
            .lines()
            .filter_map(|line| line.parse().ok())
            .collect()
    }

    /// The helper's pid, by the cgroup that it moves itself into.
    #[must_use]
    pub fn helper_pid(&self) -> Option<i32> {
        let file = self.scope.path().join("helper/cgroup.procs");
        fs::read_to_string(file).ok()?.lines().next()?.parse().ok()
    }

    /// Kills the helper, and waits until it has ended.
    ///
    /// # Panics
    /// Where there is none, or it does not end.
    pub fn kill_helper(&self) {
        let helper = self.helper_pid().expect("a helper");
        let pid = nix::unistd::Pid::from_raw(helper);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("kill the helper");
        wait_until("the helper's end", || self.helper_pid() != Some(helper));
    }

    /// A session's leaf.
    #[must_use]
    pub fn leaf(&self, session: &str) -> PathBuf {
        self.scope.path().join(format!("cgleaf-{session}.leaf"))
    }

    /// A session's record.
    #[must_use]
    pub fn record(&self, session: &str) -> Option<serde_json::Value> {
        let text = fs::read(self.sessions().join(format!("{session}.json"))).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// The files beside the records' directory's own, sorted.
    #[must_use]
    pub fn record_files(&self) -> Vec<String> {
        names(&self.sessions())
    }

    /// Ends what a failed test has left of its sessions in the group tier, which no scope takes with it.
    fn end_what_no_leaf_holds(&self) {
        let files = self.record_files();
        let sessions = files.iter().filter_map(|file| file.strip_suffix(".json"));
        for session in sessions {
            let mut destroy =
                self.cgleaf(["destroy", "--strays", "kill", "--timeout", "10s", session]);
            destroy.stdout(Stdio::null()).stderr(Stdio::null());
            if let Ok(mut child) = destroy.spawn() {
                let _ = child.wait();
            }
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.end_what_no_leaf_holds();
        }
        // The scope is dropped after this and takes the helper and every session with it.
        let _ = fs::remove_dir_all(&self.runtime);
    }
}

fn names(directory: &Path) -> Vec<String> {
    let mut found: Vec<String> = fs::read_dir(directory)
        .map(|entries| {
            entries
                .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
                .collect()
        })
        .unwrap_or_default();
    found.sort();
    found
}

/// Runs a command to its end, its outputs collected.
///
/// # Panics
/// Where it cannot be started, or does not end within [`DEADLINE`].
pub fn finish(mut command: Command) -> Answer {
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|why| panic!("start {command:?}: {why}"));
    collect(child)
}

/// Waits for a command's end and for the end of its outputs.
///
/// # Panics
/// Where that takes longer than [`DEADLINE`]; it is then killed.
pub fn collect(mut child: Child) -> Answer {
    let stdout = child.stdout.take().map(read_in_background);
    let stderr = child.stderr.take().map(read_in_background);
    let status = wait_for(&mut child);
    let text = |reader: Option<std::thread::JoinHandle<String>>| {
        reader.map_or_else(String::new, |reader| {
            wait_until("the end of a command's output", || reader.is_finished());
            reader.join().expect("a reader")
        })
    };
    Answer {
        status,
        stdout: text(stdout),
        stderr: text(stderr),
    }
}

/// Waits for a child's end.
///
/// # Panics
/// Where that takes longer than [`DEADLINE`]; it is then killed.
pub fn wait_for(child: &mut Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("wait for a child") {
            return status;
        }
        if start.elapsed() > DEADLINE {
            let _ = child.kill();
            let _ = child.wait();
            panic!("process {} did not end", child.id());
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn read_in_background(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
