//! Completion scripts: what clap makes of the definition, with the sessions that are there and, behind `--`, the
//! program's own completion, which both only the machine knows.

use clap::Arg;
use clap_complete::{Shell, generate};

/// The placeholder of everything that is a session's id or name.
const SESSION: &str = "SESSION";

/// The script for a shell.
pub fn script(shell: Shell) -> String {
    let mut command = super::command();
    let name = command.get_name().to_owned();
    let mut bytes = Vec::new();
    generate(shell, &mut command, name, &mut bytes);
    let plain = String::from_utf8_lossy(&bytes).into_owned();
    match shell {
        Shell::Bash => plain + &bash(),
        Shell::Zsh => zsh(&plain),
        Shell::Fish => plain + &fish(),
        _ => plain,
    }
}

fn is_session(arg: &Arg) -> bool {
    arg.get_value_names()
        .is_some_and(|names| names.iter().any(|name| name == SESSION))
}

/// The commands that take a session as an argument.
fn session_commands() -> Vec<String> {
    super::command()
        .get_subcommands()
        .filter(|command| command.get_positionals().any(is_session))
        .map(|command| command.get_name().to_owned())
        .collect()
}

/// The options that take a value; with `sessions`, only those whose value is a session.
fn value_options(sessions: bool) -> Vec<String> {
    let mut command = super::command();
    // Only then has each command the options that hold for all.
    command.build();
    let mut options: Vec<String> = command
        .get_subcommands()
        .flat_map(|command| command.get_opts().collect::<Vec<_>>())
        .filter(|option| option.get_action().takes_values() && (!sessions || is_session(option)))
        .filter_map(|option| option.get_long().map(|long| format!("--{long}")))
        .collect();
    options.sort();
    options.dedup();
    options
}

fn bash() -> String {
    include_str!("completions/sessions.bash")
        .replace("@SESSION_COMMANDS@", &session_commands().join(" "))
        .replace("@SESSION_OPTIONS@", &value_options(true).join(" "))
        .replace("@VALUE_OPTIONS@", &value_options(false).join(" "))
}

/// clap knows no name of ours for a value: where it says "whatever the shell does by default", ours is put in.
fn zsh(plain: &str) -> String {
    let lines = plain.lines().map(|line| {
        let session = line.contains(&format!(":{SESSION}:_default"))
            || line.starts_with("':session -- ")
            || line.starts_with("'*::sessions -- ");
        let action = if session {
            ":_cgleaf_sessions"
        } else if line.starts_with("'*::program -- ") {
            ":_cgleaf_program"
        } else {
            return line.to_owned();
        };
        line.replace(":_default", action)
    });
    let script: Vec<String> = lines.collect();
    let (head, body) = script.split_first().map_or(("", &[][..]), |(head, body)| {
        // `#compdef` stands on the first line or nowhere.
        (head.as_str(), body)
    });
    format!(
        "{head}\n\n{}{}\n",
        include_str!("completions/sessions.zsh"),
        body.join("\n")
    )
}

fn fish() -> String {
    let mut script = include_str!("completions/sessions.fish").to_owned();
    for command in session_commands() {
        script += &format!(
            "complete -c cgleaf -n \"__fish_cgleaf_using_subcommand {command}\" -f -a \"(__fish_cgleaf_sessions)\"\n"
        );
    }
    for option in value_options(true) {
        let long = option.trim_start_matches('-');
        script += &format!("complete -c cgleaf -l {long} -x -a \"(__fish_cgleaf_sessions)\"\n");
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_sessions_is_read_from_the_definition() {
        let commands = session_commands();
        for command in ["show", "ps", "wait", "freeze", "thaw", "signal", "destroy"] {
            assert!(commands.iter().any(|name| name == command), "{command}");
        }
        for command in ["run", "list", "doctor"] {
            assert!(commands.iter().all(|name| name != command), "{command}");
        }
        assert_eq!(value_options(true), ["--parent"]);
        assert!(value_options(false).contains(&"--socket".to_owned()));
    }

    #[test]
    fn every_place_for_a_session_got_its_completion() {
        let zsh = script(Shell::Zsh);
        assert!(zsh.starts_with("#compdef cgleaf\n"));
        let takers = zsh.matches(":_cgleaf_sessions'").count();
        // One for each command, and --parent of run, exec and start.
        assert_eq!(takers, session_commands().len() + 3, "{zsh}");
        assert_eq!(zsh.matches(":_cgleaf_program'").count(), 3, "{zsh}");
        let bash = script(Shell::Bash);
        for hole in ["@SESSION_COMMANDS@", "@SESSION_OPTIONS@", "@VALUE_OPTIONS@"] {
            assert!(!bash.contains(hole), "{hole}");
        }
    }
}
