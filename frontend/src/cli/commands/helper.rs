//! `cgleaf helper`.

use std::ffi::OsString;

use super::super::args::HelperAction;
use super::super::context::Context;
use crate::error::Result;

/// Is the helper, where none is installed.
pub(in crate::cli) fn serve(_arguments: &[OsString]) -> u8 {
    1
}

pub(super) fn run(_context: &Context, _action: &HelperAction) -> Result<u8> {
    Ok(0)
}
