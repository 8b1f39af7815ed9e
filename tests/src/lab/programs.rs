//! Programs for other systems, and other users.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::script;
use crate::scratch::skip;

/// The folder of what the build made: the one above this test binary's.
pub(super) fn build_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let own = std::env::current_exe().expect("the path of this test");
        own.ancestors()
            .skip(1)
            .find(|dir| !dir.ends_with("deps"))
            .expect("a test lies in a target folder")
            .to_path_buf()
    })
}

/// The folder of `cgleaf` and `cgleaf-helper` built without shared libraries, for systems that lack ours. Built once; the first time takes
/// a minute. None (and a word about it) where this machine cannot build them.
#[must_use]
pub fn static_programs_dir() -> Option<&'static Path> {
    static DIR: OnceLock<Option<PathBuf>> = OnceLock::new();
    DIR.get_or_init(|| {
        let output = script("static-build").arg("dev").output();
        match output {
            Ok(output) if output.status.success() => {
                Some(String::from_utf8_lossy(&output.stdout).trim().into())
            }
            Ok(output) => {
                skip(&format!(
                    "static build: {}",
                    String::from_utf8_lossy(&output.stderr)
                ));
                None
            }
            Err(cause) => {
                skip(&format!("static build: {cause}"));
                None
            }
        }
    })
    .as_deref()
}

/// Has `command` run as the user `uid`, in no other group, when root starts it.
pub fn unprivileged(command: &mut Command, uid: u32) -> &mut Command {
    // The standard library drops root's supplementary groups by itself when it sets a uid.
    command.uid(uid).gid(uid)
}
