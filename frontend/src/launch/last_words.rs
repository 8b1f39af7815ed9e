//! What a helper that does not start says, or that it says nothing.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::machine::is_filtered;

/// What a helper that did not start said.
#[derive(Debug)]
pub(super) struct Words {
    pipe: OwnedFd,
    /// Which program it was.
    program: String,
}

/// How long a helper that has closed its socket may take to close its stderr too.
const LAST_WORDS: Duration = Duration::from_secs(2);
const MOST_WORDS: u64 = 4096;

impl Words {
    /// Those that will come out of a pipe.
    pub(super) fn new(pipe: OwnedFd, program: String) -> Self {
        Self { pipe, program }
    }

    /// Reads to the end, bounded in time and length.
    pub(super) fn read(self) -> LastWords {
        let deadline = crate::client::Deadline::after(LAST_WORDS);
        let mut text = Vec::new();
        let mut has_ended = false;
        let mut pipe = File::from(self.pipe);
        while let Some(left) = deadline.left() {
            let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
            let wait = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            if !matches!(poll(&mut fds, wait), Ok(count) if count > 0) {
                break;
            }
            let mut chunk = [0; 1024];
            match pipe.read(&mut chunk) {
                Ok(count) if count > 0 && (text.len() as u64) < MOST_WORDS => {
                    text.extend_from_slice(&chunk[..count]);
                }
                answer => {
                    has_ended = matches!(answer, Ok(0));
                    break;
                }
            }
        }
        let text = without_colours(&String::from_utf8_lossy(&text));
        LastWords {
            text: text.trim().replace('\n', "; "),
            program: self.program,
            has_ended,
        }
    }
}

/// systemd-run has written in colours (ECMA-48: a control sequence is ESC, `[`, parameters, and a final byte), also where no terminal
/// reads.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| {
        let is_final = |c: char| ('@'..='~').contains(&c);
        plain + part.split_once(is_final).map_or("", |(_, rest)| rest)
    })
}

/// What is said of one that says nothing, behind its program.
pub(crate) const ENDED_WITHOUT_A_WORD: &str = "ended without a word";
pub(crate) const NEITHER_ANSWERS_NOR_ENDS: &str = "was started, and neither answers nor ends";

/// The same as text.
#[derive(Debug)]
pub(super) struct LastWords {
    text: String,
    program: String,
    has_ended: bool,
}

impl LastWords {
    /// Whether it said nothing at all.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Whether it, or whoever else has its stderr, goes on.
    pub(super) fn go_on(&self) -> bool {
        !self.has_ended
    }

    /// Whether that is part of it.
    pub(super) fn mentions(&self, what: &str) -> bool {
        self.text.contains(what)
    }
}

impl fmt::Display for LastWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.text.is_empty() && !self.has_ended {
            write!(f, "{} {NEITHER_ANSWERS_NOR_ENDS}", self.program)
        } else if self.text.is_empty() {
            write!(f, "{} {ENDED_WITHOUT_A_WORD}", self.program)?;
            if is_filtered() {
                f.write_str(
                    ", as SIGSYS ends one: the system call filter around this process may kill for a call of its (of a unit: \
                     SystemCallErrorNumber=EPERM has it answer an error)",
                )?;
            }
            Ok(())
        } else {
            f.write_str(&self.text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_taken_out_of_what_a_program_says() {
        assert_eq!(
            without_colours("\u{1b}[0;1;31mFailed\u{1b}[0m to\u{1b}[K connect"),
            "Failed to connect"
        );
        assert_eq!(without_colours("plain \u{1b}[3"), "plain ");
    }
}
