//! A frontend's files about sessions: records, tombstones and names (DESIGN 4.2). There is no lock. Phases only
//! go forward, every write is a rename, and what a user is shown always comes from the kernel.

mod contradiction;
mod names;
mod record;
mod store;

pub use names::Names;
pub use record::{
    Exit, FORMAT, HelperRef, Maker, Phase, Record, RecordedStray, ScopeRef, Tie, Tier,
};
pub use store::{Found, Store, parse};
