//! What the tests of packages, units, pages and completions share.

use std::path::PathBuf;

/// Whether a program is installed; says so, and fails with `CI=true`, where it is not.
///
/// # Panics
/// With `CI=true`, where the program is missing.
pub fn have(program: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path)
            .chain(["/usr/sbin".into(), "/sbin".into()])
            .any(|folder| folder.join(program).is_file())
    });
    if !found {
        println!("skipped: {program} is not installed");
        assert!(
            std::env::var_os("CI").is_none(),
            "{program} is not installed, and CI requires it"
        );
    }
    found
}

/// packaging/ of this tree.
pub fn folder() -> PathBuf {
    crate::generated::folder()
}
