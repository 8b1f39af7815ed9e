//! The hostile programs of tests/hostile, and the counter that shows whether one still lives.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};

use super::programs::build_dir;
use super::tests_dir;
use crate::scratch::wait_until;
use crate::sys;

/// The fork chains: processes that are gone before anyone looked at them, each leaving a child in its place.
pub const CHAINS: [&str; 6] = [
    "chain-plain",
    "chain-nohup",
    "chain-setpgid",
    "chain-setsid-once",
    "chain-setsid",
    "chain-daemon",
];

/// All that never end by themselves and never stand still: the chains and the rest. (`sleepers` is no enemy, only many.)
pub const HOSTILE: [&str; 10] = [
    "chain-plain",
    "chain-nohup",
    "chain-setpgid",
    "chain-setsid-once",
    "chain-setsid",
    "chain-daemon",
    "deaf",
    "headless",
    "bomb",
    "nester",
];

const FLAGS: [&str; 8] = [
    "-std=c11",
    "-O1",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-format-truncation",
    "-static",
    "-pthread",
];

/// The folder of the compiled programs. They are static: the same files run in guests, containers and boot images.
///
/// # Errors
/// Where there is no C compiler, or it finds something wrong.
pub fn hostile_dir() -> io::Result<&'static Path> {
    static DIR: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    DIR.get_or_init(|| compile().map_err(|cause| cause.to_string()))
        .as_deref()
        .map_err(|cause| io::Error::other(cause.clone()))
}

/// One compiled program, by its name.
///
/// # Panics
/// Where it cannot be compiled, or there is none of that name.
#[must_use]
pub fn hostile_program(name: &str) -> PathBuf {
    let path = hostile_dir().expect("compile tests/hostile").join(name);
    assert!(path.is_file(), "no hostile program {name}");
    path
}

/// Compiles what is older than its source. Test binaries that run at once wait for each other.
fn compile() -> io::Result<PathBuf> {
    let sources = tests_dir().join("hostile");
    let target = build_dir().join("hostile");
    fs::create_dir_all(&target)?;
    let lock = Flock::lock(File::create(target.join(".lock"))?, FlockArg::LockExclusive)
        .map_err(|(_, cause)| io::Error::from(cause))?;
    let header = modified(&sources.join("hostile.h"))?;
    for entry in fs::read_dir(&sources)? {
        let source = entry?.path();
        if source.extension().is_none_or(|extension| extension != "c") {
            continue;
        }
        let program = target.join(source.file_stem().unwrap_or_default());
        let newest = modified(&source)?.max(header);
        if modified(&program).is_ok_and(|made| made >= newest) {
            continue;
        }
        // Renamed into place: another test may be starting the old one.
        let new = program.with_extension("new");
        let output = Command::new("cc")
            .args(FLAGS)
            .arg("-o")
            .args([&new, &source])
            .output()?;
        if !output.status.success() {
            return Err(io::Error::other(format!(
                "cc {}: {}",
                source.display(),
                String::from_utf8_lossy(&output.stderr)
            )));
        }
        fs::rename(&new, &program)?;
    }
    drop(lock);
    Ok(target)
}

fn modified(path: &Path) -> io::Result<std::time::SystemTime> {
    fs::metadata(path)?.modified()
}

/// Where hostile programs count. The file that this value made says to all that use it that it is time to end, when the value goes.
#[derive(Debug)]
pub struct Counter {
    file: File,
    path: PathBuf,
}

/// Byte offsets of `struct hostile_page`.
const TICKS: u64 = 0;
const LIVE: u64 = 8;
const STOP: u64 = 24;
const PAGE: u64 = 4096;

impl Counter {
    /// A new one in `dir`, which every user may write.
    ///
    /// # Errors
    /// Where there is such a file already, or it cannot be made.
    pub fn new(dir: &Path, name: &str) -> io::Result<Self> {
        let path = dir.join(name);
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        file.set_len(PAGE)?;
        file.set_permissions(fs::Permissions::from_mode(0o666))?;
        Ok(Self { file, path })
    }

    /// Its file, a hostile program's first argument.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Signs of life so far.
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.read(TICKS)
    }

    /// What the program counts in and out of itself: see its source.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.read(LIVE)
    }

    /// Waits until there are `more` ticks than now: something lives and does things.
    ///
    /// # Panics
    /// Where that does not come.
    pub fn wait_for_more(&self, more: u64) {
        let wanted = self.ticks() + more;
        wait_until(&format!("{more} ticks in {}", self.path.display()), || {
            self.ticks() >= wanted
        });
    }

    /// Whether nothing counts here any more. A living program of these tests ticks every few hundred microseconds when it gets a
    /// processor; this looks for 200 ms. It errs to "stands still" only, so never use it to show that something lives.
    #[must_use]
    pub fn stands_still(&self) -> bool {
        let before = self.ticks();
        (0..10).all(|_| {
            std::thread::sleep(Duration::from_millis(20));
            self.ticks() == before
        })
    }

    fn read(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.file
            .read_exact_at(&mut bytes, offset)
            .unwrap_or_else(|cause| panic!("read {}: {cause}", self.path.display()));
        u64::from_ne_bytes(bytes)
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        let _ = self.file.write_all_at(&1_u32.to_ne_bytes(), STOP);
        let _ = sys::wake_all(&self.file, STOP);
        let _ = fs::remove_file(&self.path);
    }
}
