//! Pages that show commands and what they print.
//!
//! A page's ```console blocks are one session, in their order. A line that begins with `$ ` is a user's command, one with
//! `# ` is root's (and one with `> ` the continuation of either), the lines up to the next one what it printed. Ids, numbers
//! and times differ from run to run and are compared as kinds; `…` in a shown line stands for anything, and `…` alone for
//! any lines.

use std::path::Path;

/// A command that a page shows.
#[derive(Debug)]
pub struct Step {
    /// The command, as a shell takes it.
    pub command: String,
    /// Whether it stands behind root's prompt.
    pub as_root: bool,
    /// The lines that it is shown to print.
    pub shown: Vec<String>,
    /// Where the command stands in the page.
    pub line: usize,
}

/// The commands of a page, in their order.
///
/// # Panics
/// Where a block begins with output.
#[must_use]
pub fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for (index, line) in page.lines().enumerate() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if inside {
            match (
                line.strip_prefix("$ ").or_else(|| line.strip_prefix("# ")),
                line.strip_prefix("> "),
                steps.last_mut(),
            ) {
                (Some(command), ..) => steps.push(Step {
                    command: command.to_owned(),
                    as_root: line.starts_with('#'),
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
#[must_use]
pub fn kinds(line: &str, runtime: &Path) -> String {
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

/// Whether the kinds of what was printed are those of what is shown.
#[must_use]
pub fn fits(shown: &[String], printed: &[String]) -> bool {
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

impl Step {
    /// Why what was printed is not what is shown; None where it is.
    #[must_use]
    pub fn differs(&self, page: &str, printed: &str, runtime: &Path) -> Option<String> {
        let normal = |lines: &mut dyn Iterator<Item = &str>| -> Vec<String> {
            lines
                .map(|line| kinds(line, runtime))
                .filter(|line| !line.is_empty())
                .collect()
        };
        let shown = normal(&mut self.shown.iter().map(String::as_str));
        let got = normal(&mut printed.lines());
        (!fits(&shown, &got)).then(|| {
            format!(
                "{page}:{}: {}\nshown:\n  {}\nprinted:\n  {}\n",
                self.line,
                self.command,
                self.shown.join("\n  "),
                printed.trim_end().replace('\n', "\n  ")
            )
        })
    }
}
