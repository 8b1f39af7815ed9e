//! Runs a command to its end, with what it said.

use std::io::{self, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::scratch::DEADLINE;

/// What a command said and how it ended.
#[derive(Debug, Clone)]
pub struct Finished {
    /// The command, for messages.
    pub command: String,
    /// How it ended.
    pub status: ExitStatus,
    /// Its stdout. What is not UTF-8 is replaced.
    pub stdout: String,
    /// Its stderr, likewise.
    pub stderr: String,
}

impl Finished {
    /// Its exit code; for the death by a signal 128 and the signal's number, as a shell says it.
    #[must_use]
    pub fn code(&self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        self.status
            .code()
            .unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Its stdout, without the white space around it, if it ended with this code.
    ///
    /// # Panics
    /// Where it ended otherwise, with all that it said.
    #[track_caller]
    pub fn expect(&self, code: i32) -> &str {
        assert_eq!(self.code(), code, "unexpected exit code: {self:#?}");
        self.stdout.trim()
    }

    /// [`expect`](Self::expect) of 0.
    ///
    /// # Panics
    /// Where it ended otherwise.
    #[track_caller]
    pub fn ok(&self) -> &str {
        self.expect(0)
    }
}

/// Runs `command` to its end; its stdin is empty unless the caller has set it. Both outputs are collected.
///
/// # Panics
/// Where it cannot be started, or is not over after [`DEADLINE`]: then it is killed.
#[track_caller]
pub fn run(command: &mut Command) -> Finished {
    run_within(DEADLINE, command)
}

/// [`run`] with a deadline of its own. Outputs count too: who keeps them open is what a test waits for.
///
/// # Panics
/// Where it cannot be started, or is not over by then.
#[track_caller]
pub fn run_within(deadline: Duration, command: &mut Command) -> Finished {
    let shown = format!("{command:?}");
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|cause| panic!("start {shown}: {cause}"));
    drop(child.stdin.take());
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let start = Instant::now();
    let over = |status: &io::Result<Option<ExitStatus>>| {
        matches!(status, Ok(Some(_))) && stdout.is_finished() && stderr.is_finished()
    };
    loop {
        let status = child.try_wait();
        if over(&status) {
            let text = |output: JoinHandle<Vec<u8>>| {
                String::from_utf8_lossy(&output.join().unwrap_or_default()).into_owned()
            };
            return Finished {
                command: shown,
                status: status.ok().flatten().expect("it is over"),
                stdout: text(stdout),
                stderr: text(stderr),
            };
        }
        if start.elapsed() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            panic!("not over after {deadline:?}: {shown} (it said {status:?})");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn collect(output: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut output) = output {
            // An error ends the collection; what was read counts.
            let _ = output.read_to_end(&mut bytes);
        }
        bytes
    })
}
