//! Runs `sandbox-probe`: a process that locks itself down as the helper does and then tries one thing.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What came of the attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tried {
    /// It worked; what the probe printed.
    Done(String),
    /// The kernel refused with this error name, as in errno(3).
    Refused(String),
    /// The probe died of this signal's number.
    Died(i32),
}

/// The exit status of a probe whose attempt the kernel refused.
pub const REFUSED: i32 = 10;

/// A probe about to be started.
#[derive(Debug)]
pub struct Probe {
    command: Command,
}

impl Probe {
    /// One at `program` (`env!("CARGO_BIN_EXE_sandbox-probe")`), with `scope` as its scope directory beneath `mount`.
    #[must_use]
    pub fn new(program: &str, mount: &Path, scope: &Path) -> Self {
        let mut command = Command::new(program);
        command
            .arg("--mount")
            .arg(mount)
            .arg("--scope")
            .arg(scope)
            .stdin(Stdio::null());
        Self { command }
    }

    /// Adds an option of the probe, or its case and that case's arguments.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// The command itself, for what needs pipes.
    pub fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// Where the probe could not do its own work: a setup failure is not an answer.
    #[must_use]
    pub fn run(mut self) -> Tried {
        judge(&self.command.output().expect("start sandbox-probe"))
    }
}

/// Reads what a probe's end means.
///
/// # Panics
/// Where the probe failed before its attempt.
#[must_use]
pub fn judge(output: &Output) -> Tried {
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match (output.status.code(), output.status.signal()) {
        (Some(0), _) => Tried::Done(said),
        (Some(REFUSED), _) => Tried::Refused(said),
        (_, Some(signal)) => Tried::Died(signal),
        (code, None) => {
            panic!(
                "sandbox-probe ended with {code:?}: {said} {}",
                String::from_utf8_lossy(&output.stderr)
            )
        }
    }
}
