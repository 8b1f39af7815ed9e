//! One module a command.

mod adopt;
mod completions;
mod destroy;
pub(super) mod doctor;
mod exec;
mod freeze;
mod gc;
pub(super) mod helper;
mod launching;
mod list;
mod logs;
mod ps;
mod run;
mod show;
mod signal;
mod start;
mod top;
mod view;
mod wait;

pub(super) use self::view::View;
use super::args::Command;
use super::context::Context;
use crate::client::{Deadline, Patience};
use crate::error::Result;

/// Runs a command; the answer is the exit status.
pub(super) fn run(context: &Context, command: Command) -> Result<u8> {
    let _patience = is_brief(&command).then(|| Patience::for_each(Deadline::REQUEST));
    match command {
        Command::Run(arguments) => run::run(context, &arguments),
        Command::Start(arguments) => start::run(context, &arguments),
        Command::Exec(arguments) => exec::run(context, &arguments),
        Command::List(arguments) => list::run(context, &arguments),
        Command::Top(arguments) => top::run(context, &arguments),
        Command::Show(arguments) => show::run(context, &arguments),
        Command::Ps(arguments) => ps::run(context, &arguments),
        Command::Logs(arguments) => logs::run(context, &arguments),
        Command::Wait(arguments) => wait::run(context, &arguments),
        Command::Freeze(arguments) => freeze::freeze(context, &arguments),
        Command::Thaw(arguments) => freeze::thaw(context, &arguments),
        Command::Signal(arguments) => signal::run(context, &arguments),
        Command::Destroy(arguments) => destroy::run(context, &arguments),
        Command::Gc(arguments) => gc::run(context, &arguments),
        Command::Adopt(arguments) => adopt::run(context, &arguments),
        Command::Doctor => doctor::run(context),
        Command::Helper(arguments) => helper::run(context, &arguments.action),
        Command::Completions(arguments) => completions::run(context, &arguments),
    }
}

/// What asks about sessions and is over. A helper that does not answer is asked once then, and not for each step.
fn is_brief(command: &Command) -> bool {
    matches!(
        command,
        Command::Show(_)
            | Command::Ps(_)
            | Command::Freeze(_)
            | Command::Thaw(_)
            | Command::Signal(_)
            | Command::Destroy(_)
            | Command::Gc(_)
    )
}
