//! Every command that a page shows is run, and what it prints has the shape that the page shows.
//!
//! A page's ```console blocks are one session of a shell, in their order. A line that begins with `$ ` is a command (and
//! with `> ` its continuation), the lines up to the next one what it printed. Ids, numbers and times differ from run to
//! run and are compared as kinds; `…` in a shown line stands for anything, and `…` alone for any lines.

use std::fs;
use std::path::Path;

use cgleaf_tests::frontend::{Sandbox, finish};

struct Step {
    command: String,
    shown: Vec<String>,
    line: usize,
}

fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for (index, line) in page.lines().enumerate() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if inside {
            match (
                line.strip_prefix("$ "),
                line.strip_prefix("> "),
                steps.last_mut(),
            ) {
                (Some(command), ..) => steps.push(Step {
                    command: command.to_owned(),
                    shown: Vec::new(),
                    line: index + 1,
                }),
                (None, Some(more), Some(step)) if step.shown.is_empty() => {
                    step.command.push('\n');
                    step.command.push_str(more);
                }
                (None, _, Some(step)) => step.shown.push(line.to_owned()),
                (None, _, None) => panic!("line {}: output before any command", index + 1),
            }
        }
    }
    steps
}

/// What differs from run to run, as its kind: ids, numbers, times, the runtime directory.
fn kinds(line: &str, runtime: &Path) -> String {
    let line = line.replace(&runtime.display().to_string(), "/run/user/1000");
    let mut plain = String::new();
    let is_word = |c: char| c.is_ascii_alphanumeric();
    let mut rest = line.as_str();
    while let Some(first) = rest.chars().next() {
        if !is_word(first) {
            plain.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let word = &rest[..end];
        plain.push_str(&kind_of(word));
        rest = &rest[end..];
    }
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn kind_of(word: &str) -> String {
    let has_digit = word.contains(|c: char| c.is_ascii_digit());
    let is_id = word.len() == 16
        && word
            .chars()
            .all(|c| c.is_ascii_digit() || c.is_ascii_lowercase());
    if is_id && has_digit {
        return "ID".to_owned();
    }
    // Runs of digits are one number each: `3s`, `2026T15`, `cgleaf0`.
    let mut kind = String::new();
    for c in word.chars() {
        match c {
            '0'..='9' if kind.ends_with('9') => {}
            '0'..='9' => kind.push('9'),
            other => kind.push(other),
        }
    }
    kind
}

fn line_fits(shown: &str, printed: &str) -> bool {
    let mut pieces = shown.split('…').map(str::trim);
    let first = pieces.next().unwrap_or("");
    let Some(mut rest) = printed.strip_prefix(first) else {
        return false;
    };
    let pieces: Vec<&str> = pieces.collect();
    let Some((last, between)) = pieces.split_last() else {
        return rest.is_empty();
    };
    for piece in between {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

fn fits(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((line, later)) if line == "…" => {
            (0..=printed.len()).any(|skip| fits(later, &printed[skip..]))
        }
        Some((line, later)) => printed
            .split_first()
            .is_some_and(|(first, rest)| line_fits(line, first) && fits(later, rest)),
    }
}

/// Runs a page's commands in one shell, and compares.
fn hold_to(page: &str) {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(page);
    let text = fs::read_to_string(&path).expect("read the page");
    let steps = steps(&text);
    assert!(!steps.is_empty(), "{page} shows no command");
    const MARK: &str = "--- step ";
    let script: String = steps
        .iter()
        .enumerate()
        .map(|(index, step)| format!("echo '{MARK}{index}'\n{}\n", step.command))
        .collect();
    let file = sandbox.runtime().join("page.sh");
    fs::write(
        &file,
        format!("exec 2>&1\ncd \"$XDG_RUNTIME_DIR\"\n{script}"),
    )
    .expect("write the script");
    let output = sandbox
        .command("bash")
        .arg(&file)
        .output()
        .expect("run bash");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut failures = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let begin = format!("{MARK}{index}\n");
        let from = printed
            .find(&begin)
            .map_or(printed.len(), |at| at + begin.len());
        let to = printed[from..]
            .find(MARK)
            .map_or(printed.len(), |at| from + at);
        let normal = |lines: &mut dyn Iterator<Item = &str>| -> Vec<String> {
            lines
                .map(|line| kinds(line, sandbox.runtime()))
                .filter(|line| !line.is_empty())
                .collect()
        };
        let shown = normal(&mut step.shown.iter().map(String::as_str));
        let got = normal(&mut printed[from..to].lines());
        if !fits(&shown, &got) {
            failures.push(format!(
                "{page}:{}: $ {}\nshown:\n  {}\nprinted:\n  {}\n",
                step.line,
                step.command,
                step.shown.join("\n  "),
                printed[from..to].trim_end().replace('\n', "\n  ")
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_readme_shows_what_happens() {
    hold_to("README.md");
}

#[test]
fn the_usage_page_shows_what_happens() {
    hold_to("docs/USAGE.md");
}

/// Every command, the options of which `--help` has, is run by the page that says how it is used.
#[test]
fn the_usage_page_runs_every_command() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/USAGE.md");
    let text = fs::read_to_string(path).expect("read the page");
    let run: String = steps(&text)
        .into_iter()
        .map(|step| step.command + "\n")
        .collect();
    let command = cgleaf::cli::command();
    let missing: Vec<&str> = command
        .get_subcommands()
        .map(clap::Command::get_name)
        .filter(|name| !run.contains(&format!("cgleaf {name}")))
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}

/// The lines that are set in to be copied: continuous integration itself, and the one that builds and runs at once.
#[test]
fn the_readmes_first_command_does_what_it_says() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join("README.md")).expect("read the page");
    let set_in: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| line.starts_with(['c', '.']))
        .collect();
    let [first, second] = set_in[..] else {
        panic!("two commands are announced: {set_in:?}");
    };
    assert!(root.join(second).is_file(), "{second}");
    let built = first.strip_prefix("cargo run -q -p cgleaf -- ");
    let words = built.unwrap_or_else(|| panic!("{first}"));
    let answer = finish(sandbox.bash(&format!("cgleaf {words}")));
    assert_eq!(answer.expect(0), "left a daemon behind");
    assert!(
        answer
            .stderr
            .contains("1 process outlived the program and was ended")
    );
}

#[test]
fn a_page_that_shows_something_else_is_caught() {
    let runtime = Path::new("/xdg");
    let kinds = |lines: &[&str]| {
        lines
            .iter()
            .map(|line| kinds(line, runtime))
            .collect::<Vec<_>>()
    };
    let printed = kinds(&["web  running  2  3s", "id g8axevm6mhq5n3vk at /xdg/x"]);
    assert!(fits(&kinds(&["web running 17 0s", "id …"]), &printed));
    assert!(fits(&kinds(&["…"]), &printed));
    assert!(fits(
        &kinds(&["web … 3s", "id yrha8xhjtffgrp35 at /run/user/1000/x"]),
        &printed
    ));
    assert!(!fits(&kinds(&["web running 2 3s"]), &printed));
    assert!(!fits(&kinds(&["web frozen 2 3s", "…"]), &printed));
    assert!(!fits(
        &kinds(&["web running 2 3s", "id …", "more"]),
        &printed
    ));
}
