//! Cgroups and processes that go away with the test, also when it fails.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long anything may take before a test calls it hung. Not a measurement: a loaded machine may need seconds.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Waits until `done` says so, looking again every 2 ms.
///
/// # Panics
/// After [`DEADLINE`], naming `what`.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < DEADLINE, "waited too long for: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What makes a name in a shared place unique. A pid is not enough: a test that is killed leaves things behind, and pids
/// come back soon where fork chains run.
///
/// # Panics
/// Where the kernel gives no random id.
#[must_use]
pub fn tag() -> String {
    let random = fs::read_to_string("/proc/sys/kernel/random/uuid").expect("a random id");
    random[..8].to_owned()
}

/// The first cgroup2 mount of this process.
#[must_use]
pub fn cgroup_mount() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        right
            .starts_with("cgroup2 ")
            .then(|| left.split(' ').nth(4).map(PathBuf::from))?
    })
}

/// Says that the machine lacks `what`. Allowed on a developer's machine only.
///
/// # Panics
/// With `CI=true`, where everything that the tests need is to be there.
pub fn skip(what: &str) {
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "a required environment is missing: {what}"
    );
    // Not println: the test runner keeps back what a test that passes has printed, and a skip must not look like a pass.
    let _ = writeln!(io::stderr(), "skipped: {what}");
}

/// Starts a tmux server by `attempt`, which answers with what tmux said on stderr, and again where tmux 3.3 lost the server
/// that it had just started: that is its own race, seen once in some dozens of starts, and nothing was run then.
///
/// # Panics
/// Where that happens ten times in a row.
pub fn start_tmux<T>(mut attempt: impl FnMut() -> (T, String)) -> T {
    for _ in 0..10 {
        let (answer, stderr) = attempt();
        if !stderr.contains("server exited unexpectedly") {
            return answer;
        }
    }
    panic!("tmux loses every server that it starts");
}

/// A cgroup of our own directly beneath the mount.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes one that `uid` owns. None (and a word about it) where this process may not.
    ///
    /// # Panics
    /// Where the directory was made and cannot be given away.
    #[must_use]
    pub fn new(uid: u32) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let Some(mount) = cgroup_mount() else {
            skip("no cgroup2 mount");
            return None;
        };
        let path = mount.join(format!(
            "cgleaf-test-{}-{}",
            tag(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        ));
        if let Err(cause) = fs::create_dir(&path) {
            skip(&format!("mkdir {}: {cause}", path.display()));
            return None;
        }
        let scratch = Self { path };
        scratch.give("", uid);
        Some(scratch)
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a cgroup beneath it, owned as a delegation would have it.
    ///
    /// # Panics
    /// Where that fails.
    #[must_use]
    pub fn child(&self, name: &str, uid: u32) -> PathBuf {
        let path = self.path.join(name);
        fs::create_dir(&path).unwrap_or_else(|cause| panic!("mkdir {}: {cause}", path.display()));
        self.give(name, uid);
        path
    }

    fn give(&self, name: &str, uid: u32) {
        let dir = self.path.join(name);
        for file in [
            dir.clone(),
            dir.join("cgroup.procs"),
            dir.join("cgroup.subtree_control"),
        ] {
            chown(&file, Some(uid), Some(uid))
                .unwrap_or_else(|cause| panic!("chown {}: {cause}", file.display()));
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let start = Instant::now();
        // EBUSY right after a kill is normal: the members are still ending.
        while remove_all(&self.path).is_err() && start.elapsed() < DEADLINE {
            kill_all(&self.path);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Ends the members of a cgroup and of those beneath it: by `cgroup.kill`, and by a signal to each, since on 6.1 and 6.18 the
/// former misses a process whose main thread has exited (`tests/tests/lab_hostile.rs` shows it). Once; members may still be ending.
pub fn kill_all(dir: &Path) {
    let _ = fs::write(dir.join("cgroup.kill"), "1");
    signal_all(dir);
}

fn signal_all(dir: &Path) {
    use nix::sys::signal::{Signal, kill};
    let members = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    // 0 stands for a process of another pid namespace, and would be our own group.
    for pid in members
        .lines()
        .filter_map(|pid| pid.parse().ok())
        .filter(|pid| *pid > 1)
    {
        let _ = kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL);
    }
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            signal_all(&entry.path());
        }
    }
}

/// Removes a cgroup with everything beneath it.
fn remove_all(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_all(&entry.path())?;
        }
    }
    fs::remove_dir(dir)
}

/// A process that only sleeps, killed and reaped with this value.
#[derive(Debug)]
pub struct Sleeper(Child);

impl Sleeper {
    /// Starts one as `uid`.
    ///
    /// # Panics
    /// Where sleep(1) cannot be started.
    #[must_use]
    pub fn new(uid: u32) -> Self {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("sleep");
        command
            .arg("1000")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .uid(uid)
            .gid(uid);
        Self(command.spawn().expect("start sleep(1)"))
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether it has not ended.
    ///
    /// # Panics
    /// Where it cannot be waited for.
    pub fn alive(&mut self) -> bool {
        self.0.try_wait().expect("wait for sleep(1)").is_none()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Copies a program so that it can be executed at once. Not by this process: what another thread starts just then would hold the
/// copy open for writing for a moment (ETXTBSY, execve(2)).
///
/// # Panics
/// If it cannot be copied.
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").args([from, to]).status();
    assert!(copied.expect("run cp").success(), "{}", to.display());
}
