//! What can be done with sessions that exist: find them, say how they are, freeze, signal and end them, and take away
//! the records of those that are over (DESIGN 3.2, 4).
//!
//! [`Reach`] is what is at hand: records, helpers, the cgroup tree. [`Reach::resolve`] makes a [`Session`] of an id or a
//! name, [`Reach::look`] asks the kernel how it is. The rest acts, and acts only on a leaf that was proven.

mod adopt;
mod destroy;
mod destroyed;
mod end;
mod freeze;
mod gc;
mod grip;
mod group_tier;
mod headless;
mod inspect;
mod kill;
mod members;
mod probe;
mod reach;
mod resolve;
mod session;
mod signal;
mod state;
mod strays;
mod usage;
mod wait;

pub use adopt::Adopted;
pub(crate) use adopt::gather_into;
pub use destroy::destroy;
pub use destroyed::{DestroyOptions, Destroyed, KillWay, StrayPolicy};
pub use freeze::{Freeze, ThawEnd, freeze, hold_for, thaw};
pub use gc::{Gc, Kept, gc};
pub use inspect::{MemberInfo, Processes, describe_blockers, processes};
pub use probe::{Probe, probe_leaf};
pub use reach::Reach;
pub use resolve::Everything;
pub use session::{Listed, Session};
pub use signal::{Signalled, signal};
pub use state::{Leader, LeafSeen, Look, State};
pub use strays::Stray;
pub use usage::{Memory, Usage};
pub use wait::{WaitOutcome, wait};
