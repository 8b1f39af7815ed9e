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

/// Sets this process's file mode creation mask, in octal as umask(2) has it.
///
/// # Errors
/// Only what a system call filter answers in the kernel's place, such as `EPERM`.
pub fn set_umask(mask: u32) -> std::io::Result<()> {
    crate::sys::set_umask(mask)
}
