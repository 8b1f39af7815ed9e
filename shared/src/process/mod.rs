//! Process identity, `/proc`, and the one notion of *alive* that all of cgleaf uses.
//!
//! The parsers are functions of bytes ([`stat::parse`], [`status::parse`], [`files`]); [`Proc`] and [`ProcessDir`] read
//! the files; [`liveness`] judges.

pub mod directory;
pub mod files;
pub mod identity;
pub mod liveness;
pub mod pidfd;
pub mod reader;
pub mod stat;
pub mod status;

pub use directory::ProcessDir;
pub use files::Autogroup;
pub use identity::{Pid, ProcessId, StartTicks};
pub use liveness::Liveness;
pub use pidfd::{Pidfd, PidfdError, SignalHandle};
pub use reader::{Proc, ProcView, ReadError};
pub use stat::{Stat, State};
pub use status::{Status, Uids};
