//! One module a command.

mod exec;
pub(super) mod helper;
mod launching;
mod run;

use super::args::Command;
use super::context::Context;
use crate::error::Result;

/// Runs a command; the answer is the exit status.
pub(super) fn run(context: &Context, command: Command) -> Result<u8> {
    match command {
        Command::Run(arguments) => run::run(context, &arguments),
        Command::Exec(arguments) => exec::run(context, &arguments),
        Command::Helper(arguments) => helper::run(context, &arguments.action),
        other => Err(crate::error::Error::new(
            crate::error::Code::Internal,
            format!("{} is not there yet", other.name()),
        )),
    }
}
