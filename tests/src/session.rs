//! Sessions that run in the background of a test, by the real `cgleaf exec`.

use std::ffi::OsStr;
use std::process::{Child, Stdio};

use cgleaf::base::{Base, Surroundings};
use cgleaf::ops::Reach;
use cgleaf_shared::id::Uid;
use cgleaf_shared::process::{Pid, Pidfd};

use crate::frontend::{Sandbox, finish, wait_for};
use crate::scratch::wait_until;

/// A session whose leader is a child of the test, killed and reaped with this value. The rest of it goes with the sandbox.
#[derive(Debug)]
pub struct Background {
    child: Child,
}

impl Background {
    /// The leader's pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the leader has ended, and reaps it: its exit status as a shell shows it.
    pub fn wait(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let status = wait_for(&mut self.child);
        status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
    }

    /// Whether the leader has not ended.
    ///
    /// # Panics
    /// Where it cannot be waited for.
    pub fn lives(&mut self) -> bool {
        self.child.try_wait().expect("wait for a leader").is_none()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A session that `cgleaf start` has made, whose leader is killed with this value.
#[derive(Debug)]
pub struct Started {
    leader: Pidfd,
    pid: Pid,
}

impl Started {
    /// The leader's pid.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether the leader has not ended.
    ///
    /// # Panics
    /// Where that cannot be told.
    #[must_use]
    pub fn lives(&self) -> bool {
        self.leader.is_alive().expect("poll")
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.leader.send_signal(nix::libc::SIGKILL);
    }
}

impl Sandbox {
    /// `cgleaf start` of a program in the group tier.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn started_in_a_group<S: AsRef<OsStr>>(
        &self,
        session: &str,
        options: &[&str],
        words: impl IntoIterator<Item = S>,
    ) -> Started {
        let mut command = self.cgleaf(["start", "--quiet", "--tier", "group"]);
        command.args(["--session", session]).args(options);
        command.arg("--").args(words);
        finish(command).expect(0);
        let record = self.record(session).expect("a record");
        let leader = record["leader"]["pid"].as_i64().expect("a leader");
        let pid = Pid::new(i32::try_from(leader).expect("a pid")).expect("a pid");
        Started {
            leader: Pidfd::open(pid).expect("a leader"),
            pid,
        }
    }

    /// `cgleaf exec` of a program, in the background. It comes back when the program is in its leaf and its record says so.
    ///
    /// # Panics
    /// Where that does not come.
    pub fn background<S: AsRef<OsStr>>(
        &self,
        session: &str,
        words: impl IntoIterator<Item = S>,
    ) -> Background {
        self.background_with(session, &[], words)
    }

    /// The same, with more options of `exec`.
    ///
    /// # Panics
    /// As [`Self::background`].
    pub fn background_with<S: AsRef<OsStr>>(
        &self,
        session: &str,
        options: &[&str],
        words: impl IntoIterator<Item = S>,
    ) -> Background {
        let mut command = self.cgleaf(["exec", "--session", session]);
        command.args(options).arg("--").args(words);
        self.in_background(session, command)
    }

    /// The same as the leader of a POSIX session and a process group of its own, as a PTY host makes one.
    ///
    /// # Panics
    /// As [`Self::background`].
    pub fn background_in_a_group<S: AsRef<OsStr>>(
        &self,
        session: &str,
        options: &[&str],
        words: impl IntoIterator<Item = S>,
    ) -> Background {
        let mut command = self.command("setsid");
        command
            .arg(self.program())
            .args(["exec", "--session", session]);
        command.args(options).arg("--").args(words);
        self.in_background(session, command)
    }

    fn in_background(&self, session: &str, mut command: std::process::Command) -> Background {
        // A file: what the program says there is nobody's to read while it runs.
        let errors = self.runtime().join(format!("{session}.stderr"));
        let file = std::fs::File::create(&errors).expect("make a file");
        command.stdout(Stdio::null()).stderr(file);
        let mut background = Background {
            child: command.spawn().expect("start cgleaf exec"),
        };
        wait_until(&format!("session {session}"), || {
            assert!(
                background.lives() || self.record(session).is_some(),
                "cgleaf exec of {session} ended early: {}",
                std::fs::read_to_string(&errors).unwrap_or_default()
            );
            self.record(session)
                .is_some_and(|record| record["phase"] == "running")
        });
        background
    }

    /// The pid of a session's monitor, as its record has it.
    ///
    /// # Panics
    /// Where there is none.
    #[must_use]
    pub fn monitor(&self, session: &str) -> i32 {
        let record = self.record(session).expect("a record");
        let pid = record["group"]["monitor"]["pid"].as_i64();
        i32::try_from(pid.expect("a monitor")).expect("a pid")
    }

    /// What the library can reach in this place.
    ///
    /// # Panics
    /// Where the place cannot be found.
    #[must_use]
    pub fn reach(&self) -> Reach {
        let base = Base::find(&Surroundings {
            uid: Uid::effective(),
            runtime_dir: Some(self.runtime().into()),
            state_home: None,
            home: None,
        });
        Reach::new(&base.expect("a base"), None).with_scope_dir(Some(self.scope()))
    }

    /// The state that `show` tells.
    #[must_use]
    pub fn state(&self, session: &str) -> String {
        let answer = self.run(["--json", "show", session]);
        answer.json()["result"]["state"]
            .as_str()
            .unwrap_or("")
            .to_owned()
    }

    /// What a control file of a session's leaf says, without its newline; empty where the leaf is gone.
    #[must_use]
    pub fn leaf_file(&self, session: &str, file: &str) -> String {
        std::fs::read_to_string(self.leaf(session).join(file))
            .unwrap_or_default()
            .trim()
            .to_owned()
    }
}

/// Whether no process has this number, or only a zombie.
#[must_use]
pub fn is_dead(pid: i32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Err(_) => true,
        Ok(stat) => stat
            .rsplit_once(')')
            .is_some_and(|(_, rest)| rest.trim_start().starts_with(['Z', 'X'])),
    }
}
