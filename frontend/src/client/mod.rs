//! A connection to a helper.

mod connection;
mod finder;
mod wait;

pub use connection::{Client, Deadline};
pub use finder::{Looked, find, find_all, open};
pub use wait::{LeafEvents, WaitEnd};
