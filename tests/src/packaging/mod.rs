//! What the tests of packages, units, pages and completions share.

mod installed;

pub use installed::{Installed, STATUS};

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::frontend::{are_released, programs};
use crate::lab::{script, static_programs_dir};
use crate::scratch::skip;

/// Whether a program is installed; says so, and fails with `CI=true`, where it is not.
pub fn have(program: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path)
            .chain(["/usr/sbin".into(), "/sbin".into()])
            .any(|folder| folder.join(program).is_file())
    });
    if !found {
        skip(&format!("{program} is not installed"));
    }
    found
}

/// packaging/ of this tree.
pub fn folder() -> PathBuf {
    crate::generated::folder()
}

/// What a command said on either stream.
pub fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Runs a command that may take as long as it does, and must succeed; what it printed.
///
/// # Panics
/// Where it fails, with all that it said.
#[track_caller]
pub fn done(mut command: Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("start {command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The folder that a script of the lab fetches and prints. None (and a word about it) where that cannot be had.
pub fn fetched(name: &str, words: &[&str]) -> Option<PathBuf> {
    let output = script(name)
        .args(words)
        .output()
        .unwrap_or_else(|error| panic!("start {name}: {error}"));
    if !output.status.success() {
        skip(&format!("{name} {words:?}: {}", said(&output)));
        return None;
    }
    Some(String::from_utf8_lossy(&output.stdout).trim().into())
}

/// The static programs that packages are made of, without symbols: as a release's are but for the optimisation, or a
/// release's own. None (and a word about it) where they cannot be built.
pub fn static_programs() -> Option<&'static Path> {
    static STRIPPED: OnceLock<Option<PathBuf>> = OnceLock::new();
    if are_released() {
        return Some(programs());
    }
    STRIPPED
        .get_or_init(|| {
            let built = static_programs_dir()?;
            let folder = own_folder("programs");
            for name in ["cgleaf", "cgleaf-helper"] {
                let mut strip = Command::new("strip");
                strip.arg("-o").arg(folder.join(name)).arg(built.join(name));
                done(strip);
            }
            Some(folder)
        })
        .as_deref()
}

/// An empty folder of this test binary's, beside it; the next run of the binary makes it anew.
///
/// # Panics
/// Where it cannot be made.
pub fn own_folder(name: &str) -> PathBuf {
    let binary = std::env::current_exe().expect("the test's own path");
    let folder = binary.with_extension("packaging").join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder)
            .unwrap_or_else(|error| panic!("remove {}: {error}", folder.display()));
    }
    std::fs::create_dir_all(&folder)
        .unwrap_or_else(|error| panic!("make {}: {error}", folder.display()));
    folder
}

/// Has packaging/build make `what` in a revision, of static programs, in `out`. False where there are none.
///
/// # Panics
/// Where it fails.
pub fn build(what: &str, revision: &str, out: &Path) -> bool {
    let Some(programs) = static_programs() else {
        return false;
    };
    let mut command = Command::new(folder().join("build"));
    command
        .arg(what)
        .env("CGLEAF_BINARIES", programs)
        .env("CGLEAF_REVISION", revision)
        .env("OUT", out);
    done(command);
    true
}

/// What packaging/build makes, in revisions 1 and 2, in a folder of this test binary's. None (and a word about it) where it
/// cannot be made.
pub fn packages(what: &str) -> Option<PathBuf> {
    let out = own_folder(what);
    open_to_all(&out);
    ["1", "2"]
        .iter()
        .all(|revision| build(what, revision, &out))
        .then_some(out)
}

/// The Debian packages, as [`packages`]. They are made once for a test binary.
pub fn debs() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT
        .get_or_init(|| if have("dh") { packages("deb") } else { None })
        .as_deref()
}

/// For others than its owner to look into: apt reads packages as a user of its own.
///
/// # Panics
/// Where the mode cannot be changed.
fn open_to_all(folder: &Path) {
    std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap_or_else(|error| panic!("chmod {}: {error}", folder.display()));
}
