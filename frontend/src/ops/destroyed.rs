//! How to destroy, what came of it, and how that is told.

use std::time::Duration;

use cgleaf_shared::id::SessionId;
use serde_json::{Value, json};

use super::kill::Leftover;
use super::session::Session;
use super::strays::Stray;
use crate::error::{Code, Error, Result};
use crate::records::{Phase, Tier};

/// What is done about strays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StrayPolicy {
    /// They are named, and the answer is PARTIAL.
    Name,
    /// Those tied to the session by more than a mark are ended.
    Kill,
    /// They are not looked for.
    Ignore,
}

/// How the members are ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillWay {
    /// By `cgroup.kill`, and where there is none as with [`Self::Each`].
    Atomic,
    /// Held, listed and signalled one by one, again until nobody is left: what kernels before 5.14 need.
    Each,
}

/// How to destroy.
#[derive(Debug, Clone, Copy)]
pub struct DestroyOptions {
    /// SIGTERM first, and this long until the kill.
    pub grace: Option<Duration>,
    /// How long the end may take, from the kill on.
    pub timeout: Duration,
    /// That there is nothing to destroy is fine, and its id must not start any more.
    pub if_exists: bool,
    /// What is done about strays.
    pub strays: StrayPolicy,
    /// How the members are ended.
    pub kill: KillWay,
}

impl Default for DestroyOptions {
    fn default() -> Self {
        Self {
            grace: None,
            timeout: Duration::from_secs(10),
            if_exists: false,
            strays: StrayPolicy::Name,
            kill: KillWay::Atomic,
        }
    }
}

/// What a destroy did, which is success: nothing of the session lives.
#[derive(Debug)]
pub struct Destroyed {
    /// The session's id.
    pub session: String,
    /// Whether there was something to destroy.
    pub destroyed: bool,
    /// Whether only a tombstone was laid, for an id that nobody knows.
    pub tombstone: bool,
    /// How it was kept.
    pub tier: Tier,
    /// How many processes were in it when it was ended.
    pub killed: usize,
    /// The strays that were ended.
    pub strays: Vec<Stray>,
    /// Empty cgroups that could not be removed, with the kernel's answer.
    pub leftover: Vec<Leftover>,
    /// What else is worth a word.
    pub notices: Vec<String>,
}

impl Destroyed {
    pub(super) fn nothing(session: &SessionId, tombstone: bool) -> Self {
        Self {
            session: session.to_string(),
            destroyed: false,
            tombstone,
            tier: Tier::Cgroup,
            killed: 0,
            strays: Vec::new(),
            leftover: Vec::new(),
            notices: Vec::new(),
        }
    }

    /// As DESIGN 4.1 names the fields.
    pub fn to_json(&self) -> Value {
        json!({
            "session": self.session,
            "destroyed": self.destroyed,
            "tombstone": self.tombstone,
            "tier": self.tier.name(),
            "killed": self.killed,
            "strays": self.strays.iter().map(Stray::to_json).collect::<Vec<_>>(),
            "leftover": leftover_json(&self.leftover),
            "notices": self.notices,
        })
    }
}

fn leftover_json(leftover: &[Leftover]) -> Vec<Value> {
    let one = |(path, errno): &Leftover| json!({"path": path, "errno": errno});
    leftover.iter().map(one).collect()
}

/// What has been done so far.
#[derive(Default)]
pub(super) struct Progress {
    pub(super) killed: usize,
    pub(super) strays: Vec<Stray>,
    pub(super) leftover: Vec<Leftover>,
    pub(super) notices: Vec<String>,
}

impl Progress {
    /// A program that was executed has looked for the tombstone before, and is in its leaf: it needs none. One that is
    /// being started does.
    pub(super) fn go_on_without_tombstone(
        &mut self,
        session: &Session,
        error: Error,
    ) -> Result<()> {
        let past = session
            .record()
            .is_some_and(|record| record.phase >= Phase::Running);
        if !past && session.found.is_some() {
            return Err(error.while_doing("lay the tombstone that keeps it from being started"));
        }
        self.notices
            .push(format!("no tombstone could be laid: {}", error.message()));
        Ok(())
    }

    /// Worth a word, once.
    pub(super) fn note(&mut self, notice: String) {
        if !self.notices.contains(&notice) {
            self.notices.push(notice);
        }
    }

    pub(super) fn some_stray_lives(&self) -> bool {
        self.strays.iter().any(|stray| !stray.killed)
    }
}

pub(super) fn strays_json(strays: &[Stray]) -> Vec<Value> {
    strays.iter().map(Stray::to_json).collect()
}

pub(super) fn strays_left(session: &Session, progress: &Progress) -> Error {
    let id = &session.id;
    let living: Vec<&Stray> = progress
        .strays
        .iter()
        .filter(|stray| !stray.killed)
        .collect();
    let named: Vec<String> = living.iter().map(|stray| stray.sentence()).collect();
    let advice = if living.iter().any(|stray| stray.tie.may_kill()) {
        format!("`cgleaf destroy {id} --strays kill` ends those that a member started")
    } else {
        format!("`cgleaf destroy {id} --strays ignore` calls it destroyed")
    };
    Error::new(
        Code::Partial,
        format!(
            "{}, but what left it lives on: {}; {advice}",
            match session.tier() {
                Tier::Cgroup =>
                    format!("the leaf of session {id} is empty and everything in it has ended"),
                Tier::Group => format!("the process group of session {id} has ended"),
            },
            named.join("; ")
        ),
    )
    .with("session", id.as_str())
    .with("destroyed", false)
    .with("tier", session.tier().name())
    .with("killed", progress.killed)
    .with("strays", strays_json(&progress.strays))
    .with("leftover", leftover_json(&progress.leftover))
}
