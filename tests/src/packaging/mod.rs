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

/// The static programs that packages are made of: as a release's are but for the optimisation, or a release's own.
pub fn static_programs() -> Option<&'static Path> {
    if are_released() {
        return Some(programs());
    }
    static_programs_dir()
}

/// Has packaging/build make `what` in a revision, of [`static_programs`], in `out`. False where there are no such programs.
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

/// The Debian packages in revisions 1 and 2; they are made once for a test binary. None (and a word about it) where they
/// cannot be made.
pub fn debs() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<tempfile::TempDir>> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            if !have("dh") {
                return None;
            }
            let out = tempfile::tempdir().expect("make a folder");
            open_to_all(out.path());
            ["1", "2"]
                .iter()
                .all(|revision| build("deb", revision, out.path()))
                .then_some(out)
        })
        .as_ref()
        .map(tempfile::TempDir::path)
}

/// For others than its owner to look into: apt reads packages as a user of its own.
///
/// # Panics
/// Where the mode cannot be changed.
pub fn open_to_all(folder: &Path) {
    std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap_or_else(|error| panic!("chmod {}: {error}", folder.display()));
}
