//! The man pages and the completions that are checked in are those of this command line, and hold in the programs that
//! read them.

use std::process::Command;

use cgleaf_tests::generated;
use tempfile::TempDir;

#[test]
fn what_is_checked_in_is_what_the_definition_gives() {
    let folder = generated::folder();
    let mut stale = Vec::new();
    for (name, text) in generated::files() {
        if std::fs::read_to_string(folder.join(&name)).ok().as_deref() != Some(text.as_str()) {
            stale.push(name);
        }
    }
    assert!(
        stale.is_empty(),
        "stale, run `cargo run -p cgleaf-tests --bin generate`: {stale:?}"
    );
}

#[test]
fn no_page_is_left_of_a_command_that_is_gone() {
    let generated: Vec<String> = generated::files()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    for page in pages("1") {
        let name = format!("man/{}", page.rsplit('/').next().unwrap_or_default());
        assert!(generated.contains(&name), "{name} belongs to no command");
    }
}

#[test]
fn mandoc_has_nothing_to_say_about_the_pages() {
    if !cgleaf_tests::packaging::have("mandoc") {
        return;
    }
    let all: Vec<String> = ["1", "5", "8"].into_iter().flat_map(pages).collect();
    assert!(
        all.iter().any(|page| page.ends_with("cgleaf-helper.8")),
        "{all:?}"
    );
    let lint = Command::new("mandoc")
        .arg("-Tlint")
        .args(&all)
        .output()
        .expect("run mandoc");
    let said = String::from_utf8_lossy(&lint.stdout);
    // References to pages that are not installed here are no fault of the page.
    let said: Vec<&str> = said
        .lines()
        .filter(|line| !line.contains("referenced manual not found"))
        .collect();
    assert!(said.is_empty(), "{said:#?}");
}

/// The checked-in pages of a section.
fn pages(section: &str) -> Vec<String> {
    let folder = generated::folder().join("man");
    std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("read the folder").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == section)
        })
        .map(|path| path.display().to_string())
        .collect()
}

/// Completions in the real shells: what stands behind `cgleaf` on a command line, as the shell itself answers.
mod shells {
    use super::*;

    /// A stand-in that lists two sessions, so that this needs no helper: the words of `list --json` are pinned elsewhere.
    fn stand_in() -> TempDir {
        let dir = TempDir::new().expect("make a folder");
        let program = dir.path().join("cgleaf");
        let script = r#"#!/bin/sh
[ "$1 $2" = "list --json" ] || exit 1
echo '{"ok":true,"command":"list","timestamp":"","result":{"sessions":[{"session":"01ID","name":"build"},{"session":"02ID","name":null}]}}'
"#;
        std::fs::write(&program, script).expect("write the stand-in");
        let mut mode = std::fs::metadata(&program).expect("stat").permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
        std::fs::set_permissions(&program, mode).expect("chmod");
        dir
    }

    fn completions(shell: &str, driver: &str, line: &str) -> Option<Vec<String>> {
        if !cgleaf_tests::packaging::have(shell) {
            return None;
        }
        let dir = stand_in();
        let output = Command::new(shell)
            .arg(
                generated::folder()
                    .parent()
                    .expect("the tree")
                    .join("tests/lab/completions")
                    .join(driver),
            )
            .arg(generated::folder().join("completions"))
            .arg(line)
            .env("HOME", dir.path())
            .env("PATH", format!("{}:/usr/bin:/bin", dir.path().display()))
            .output()
            .unwrap_or_else(|error| panic!("{shell}: {error}"));
        assert!(
            output.status.success(),
            "{shell}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8_lossy(&output.stdout);
        Some(text.split_whitespace().map(str::to_owned).collect())
    }

    fn all(line: &str, wanted: &[&str], unwanted: &[&str]) {
        for (shell, driver) in [
            ("bash", "complete.bash"),
            ("zsh", "complete.zsh"),
            ("fish", "complete.fish"),
        ] {
            let Some(words) = completions(shell, driver, line) else {
                continue;
            };
            for word in wanted {
                assert!(
                    words.iter().any(|has| has == word),
                    "{shell}: {line:?} gives {words:?}, not {word}"
                );
            }
            for word in unwanted {
                assert!(
                    words.iter().all(|has| has != word),
                    "{shell}: {line:?} gives {words:?}, and {word} too"
                );
            }
        }
    }

    #[test]
    fn commands_are_completed() {
        all("cgleaf d", &["destroy", "doctor"], &["list", "build"]);
    }

    #[test]
    fn options_are_completed() {
        all("cgleaf destroy --st", &["--strays"], &["--grace"]);
    }

    #[test]
    fn sessions_are_completed_by_id_and_name() {
        for line in [
            "cgleaf destroy ",
            "cgleaf ps ",
            "cgleaf --socket /s show ",
            "cgleaf destroy 01ID ",
        ] {
            all(line, &["build", "02ID"], &[]);
        }
        all("cgleaf wait b", &["build"], &["02ID"]);
        all("cgleaf run --parent ", &["build", "01ID"], &[]);
        all("cgleaf list ", &[], &["build"]);
    }

    #[test]
    fn behind_two_dashes_stands_the_programs_own_command_line() {
        all("cgleaf run -- mkd", &["mkdir"], &["destroy"]);
    }
}
