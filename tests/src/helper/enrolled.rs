//! Processes that speak to a helper by themselves.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// `helper-client` started as `uid` in a cgroup, with what is to stand before its command line (such as unshare(1)).
#[must_use]
pub fn client_in(
    cgroup: &Path,
    uid: u32,
    before: &[&str],
    socket: &Path,
    words: &[&str],
) -> Enrolled {
    let mut command = Command::new("bash");
    command
        .arg("-c")
        .arg("echo $$ >\"$0/cgroup.procs\" && exec \"$@\"")
        .arg(cgroup)
        .args(before)
        .args([
            "setpriv",
            "--reuid",
            &uid.to_string(),
            "--regid",
            &uid.to_string(),
            "--clear-groups",
            "--",
        ])
        .arg(client_program())
        .arg(socket)
        .args(words);
    Enrolled::start(command)
}

/// A program that enrols itself over a connection of its own and then sleeps, killed with this value: the test program
/// `helper-client`.
#[derive(Debug)]
pub struct Enrolled {
    /// The process.
    pub child: Child,
    output: io::BufReader<std::process::ChildStdout>,
}

impl Enrolled {
    /// Starts one: `helper-client SOCKET WORD…`, as [`Lair::enrolled`] makes it.
    ///
    /// # Panics
    /// Where it cannot be started.
    #[must_use]
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("start helper-client");
        let output = io::BufReader::new(child.stdout.take().expect("its output"));
        Self { child, output }
    }

    /// The next line that it says; empty at its end.
    ///
    /// # Panics
    /// Where it cannot be read.
    #[must_use]
    pub fn line(&mut self) -> String {
        use io::BufRead;
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Enrolled {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The test program `helper-client`, beside the tests.
///
/// # Panics
/// Where the test does not know its own path.
#[must_use]
pub fn client_program() -> PathBuf {
    let own = std::env::current_exe().expect("the test's own path");
    let profile = own.ancestors().nth(2).expect("target/PROFILE/deps/test");
    profile.join("helper-client")
}
