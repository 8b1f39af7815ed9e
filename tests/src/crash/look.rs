//! What must hold after a kill, looked at from outside.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;

use super::load::Load;
use super::{Mode, Place};
use crate::scratch::{DEADLINE, wait_until};
use crate::session::is_dead;

/// Looks at a place.
pub(super) struct Watch<'a> {
    place: &'a Place,
    load: &'a Load<'a>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(place: &'a Place, load: &'a Load<'a>) -> Self {
        Self { place, load }
    }

    /// Every leaf is a session that is listed, every program is in one, none stands still that no user froze. How many
    /// sessions live.
    pub(super) fn recovered(&self) -> usize {
        // The next command: it starts a helper where there is none, which takes the sessions over.
        self.place
            .run(["exec", "--tier", "cgroup", "--", "true"])
            .expect(0);
        let start = Instant::now();
        loop {
            let why = self.why();
            if why.is_empty() {
                break;
            }
            assert!(start.elapsed() < DEADLINE, "{why}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let sessions = self.list();
        let living = |one: &&Value| {
            matches!(
                one["state"].as_str(),
                Some("running" | "frozen" | "destroying")
            )
        };
        sessions.iter().filter(living).count()
    }

    /// What is not in order; empty where everything is.
    fn why(&self) -> String {
        self.every_program_is_contained();
        let sessions = self.list();
        for session in &sessions {
            let state = session["state"].as_str().unwrap_or("");
            assert!(
                matches!(
                    state,
                    "starting" | "running" | "frozen" | "destroying" | "ended" | "destroyed"
                ),
                "{session}"
            );
        }
        let listed: BTreeSet<&str> = sessions
            .iter()
            .filter_map(|one| one["session"].as_str())
            .collect();
        let asked = self.load.frozen.lock().expect("the frozen").clone();
        for (id, leaf) in self.place.leaves() {
            if !listed.contains(id.as_str()) {
                return format!("{} is nobody's: {sessions:?}", leaf.display());
            }
            if is(&leaf, "cgroup.freeze", "1") && !asked.contains(&id) {
                let flags = xattr::get(&leaf, "user.cgleaf.freeze").ok().flatten();
                let flags = flags.map(|flags| String::from_utf8_lossy(&flags).into_owned());
                let listed = sessions.iter().find(|one| one["session"] == *id);
                return format!("{id} was frozen by no user; its flags: {flags:?}; {listed:?}");
            }
        }
        let over = sessions
            .iter()
            .filter(|one| matches!(one["state"].as_str(), Some("ended" | "destroyed")));
        for session in over {
            let id = session["session"].as_str().unwrap_or("");
            let leaf = self.place.leaves().into_iter().find(|(leaf, _)| leaf == id);
            if let Some((_, leaf)) = leaf
                && fs::read_to_string(leaf.join("cgroup.events"))
                    .is_ok_and(|text| text.contains("populated 1"))
            {
                return format!("{id} is said to be over and lives: {session}");
            }
        }
        String::new()
    }

    fn list(&self) -> Vec<Value> {
        let answer = self.place.run(["--json", "list", "--all"]);
        answer.expect(0);
        answer.json()["result"]["sessions"]
            .as_array()
            .expect("sessions")
            .clone()
    }

    /// No program of ours runs outside of a leaf of its own, not even for a moment.
    fn every_program_is_contained(&self) {
        for (pid, words) in self.programs() {
            let Ok(cgroup) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else {
                continue;
            };
            let contained = cgroup
                .lines()
                .any(|line| line.starts_with("0::") && line.contains(".leaf"));
            assert!(
                contained || is_dead(pid),
                "{pid} ({words:?}) runs in {cgroup:?}"
            );
        }
    }

    /// The processes that were started as programs of this series.
    fn programs(&self) -> Vec<(i32, Vec<String>)> {
        let mut found = self.with_our_time();
        found.retain(|(_, words)| matches!(words[0].as_str(), "sh" | "sleep"));
        found
    }

    /// Those, and the frontends that know of them.
    fn with_our_time(&self) -> Vec<(i32, Vec<String>)> {
        let entries = fs::read_dir("/proc").expect("list /proc").flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
            .filter_map(|pid| {
                let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
                let words: Vec<String> = words
                    .split(|byte| *byte == 0)
                    .map(|word| String::from_utf8_lossy(word).into_owned())
                    .collect();
                words
                    .iter()
                    .any(|word| word.contains(&self.load.time))
                    .then_some((pid, words))
            })
            .collect()
    }

    /// Ends every session: each can be. How many there were.
    pub(super) fn destroy_all(&self) -> usize {
        let sessions = self.list();
        let alive = |one: &&Value| !matches!(one["state"].as_str(), Some("ended" | "destroyed"));
        let ids: Vec<String> = sessions.iter().filter(alive).map(id_of).collect();
        self.destroy(&ids);
        wait_until("the end of every program", || self.programs().is_empty());
        // What was half made, and what has ended, is gc's. A destroy that was killed stays until it is finished, since it may
        // have named strays.
        let unfinished: Vec<String> = self
            .gc()
            .iter()
            .map(|kept| {
                let reason = kept["reason"].as_str().unwrap_or("");
                assert!(reason.contains("a destroy of it has begun"), "{kept}");
                id_of(kept)
            })
            .collect();
        self.destroy(&unfinished);
        assert_eq!(self.gc(), Vec::<Value>::new());
        let leaves = self.place.leaves();
        assert!(leaves.is_empty(), "{leaves:?}");
        self.load.frozen.lock().expect("the frozen").clear();
        ids.len()
    }

    fn destroy(&self, ids: &[String]) {
        for id in ids {
            let answer = self.place.run(["destroy", id]);
            // 4: its last process ended by itself meanwhile.
            assert!(
                matches!(answer.code(), 0 | 4),
                "destroy of {id}: {answer:?}"
            );
        }
    }

    /// What it kept.
    fn gc(&self) -> Vec<Value> {
        let answer = self.place.run(["--json", "gc"]);
        answer.expect(0);
        answer.json()["result"]["kept"]
            .as_array()
            .expect("kept")
            .clone()
    }

    /// After everything was destroyed, and gc has come as if ten minutes later, there is nothing.
    pub(super) fn nothing_is_left(&self) {
        self.let_ten_minutes_pass();
        assert_eq!(self.gc(), Vec::<Value>::new());
        for directory in ["sessions", "names"] {
            let left = files(&self.place.base().join(directory));
            assert!(left.is_empty(), "{left:?}");
        }
        wait_until("the end of every frontend", || {
            self.with_our_time().is_empty()
        });
        if self.place.mode != Mode::Service {
            self.place.run(["helper", "stop"]).expect(0);
        }
        wait_until("the end of what helpers made", || {
            self.place.scopes().is_empty()
        });
    }

    /// Unfinished files and tombstones lie for ten minutes.
    fn let_ten_minutes_pass(&self) {
        for path in files(&self.place.base().join("sessions"))
            .into_iter()
            .chain(files(&self.place.base().join("names")))
        {
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or("")
                .to_owned();
            if name.starts_with(".new-") {
                fs::rename(
                    &path,
                    path.with_file_name(name.replacen(".new-", ".new-old-", 1)),
                )
                .expect("rename");
            } else if name.ends_with(".tomb") {
                let text = fs::read_to_string(&path).expect("read a tombstone");
                let mut tomb: Value = serde_json::from_str(&text).expect("a tombstone");
                tomb["boot_id"] = "00112233445566778899aabbccddeeff".into();
                fs::write(&path, tomb.to_string()).expect("write a tombstone");
            }
        }
    }
}

fn id_of(session: &Value) -> String {
    session["session"].as_str().expect("an id").to_owned()
}

fn is(directory: &Path, file: &str, value: &str) -> bool {
    fs::read_to_string(directory.join(file)).is_ok_and(|text| text.trim() == value)
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Kills a process that may be gone; whether it was there.
pub(super) fn kill(pid: i32) -> bool {
    nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok()
}
