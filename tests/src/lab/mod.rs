//! Real environments for tests: a systemd guest, docker, file systems that block, hostile programs. What lies in tests/lab and
//! tests/hostile, for use from Rust.
//!
//! Everything that a value here started ends with the value. The environments that are shared by the tests of one binary are held by a pipe:
//! they end when the binary does, however that happens.

mod docker;
mod dstate;
mod guest;
mod held;
mod hostile;
mod programs;
mod require;

pub use docker::Docker;
pub use dstate::FrozenFilesystem;
pub use guest::{Guest, GuestOptions, User};
pub use hostile::{CHAINS, Counter, HOSTILE, hostile_dir, hostile_program};
pub use programs::{static_programs_dir, unprivileged};
pub use require::{Environment, available};

use std::path::PathBuf;
use std::process::Command;

/// The uid that tests use for "a user": it needs no entry in any user database.
pub const USER: u32 = 1000;

/// A script of tests/lab, about to be run.
#[must_use]
pub fn script(name: &str) -> Command {
    Command::new(tests_dir().join("lab").join(name))
}

/// The folder tests/ of this project.
#[must_use]
pub fn tests_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
