//! The group tier: how a session is kept where no writable delegated cgroup can be had.
//!
//! It must not pretend to more than it can prove; docs/LIMITS.md says what is left. The engine ([`engine`], [`gc`]) is one
//! state machine each over a small [`kernel::Kernel`], with the states of tla/Group.tla.

mod channel;
mod contradiction;
mod crowd;
pub mod destroy;
pub mod engine;
pub mod exec;
pub mod gc;
pub mod guards;
mod held;
pub mod identity;
pub mod judge;
pub mod kernel;
pub mod launch;
pub mod living;
mod look;
pub mod members;
pub mod monitor;
mod newcomers;
pub mod procfs;
pub mod scan;
mod search;
mod thaw;
#[cfg(feature = "trace")]
pub mod trace;
mod tree;

pub use destroy::{DestroyOptions, DestroyReport, Outcome, StrayPolicy, destroy};
pub use exec::{NO_GROUP_NOTICE, prepare_exec};
pub(crate) use identity::NOT_OF_HERE;
pub use identity::{GroupIdentity, MARK_VARIABLE, carries_mark};
pub use judge::{GcVerdict, gc_judges_over};
pub use launch::{LaunchError, LaunchOptions, Launched, RunEvent, Running, launch};
pub use look::{Seen, look, look_at_all, look_once, unfit, was_given_anew};
pub use members::{Member, Tie, members, signal_members};
pub use monitor::{Exit, Leftovers};
pub(crate) use newcomers::{Followed, Newcomers};
