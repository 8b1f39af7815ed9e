//! What every command needs.

use std::path::PathBuf;

use super::args::Global;
use super::output::Output;
use crate::base::{Base, Surroundings};
use crate::error::Result;
use crate::ops::Reach;

/// What every command needs.
pub(super) struct Context {
    /// Where things lie.
    pub base: Base,
    /// The socket that was named.
    pub socket: Option<PathBuf>,
    /// The cgroup directory for the leaves of a helper that has to be started.
    pub scope_dir: Option<PathBuf>,
    /// Where answers go.
    pub output: Output,
}

impl Context {
    /// Takes it from the environment.
    ///
    /// # Errors
    /// STORAGE if there is no place for records.
    pub(super) fn new(global: &Global, output: Output) -> Result<Self> {
        let base = Base::find(&Surroundings::of_process())?;
        if let Some(why) = base.passed_over() {
            output.notice(&format!("XDG_RUNTIME_DIR is not used: {why}"));
        }
        Ok(Self {
            base,
            socket: global.socket.clone(),
            scope_dir: global.scope_dir.clone().or_else(scope_dir_of_environment),
            output,
        })
    }

    /// What a command about existing sessions can reach.
    pub(super) fn reach(&self) -> Reach {
        Reach::new(&self.base, self.socket.as_deref()).with_scope_dir(self.scope_dir.as_deref())
    }
}

fn scope_dir_of_environment() -> Option<PathBuf> {
    std::env::var_os("CGLEAF_SCOPE_DIR")
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}
