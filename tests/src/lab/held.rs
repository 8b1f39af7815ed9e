//! Environments that a script holds for as long as its stdin is open.

use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A `hold` command of a lab script. It takes everything down when this value goes, or when this process dies: the script reads from a
/// pipe that only we can write to, and its end of file comes either way.
#[derive(Debug)]
pub(super) struct Held(Child);

impl Held {
    /// Starts `command` and waits until it says that it is ready. How long that may take is bounded by the script.
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        let shown = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A ctrl-C at the terminal must not hit the one who cleans up.
            .process_group(0)
            .spawn()
            .map_err(|cause| io::Error::new(cause.kind(), format!("start {shown}: {cause}")))?;
        let output = child.stdout.take().expect("stdout was piped");
        let held = Self(child);
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        if line.trim() == "ready" {
            Ok(held)
        } else {
            Err(io::Error::other(format!(
                "{shown} failed; its reason is on stderr"
            )))
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
