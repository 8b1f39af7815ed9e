//! From arguments to a command.

use std::ffi::OsString;

use clap::{Args, FromArgMatches, Parser};

use super::args::{Cli, Command, Global, command};

/// Parses a command line.
///
/// To build the definition of all commands takes longer than all else that `exec` does by itself. So the part of the one
/// command that is named is tried first; what that part does not accept, help among it, is for the whole, whose texts
/// are those that people are to see.
///
/// # Errors
/// What clap says: help and version are errors too.
pub(super) fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    one_command(arguments).map_or_else(|| Cli::try_parse_from(arguments), Ok)
}

/// Parses a command line that begins with the command's name, if it is without a fault.
fn one_command(arguments: &[OsString]) -> Option<Cli> {
    let name = arguments.get(1)?.to_str()?;
    match name {
        "run" => with("run", arguments, Command::Run),
        "exec" => with("exec", arguments, Command::Exec),
        "start" => with("start", arguments, Command::Start),
        "list" => with("list", arguments, Command::List),
        "ls" => with("ls", arguments, Command::List),
        "top" => with("top", arguments, Command::Top),
        "show" => with("show", arguments, Command::Show),
        "ps" => with("ps", arguments, Command::Ps),
        "wait" => with("wait", arguments, Command::Wait),
        "logs" => with("logs", arguments, Command::Logs),
        "freeze" => with("freeze", arguments, Command::Freeze),
        "thaw" => with("thaw", arguments, Command::Thaw),
        "signal" => with("signal", arguments, Command::Signal),
        "destroy" => with("destroy", arguments, Command::Destroy),
        "gc" => with("gc", arguments, Command::Gc),
        "adopt" => with("adopt", arguments, Command::Adopt),
        "helper" => with("helper", arguments, Command::Helper),
        _ => None,
    }
}

fn with<T: Args>(
    name: &'static str,
    arguments: &[OsString],
    into: fn(T) -> Command,
) -> Option<Cli> {
    let part = T::augment_args(clap::Command::new(name));
    let matches = Global::augment_args(clap::Command::new("cgleaf"))
        .subcommand(part)
        .try_get_matches_from(arguments)
        .ok()?;
    let (_, own) = matches.subcommand()?;
    Some(Cli {
        global: Global::from_arg_matches(&matches).ok()?,
        command: into(T::from_arg_matches(own).ok()?),
    })
}

/// The command that a command line is about, which did not parse: the first word that is one, since an option's value may
/// come before it.
pub(super) fn named_command(words: &[&str]) -> &'static str {
    let known = command();
    let named = words
        .iter()
        .skip(1)
        .find_map(|word| known.find_subcommand(word));
    // JSON has a static text for each.
    named.map_or("", |command| static_name(command.get_name()))
}

fn static_name(name: &str) -> &'static str {
    const NAMES: [&str; 18] = [
        "run",
        "exec",
        "start",
        "list",
        "top",
        "show",
        "ps",
        "wait",
        "logs",
        "freeze",
        "thaw",
        "signal",
        "destroy",
        "gc",
        "adopt",
        "doctor",
        "helper",
        "completions",
    ];
    NAMES.into_iter().find(|known| *known == name).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn every_command_has_its_name_in_json() {
        for sub in command().get_subcommands() {
            assert_eq!(static_name(sub.get_name()), sub.get_name());
        }
    }

    #[test]
    fn the_part_and_the_whole_understand_the_same() {
        for line in [
            "cgleaf run -- true",
            "cgleaf run -q --leftovers keep --timeout 3s -- sh -c x --json",
            "cgleaf exec --session a --json --status-fd 3 --scope-dir /x -- /bin/true",
            "cgleaf start --name n --log /f -vv -- a b",
            "cgleaf list -a --json",
            "cgleaf ls",
            "cgleaf top -n 1 --interval 2s",
            "cgleaf show a",
            "cgleaf ps a --socket /s",
            "cgleaf wait a --timeout 1s",
            "cgleaf logs a -f",
            "cgleaf freeze a --for 1s",
            "cgleaf thaw a",
            "cgleaf signal a TERM",
            "cgleaf destroy a b --if-exists --strays kill --grace 1s",
            "cgleaf gc --dry-run",
            "cgleaf adopt --name a 77",
            "cgleaf helper stop",
            "cgleaf helper serve --direct /x",
        ] {
            let part = one_command(&words(line)).unwrap_or_else(|| panic!("{line}"));
            let whole = Cli::try_parse_from(words(line)).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(format!("{part:?}"), format!("{whole:?}"), "{line}");
        }
    }

    #[test]
    fn what_is_not_accepted_is_told_by_the_whole() {
        for line in [
            "cgleaf",
            "cgleaf --help",
            "cgleaf run --help",
            "cgleaf run",
            "cgleaf rum -- true",
            "cgleaf exec --nonsense -- true",
            "cgleaf exec --session .a -- true",
            "cgleaf exec --version",
            "cgleaf destroy",
            "cgleaf signal a NOSUCH",
        ] {
            assert!(one_command(&words(line)).is_none(), "{line}");
            let part = parse(&words(line)).map_err(|error| error.to_string());
            let whole = Cli::try_parse_from(words(line)).map_err(|error| error.to_string());
            assert_eq!(format!("{part:?}"), format!("{whole:?}"), "{line}");
        }
    }

    #[test]
    fn a_line_that_did_not_parse_is_still_about_a_command() {
        assert_eq!(named_command(&["cgleaf", "--socket", "x", "ls"]), "list");
        assert_eq!(named_command(&["cgleaf", "nonsense"]), "");
    }
}
