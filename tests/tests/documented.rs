//! Every command that a page shows is run, and what it prints has the shape that the page shows.

use std::fs;
use std::path::Path;

use cgleaf_tests::frontend::{Sandbox, finish};
use cgleaf_tests::pages::{fits, kinds, steps};

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
        failures.extend(step.differs(page, &printed[from..to], sandbox.runtime()));
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
