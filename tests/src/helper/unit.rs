//! A helper as a service manager starts one.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
};

use super::Client;
use crate::frontend::{programs, wait_for};

/// In the environment of [`Unit::with_environment`]: how many descriptors the helper may have.
pub(super) const DESCRIPTORS: &str = "CGLEAF_TEST_DESCRIPTORS";

/// A helper as a service manager would start it: in its own cgroup, with a listening socket (owned by `owner`) as
/// descriptor 3, LISTEN_PID and, if given, NOTIFY_SOCKET. Killed with this value.
#[derive(Debug)]
pub struct Unit {
    /// The helper.
    pub child: Child,
    socket: PathBuf,
}

impl Unit {
    /// Starts one in `cgroup`, with `arguments` behind `serve`, its log at `log`.
    ///
    /// # Panics
    /// Where that fails.
    #[must_use]
    pub fn start(
        cgroup: &Path,
        path: &Path,
        owner: u32,
        arguments: &[&str],
        notify: Option<&Path>,
    ) -> Self {
        let environment: Vec<_> = notify
            .iter()
            .map(|path| ("NOTIFY_SOCKET", path.as_os_str()))
            .collect();
        Self::with_environment(cgroup, path, owner, arguments, &environment)
    }

    /// The same, with any environment: what else the service manager tells it.
    ///
    /// # Panics
    /// Where that fails.
    #[must_use]
    pub fn with_environment(
        cgroup: &Path,
        path: &Path,
        owner: u32,
        arguments: &[&str],
        environment: &[(&str, &OsStr)],
    ) -> Self {
        let _ = fs::remove_file(path);
        let listening = socket(
            AddressFamily::Unix,
            SockType::SeqPacket,
            SockFlag::empty(),
            None,
        )
        .expect("a socket");
        bind(
            listening.as_raw_fd(),
            &UnixAddr::new(path).expect("an address"),
        )
        .expect("bind");
        // As many as a service manager lets wait.
        listen(&listening, Backlog::new(4096).expect("a backlog")).expect("listen");
        chown(path, Some(owner), Some(owner)).expect("chown the socket");
        let take = match listening.as_raw_fd() {
            3 => String::new(),
            other => format!("exec 3<&{other} {other}<&-; "),
        };
        let script = format!(
            "echo $$ >\"$0/cgroup.procs\"; {take}[ -z \"${DESCRIPTORS}\" ] || ulimit -n \"${DESCRIPTORS}\"; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\""
        );
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path.with_extension("log"))
            .expect("a log");
        let mut command = Command::new("bash");
        command
            .arg("-c")
            .arg(script)
            .arg(cgroup)
            .arg(programs().join("cgleaf-helper"))
            .arg("serve")
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::from(log));
        command.envs(environment.iter().copied());
        Self {
            child: command.spawn().expect("start the helper"),
            socket: path.to_path_buf(),
        }
    }

    /// A client; it waits in the socket's queue until the helper serves.
    ///
    /// # Panics
    /// Where the helper turns it away or is not there.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::connect(&self.socket).unwrap_or_else(|why| panic!("{why}: {}", self.said()))
    }

    /// What it has said.
    #[must_use]
    pub fn said(&self) -> String {
        fs::read_to_string(self.socket.with_extension("log")).unwrap_or_default()
    }

    /// Kills it as nothing else would, and reaps it.
    ///
    /// # Panics
    /// Where it cannot be killed.
    pub fn kill(&mut self) {
        self.child.kill().expect("kill the helper");
        wait_for(&mut self.child);
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
