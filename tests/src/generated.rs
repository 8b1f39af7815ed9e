//! What is made from the command line's definition: man pages and completions, as they are checked in under packaging/.

use std::path::{Path, PathBuf};

use cgleaf::Code;
use cgleaf::cli::completions;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

/// The day that stands at the foot of each page; moved on with a release.
const DATE: &str = "2025-11-29";

/// The folder that the files belong in.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(|root| root.join("packaging"))
        .unwrap_or_default()
}

/// Each file's path beneath [`folder`], and its text.
pub fn files() -> Vec<(String, String)> {
    let mut files = vec![
        (
            "completions/cgleaf.bash".to_owned(),
            completions::script(Shell::Bash),
        ),
        (
            "completions/_cgleaf".to_owned(),
            completions::script(Shell::Zsh),
        ),
        (
            "completions/cgleaf.fish".to_owned(),
            completions::script(Shell::Fish),
        ),
    ];
    let mut top = cgleaf::cli::command();
    // Only then has each command the options that hold for all, and its full name.
    top.build();
    let mut pages = Vec::new();
    collect(&top, &mut pages);
    files.extend(pages);
    files
}

fn collect(command: &Command, pages: &mut Vec<(String, String)>) {
    let name = full_name(command);
    pages.push((format!("man/{name}.1"), page(command, &name)));
    for sub in command.get_subcommands() {
        if sub.get_name() != "help" && !sub.is_hide_set() {
            collect(sub, pages);
        }
    }
}

/// `cgleaf-helper-status`.
fn full_name(command: &Command) -> String {
    command
        .get_bin_name()
        .unwrap_or(command.get_name())
        .replace(' ', "-")
}

fn page(command: &Command, name: &str) -> String {
    let version = command.get_version().unwrap_or(env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone().display_name(name.to_owned()))
        .title(name.to_uppercase())
        .section("1")
        .date(DATE)
        .source(format!("cgleaf {version}"))
        .manual("cgleaf");
    let mut out = Vec::new();
    let rendered = man
        .render_title(&mut out)
        .and_then(|()| man.render_name_section(&mut out))
        .map(|()| out.extend(synopsis(command).bytes()))
        .and_then(|()| man.render_description_section(&mut out))
        .and_then(|()| man.render_options_section(&mut out));
    // A vector takes everything that is written to it.
    debug_assert!(rendered.is_ok());
    let mut text = String::from_utf8_lossy(&out).into_owned();
    text += &commands_section(command, name);
    text += &closing_sections(command, name);
    tidy(&text)
}

/// The usage line as `--help` has it: the generator's own lists every option and leaves their values out.
fn synopsis(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let line = usage.trim_start_matches("Usage:").trim();
    format!(".SH SYNOPSIS\n{}\n", escape(line))
}

fn commands_section(command: &Command, name: &str) -> String {
    let mut text = String::new();
    for sub in command
        .get_subcommands()
        .filter(|sub| sub.get_name() != "help" && !sub.is_hide_set())
    {
        let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
        text += &format!(
            ".TP\n\\fB{}\\fR(1)\n{}\n",
            escape(&format!("{name}-{}", sub.get_name())),
            escape(&about)
        );
    }
    if text.is_empty() {
        text
    } else {
        format!(".SH COMMANDS\n{text}")
    }
}

/// What no definition of clap's can say.
fn closing_sections(command: &Command, name: &str) -> String {
    let launches = matches!(command.get_name(), "run" | "exec" | "start");
    let mut text = exit_status(launches, command.get_name());
    if name == "cgleaf" {
        text += include_str!("generated/environment.roff");
    }
    let others = ["cgleaf", "cgleaf-list", "cgleaf-destroy", "cgleaf-doctor"]
        .into_iter()
        .filter(|other| *other != name)
        .map(|other| format!("\\fB{}\\fR(1)", escape(other)));
    let all: Vec<String> = others
        .chain(["\\fBcgleaf\\-helper\\fR(8)".to_owned()])
        .collect();
    text + &format!(".SH SEE ALSO\n{}\n", all.join(",\n"))
}

fn exit_status(launches: bool, name: &str) -> String {
    let rows: Vec<(String, String)> = if launches {
        launch_statuses(name)
    } else {
        [(0, "done".to_owned())]
            .into_iter()
            .chain(
                Code::ALL
                    .iter()
                    .map(|code| (code.exit_status(), code.meaning().to_owned())),
            )
            .map(|(status, meaning)| (status.to_string(), meaning))
            .collect()
    };
    let mut text = String::from(".SH EXIT STATUS\n");
    for (status, meaning) in rows {
        text += &format!(".TP\n{status}\n{}\n", escape(&meaning));
    }
    text
}

fn launch_statuses(name: &str) -> Vec<(String, String)> {
    let first = match name {
        "run" => vec![
            (
                "N",
                "the program's own; 128 and the signal's number where a signal ended it",
            ),
            ("124", "the time of --timeout was over"),
        ],
        "exec" => vec![("N", "the program's own: this process has become it")],
        _ => vec![("0", "the program was started")],
    };
    first
        .into_iter()
        .chain([
            ("125", "cgleaf failed before the program started; the line on stderr, or that of --status-fd, says why"),
            ("126", "the program cannot be executed"),
            ("127", "there is no such program"),
        ])
        .map(|(status, meaning)| (status.to_owned(), meaning.to_owned()))
        .collect()
}

fn escape(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('-', "\\-");
    // A line that starts with a dot or a quote would be a request.
    if escaped.starts_with(['.', '\'']) {
        format!("\\&{escaped}")
    } else {
        escaped
    }
}

/// The preamble once only, no blanks at line ends, no breaks beside blank lines, no long lines: what mandoc(1) points out.
fn tidy(text: &str) -> String {
    let mut tidied = String::new();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    for (at, line) in lines.iter().enumerate() {
        let beside_blank = at > 0 && lines[at - 1].is_empty()
            || lines.get(at + 1).is_some_and(|next| next.is_empty());
        let repeated = at > 1 && (line.starts_with(".ie ") || line.starts_with(".el "));
        if repeated || *line == ".br" && beside_blank {
            continue;
        }
        match *line {
            "" => tidied += ".sp",
            request if request.starts_with('.') => tidied += request,
            plain => tidied += &wrapped(plain),
        }
        tidied.push('\n');
    }
    tidied
}

/// Within 78 columns. A line break is a blank to roff; no line may start with what makes it a request.
fn wrapped(line: &str) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in line.split(' ') {
        if column > 0 && column + 1 + word.len() > 78 && !word.starts_with(['.', '\'']) {
            text.push('\n');
            column = 0;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text += word;
        column += word.len();
    }
    text
}
