//! A connection to a helper.

mod connection;
mod finder;
pub(crate) mod interest;
mod unreachable;
mod wait;

pub(crate) use connection::refused;
pub use connection::{Client, Deadline};
pub(crate) use finder::is_absent;
pub use finder::{Looked, find, find_all, open, places};
pub(crate) use unreachable::Unreachable;
#[cfg(feature = "cli")]
pub(crate) use unreachable::serving_pid;
pub use wait::{LeafEvents, WaitEnd};
