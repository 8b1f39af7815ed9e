//! The frontend of cgleaf, as a library: find or start a helper, make a session's leaf, enrol, freeze, list, end and
//! verify. The command line is behind the feature `cli`; a program that embeds cgleaf leaves it out:
//!
//! ```toml
//! [dependencies]
//! cgleaf = { version = "0.1", default-features = false }
//! ```
//!
//! [`sessions`] is where to begin. [`launch`] and [`ops`] have the same with every choice, [`client`] is the protocol's
//! client, [`attestation`] proves that a recorded path still is a session's.
//!
//! What hosts write by hand and get wrong is here too, without any session: [`process::liveness`] says whether a process
//! or a group lives, and takes no zombie for alive and no namesake for the process that was meant.
//!
//! ```
//! use cgleaf::process::{Liveness, Pid, Proc, liveness};
//!
//! let proc = Proc::system()?;
//! let mut child = std::process::Command::new("true").spawn()?;
//! let pid = Pid::try_from(i32::try_from(child.id())?)?;
//! // Its number, and when it was started.
//! let process = proc.process(pid)?.stat()?.id;
//! child.wait()?;
//! // Its number may be another process's by now: that one has started later.
//! assert_eq!(liveness::of(&proc, process), Liveness::Dead);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod base;
#[cfg(feature = "cli")]
pub mod cli;
pub mod client;
pub mod error;
pub mod group;
pub mod launch;
pub mod operations;
pub mod ops;
pub mod private_dir;
pub mod records;
pub mod sessions;
pub mod steps;
mod sys;
pub mod trace;

pub use cgleaf_shared::{attestation, id, process};
pub use error::{Code, Error, Result};
