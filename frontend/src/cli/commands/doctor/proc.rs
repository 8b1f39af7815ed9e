//! /proc where it is none, or another pid namespace's.

use std::path::Path;

use nix::errno::Errno;
use nix::sys::statfs::{PROC_SUPER_MAGIC, statfs};

/// Whether nothing is mounted at /proc, or something else. What is refused to be told counts as no.
pub(super) fn is_missing() -> bool {
    match statfs("/proc") {
        Ok(stat) => stat.filesystem_type() != PROC_SUPER_MAGIC,
        Err(errno) => errno == Errno::ENOENT,
    }
}

/// Whether it numbers processes as another pid namespace does (pid_namespaces(7)): this one has another number there, or none.
pub(super) fn is_of_another_namespace() -> bool {
    let Ok(link) = std::fs::read_link("/proc/self") else {
        return !is_missing() && statfs("/proc").is_ok();
    };
    link != Path::new(&std::process::id().to_string())
}

/// Whether it shows processes alone. What is refused to be told counts as no.
pub(super) fn shows_processes_alone() -> bool {
    let is_there = std::fs::symlink_metadata("/proc/sys");
    !is_missing() && is_there.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}
