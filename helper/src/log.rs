//! Lines for the journal, on stderr. A stderr that is gone is no reason to fail.

use std::fmt;
use std::io::Write;

/// Writes one line, with the program's name in front, in one write(2).
pub(crate) fn line(what: fmt::Arguments<'_>) {
    let text = format!("cgleaf-helper: {what}\n");
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Writes an answer to a person, on stdout.
pub(crate) fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// An error with its causes. A cause that its error has told already (ours name operation, path and answer) is not
/// repeated.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}
