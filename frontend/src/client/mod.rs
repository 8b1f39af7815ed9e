//! A connection to a helper.

mod connection;
mod deadline;
mod errors;
mod finder;
pub(crate) mod interest;
mod patience;
mod unreachable;
mod wait;

pub use connection::Client;
pub use deadline::Deadline;
pub(crate) use errors::{has_ended, refusal_of, refused};
#[cfg(feature = "cli")]
pub(crate) use errors::{says_nobody_answered, unanswered_at};
pub use finder::{Looked, all_places, find, find_all, open, places};
pub(crate) use finder::{is_absent, is_named, unanswered};
pub(crate) use patience::{Patience, is_mute as is_known_mute};
pub(crate) use unreachable::Unreachable;
#[cfg(feature = "cli")]
pub(crate) use unreachable::{locking_pid, serving_pid};
pub use wait::{LeafEvents, WaitEnd};
