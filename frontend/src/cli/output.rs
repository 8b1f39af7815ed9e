//! Answers: one JSON envelope on stdout, or text.

use std::io::{StdoutLock, Write};
use std::time::Duration;

use cgleaf_shared::id::BootTime;
use nix::errno::Errno;
use serde_json::{Value, json};

use crate::error::{Code, Error, OrCode, Result};
use crate::sys;

/// What is said where an answer cannot be written.
const WRITING_STDOUT: &str = "writing standard output";

/// Where a command's answer goes, and in which form.
#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    command: &'static str,
    json: bool,
    quiet: bool,
}

impl Output {
    /// For a command of that name.
    pub(super) fn new(command: &'static str, json: bool, quiet: bool) -> Self {
        Self {
            command,
            json,
            quiet,
        }
    }

    /// Whether the answer is JSON.
    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether notices are wanted.
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Answers with a result: as JSON, or with what `text` writes.
    ///
    /// # Errors
    /// INTERNAL if stdout cannot be written.
    pub(super) fn answer(
        &self,
        result: &Value,
        text: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> Result<()> {
        let mut stdout = Stdout(std::io::stdout().lock());
        let written = if self.json {
            let envelope = json!({
                "ok": true, "command": self.command, "timestamp": timestamp(), "result": result,
            });
            writeln!(stdout, "{envelope}")
        } else {
            text(&mut stdout)
        };
        match written.and_then(|()| stdout.flush()) {
            // `cgleaf list | head -1`: whoever reads has read enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => other
                .or_code(Code::Internal)
                .map_err(|error| error.while_doing(WRITING_STDOUT)),
        }
    }

    /// Answers with a failure. A program's stdout is its own, so that run, exec and start write on stderr alone.
    pub(super) fn fail(&self, error: &Error, launches: bool) {
        if !self.json || launches {
            return self.trouble(error.message());
        }
        let mut stdout = Stdout(std::io::stdout().lock());
        let envelope = failure_envelope(self.command, error);
        let written = writeln!(stdout, "{envelope}").and_then(|()| stdout.flush());
        match written {
            Err(why) if why.kind() != std::io::ErrorKind::BrokenPipe => {
                // Somebody has to hear of the failure itself, too; it may be this one.
                if !error.message().starts_with(WRITING_STDOUT) {
                    self.trouble(error.message());
                }
                stdout_failed(self.command, &why);
            }
            _ => {}
        }
    }

    /// Lines on stderr, always, and each says whose it is.
    pub(super) fn trouble(&self, text: &str) {
        for line in printable(text).lines() {
            let _ = writeln!(std::io::stderr(), "cgleaf {}: {line}", self.command);
        }
    }

    /// One line on stderr, unless quiet.
    pub(super) fn notice(&self, text: &str) {
        if !self.quiet {
            let _ = writeln!(std::io::stderr(), "cgleaf: {}", printable(text));
        }
    }
}

/// Stdout; where this process was started without one, what is written is lost, and that is an error as on a full disk.
struct Stdout(StdoutLock<'static>);

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if sys::stdout_was_closed() && !bytes.is_empty() {
            return Err(Errno::EBADF.into());
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// One line on stderr: whoever was to read the answer gets none.
pub(super) fn stdout_failed(command: &str, why: &std::io::Error) {
    let space = if command.is_empty() { "" } else { " " };
    let _ = writeln!(
        std::io::stderr(),
        "cgleaf{space}{command}: {WRITING_STDOUT}: {why}"
    );
}

/// One line on stderr for an operation, where `--verbose` asks for it.
pub(super) fn tell_operation(text: &str) {
    // Whoever does not listen any more need not be told.
    let _ = writeln!(std::io::stderr(), "cgleaf: {}", one_line(text));
}

/// The envelope of a failure.
pub(super) fn failure_envelope(command: &str, error: &Error) -> Value {
    json!({
        "ok": false,
        "command": command,
        "timestamp": timestamp(),
        "error": {
            "code": error.code().name(),
            "message": error.message(),
            "retryable": error.code().is_retryable(),
            "details": error.details(),
        },
    })
}

/// Text that somebody else chose, without a byte that a terminal would obey.
pub(super) fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let shown: Vec<char> = if c == '\n' || !c.is_control() {
                vec![c]
            } else {
                c.escape_default().collect()
            };
            shown
        })
        .collect()
}

/// [`printable`], in one line.
pub(super) fn one_line(text: &str) -> String {
    printable(&text.replace('\n', "\\n"))
}

/// Now, as RFC 3339 in UTC.
pub(super) fn timestamp() -> String {
    rfc3339(jiff::Timestamp::now())
}

/// When that moment of this boot was, by the clock as it stands now: a clock step moves the answer, not the session.
pub(super) fn wall_clock(moment: BootTime) -> Option<String> {
    let ago = Duration::from_nanos(BootTime::now().0.checked_sub(moment.0)?);
    let ago = jiff::SignedDuration::try_from(ago).ok()?;
    jiff::Timestamp::now().checked_sub(ago).ok().map(rfc3339)
}

fn rfc3339(moment: jiff::Timestamp) -> String {
    format!("{moment:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_of_this_boot_has_a_date() {
        let now = timestamp();
        assert_eq!(now.len(), "2026-11-29T15:13:14Z".len());
        assert!(wall_clock(BootTime::now()).is_some_and(|then| then >= now));
        assert_eq!(wall_clock(BootTime(u64::MAX)), None);
    }

    #[test]
    fn control_bytes_are_shown_and_not_sent() {
        assert_eq!(printable("a\u{1b}[31mb\r"), "a\\u{1b}[31mb\\r");
    }
}
