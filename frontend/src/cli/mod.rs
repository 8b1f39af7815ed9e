//! The command line: arguments in, one answer out.

mod args;
mod colour;
mod commands;
pub mod completions;
mod context;
mod descriptors;
mod output;
mod parse;
mod progress;
mod screen;
mod suggest;
mod table;

use std::ffi::OsString;
use std::process::ExitCode;

pub use args::{Cli, command};

use self::args::Command;
use self::context::Context;
use crate::error::{Code, Error};
use crate::operations;

/// What a failure before the program starts is for run, exec and start, whatever its cause.
pub(crate) const BEFORE_THE_PROGRAM: u8 = 125;

/// Runs the command line.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    crate::launch::this_program_can_serve();
    crate::sys::outlive_large_files();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let cli = match parse::parse(&arguments) {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(usage(&error, &arguments)),
    };
    // The helper serves until it is done, and parses its own arguments.
    if let Command::Helper(args::Helper {
        action: args::HelperAction::Serve { arguments },
    }) = &cli.command
    {
        return commands::helper::serve(arguments);
    }
    ExitCode::from(run(cli))
}

fn run(cli: Cli) -> u8 {
    if cli.global.verbose > 0 {
        operations::hear(output::tell_operation);
    }
    let launches = cli.command.launches();
    let gives_stdout_away = args::gives_stdout_away(cli.command.name());
    let output = output::Output::new(cli.command.name(), cli.global.json, cli.global.quiet);
    let answer = match Context::new(&cli.global, output) {
        Ok(context) => commands::run(&context, cli.command)
            .map_err(|error| suggest::with_suggestion(&context, descriptors::put(error))),
        // What is wrong here is what doctor is asked for.
        Err(error) if matches!(cli.command, Command::Doctor) => {
            commands::doctor::without_a_place(&output, &error)
        }
        Err(error) => Err(error),
    };
    match answer {
        Ok(status) => status,
        Err(error) => {
            output.fail(&error, gives_stdout_away);
            if launches {
                BEFORE_THE_PROGRAM
            } else {
                error.code().exit_status()
            }
        }
    }
}

/// Arguments that do not parse: help and version are answers, the rest is a usage error, in JSON where it was asked for.
fn usage(error: &clap::Error, arguments: &[OsString]) -> u8 {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    if matches!(error.kind(), DisplayHelp | DisplayVersion) {
        return match error.print() {
            Err(why) if why.kind() != std::io::ErrorKind::BrokenPipe => {
                output::stdout_failed("", &why);
                Code::Internal.exit_status()
            }
            _ => 0,
        };
    }
    let ours = arguments.iter().take_while(|argument| *argument != "--");
    let words: Vec<_> = ours.filter_map(|argument| argument.to_str()).collect();
    let name = parse::named_command(&words);
    let launches = args::is_launch(name);
    if words.contains(&"--json") && !args::gives_stdout_away(name) {
        output::Output::new(name, true, false).fail(
            &Error::new(
                Code::Usage,
                error.render().to_string().trim_end().to_owned(),
            ),
            false,
        );
    } else {
        // Nothing is left to do if stderr is gone.
        let _ = error.print();
    }
    if launches {
        BEFORE_THE_PROGRAM
    } else {
        Code::Usage.exit_status()
    }
}
