//! The system calls that no library wraps as they are needed here. All `unsafe` of this crate is in this module.
#![allow(unsafe_code)]

mod descriptors;
mod exec;
mod fork;
mod inherited;
mod signals;
mod wait;

#[cfg(feature = "cli")]
pub(crate) use descriptors::{are_left, own_copy};
pub(crate) use descriptors::{close_all_but, close_from, own_copy_from, put_at, set_close_on_exec};
pub(crate) use exec::Image;
pub(crate) use fork::{Forked, clone_into_cgroup, exit_now, fork};
pub(crate) use inherited::pipe_was_ignored;
#[cfg(feature = "cli")]
pub(crate) use inherited::stdout_was_closed;
#[cfg(feature = "cli")]
pub(crate) use signals::outlive_large_files;
pub(crate) use signals::{
    Disposition, all_signals_to_default, disposition, set_disposition, signal_child,
};
pub(crate) use wait::{Change, wait_child};
