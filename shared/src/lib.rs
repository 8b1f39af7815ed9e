//! What both programs of cgleaf agree on: ids, the wire protocol, attestations and their one verification,
//! read-only access to the cgroup2 tree, and process identity and liveness.
//!
//! Nothing in here writes to a control file: only the helper does that.

pub mod attestation;
pub mod cgroup;
pub mod error;
pub mod id;
pub mod process;
pub mod socket;
pub mod wire;

mod sys;

pub use error::{IoContext, IoError};
