//! Runs of the code as traces, and what the model's checker (tla/check) says of them: is each a behaviour of the model?

mod adopt;
#[cfg(feature = "trace")]
pub mod group;
pub mod leaf;
#[cfg(feature = "trace")]
pub mod simulated;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Which tier's events of a trace are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The engine's.
    Group,
    /// The helper's and the commands'.
    Cgroup,
}

/// Begins a trace: a file with nothing but its header.
///
/// # Panics
/// Where it cannot be written.
#[must_use]
pub fn begin(dir: &Path, name: &str, kind: Kind) -> PathBuf {
    let file = dir.join(format!("{name}.trace"));
    let kind = match kind {
        Kind::Group => "group",
        Kind::Cgroup => "cgroup",
    };
    let header = serde_json::json!({"cgleaf": "trace", "format": 1, "kind": kind});
    fs::write(&file, format!("{header}\n")).expect("begin a trace");
    file
}

/// The events of one actor in a trace, in their order.
///
/// # Panics
/// Where the trace cannot be read.
#[must_use]
pub fn events(file: &Path, actor: &str) -> Vec<String> {
    let text = fs::read_to_string(file).expect("read a trace");
    text.lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|line| line["actor"] == actor)
        .filter_map(|line| line["event"].as_str().map(str::to_owned))
        .collect()
}

/// Now, as traces tell the time.
fn now() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the clock");
    u64::try_from(Duration::from(now).as_nanos()).expect("a time")
}

/// Kills somebody who writes to a trace by `kill`, which comes back when it is dead, and writes that down; unless it had
/// come to its end, which one of the events of `last` tells.
///
/// # Panics
/// Where the trace cannot be written.
pub fn kill_traced(file: &Path, actor: &str, event: &str, last: &[&str], kill: impl FnOnce()) {
    let from = now();
    kill();
    if events(file, actor)
        .iter()
        .any(|name| last.contains(&name.as_str()))
    {
        return;
    }
    let line = serde_json::json!({"actor": actor, "event": event, "t0": from, "t1": now()});
    let mut file = OpenOptions::new()
        .append(true)
        .open(file)
        .expect("open a trace");
    file.write_all(format!("{line}\n").as_bytes())
        .expect("write a trace");
}

/// What the checker said.
#[derive(Debug)]
pub struct Said {
    /// All of it.
    pub text: String,
    /// How many traces it accepted.
    pub accepted: usize,
    /// How many it refused.
    pub refused: usize,
}

impl Said {
    /// What it said of one trace.
    #[must_use]
    pub fn of(&self, trace: &Path) -> Option<&str> {
        let start = format!("{}: ", trace.display());
        self.text.lines().find_map(|line| line.strip_prefix(&start))
    }
}

/// Is each of these runs a behaviour of the model?
#[must_use]
pub fn judge(traces: &[PathBuf]) -> Said {
    check(traces, &[])
}

/// Is every small lie about each of these runs refused: a line dropped, two swapped, a verdict changed?
#[must_use]
pub fn judge_tampered(traces: &[PathBuf]) -> Said {
    check(traces, &["--tamper"])
}

fn check(traces: &[PathBuf], more: &[&str]) -> Said {
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tla/check"))
        .arg("--trace")
        .args(traces)
        .args(more)
        .stdin(Stdio::null())
        .output()
        .expect("start tla/check");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    let numbers = |word: &str| {
        let line = text.lines().last().unwrap_or_default();
        let words: Vec<&str> = line.split([' ', ',']).collect();
        let at = words.iter().rposition(|other| *other == word)?;
        words[..at]
            .iter()
            .rev()
            .find_map(|word| word.parse::<usize>().ok())
    };
    let (Some(accepted), Some(refused)) = (numbers("accepted"), numbers("refused")) else {
        panic!("tla/check cannot check: {text}{errors}");
    };
    Said {
        accepted,
        refused,
        text,
    }
}
