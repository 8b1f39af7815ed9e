//! Helpers of a test's own, started by it or as a service manager would, and clients that speak to them over the wire.

mod client;
mod enrolled;
mod ground;
pub mod hostile;
mod lair;
mod unit;

pub use client::{Client, session};
pub use enrolled::{Enrolled, client_in, client_program};
pub use ground::Ground;
pub use lair::{Lair, Other};
pub use unit::Unit;
