//! The frontend of cgleaf, as a library: find or start a helper, make a session's leaf, enrol, freeze, list, end and
//! verify. The command line is behind the feature `cli`.

pub mod base;
#[cfg(feature = "cli")]
pub mod cli;
pub mod client;
pub mod error;
pub mod launch;
pub mod ops;
pub mod private_dir;
pub mod records;
pub mod steps;
mod sys;
pub mod trace;

pub use error::{Code, Error, Result};
