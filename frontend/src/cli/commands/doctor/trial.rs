//! A program run as anybody would run one, to see which tier `run` uses here: nothing but `run` itself can tell.

mod in_its_place;

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use cgleaf_shared::process::Pid;
use nix::fcntl::OFlag;
use nix::libc;
use nix::unistd::pipe2;
use serde_json::Value;

use super::super::super::context::Context;
use super::cause::Cause;
use super::guard::KILLED;
use super::spawn;
use crate::error::{Code, Error, OrCode, Result};
use crate::launch::TierWanted;
use crate::records::{Found, Phase, Store, Tier};
use crate::sys::{self, Change};

/// The trial's program only says its version; this bounds a machine on which even that hangs.
const LIMIT: &str = "--timeout=30s";

/// Which tier `run` uses, or why it starts nothing. `socket`: the only helper to ask; `is_served`: whether a helper answered, with a
/// leaf or with a refusal.
pub(super) fn run(context: &Context, socket: Option<&Path>, is_served: bool) -> Result<Tier> {
    match apart(context, socket) {
        // doctor itself was one process too many: `run` would stand in its place.
        Err(error)
            if Cause::of_nothing_started(&error) == Some(Cause::Processes)
                && in_its_place::is_possible() =>
        {
            let wanted = if is_served {
                TierWanted::Auto
            } else {
                TierWanted::Group
            };
            in_its_place::run(context, socket, wanted)
        }
        other => other,
    }
}

/// By a process of its own, as anybody would run it: a filter may kill that one.
fn apart(context: &Context, socket: Option<&Path>) -> Result<Tier> {
    let (ours, theirs) = pipe2(OFlag::O_CLOEXEC)
        .or_code(Code::Internal)
        .map_err(|error| error.while_doing("make a pipe for the trial's status"))?;
    let words = words(context, socket, &theirs)?;
    let child = spawn::start(words, spawn::own_environment(), None)
        .map_err(|error| error.while_doing("execute this program again"))?;
    drop(theirs);
    let mut line = String::new();
    let read = BufReader::new(File::from(ours)).read_line(&mut line);
    let end = spawn::end_of(child);
    // It is over, and nobody asked for it. A record that is not there was never written, or a helper keeps the session.
    if let Ok(store) = Store::open(&context.base) {
        forget(&store, &line, child);
    }
    read.or_code(Code::Internal)
        .map_err(|error| error.while_doing("read the trial's status"))?;
    if end == Some(Change::Signalled(libc::SIGSYS)) {
        return Err(Error::new(
            Code::Unsupported,
            format!("`cgleaf run` is {KILLED}"),
        ));
    }
    tier(&line)
}

/// Forgets the session of a status line, or what that process, which has ended, claimed without one. It was given no id: who chooses
/// one asks for more of a place than `run` by itself does.
fn forget(store: &Store, line: &str, maker: Pid) {
    let told = serde_json::from_str::<Value>(line).unwrap_or_default();
    let session = told["result"]["session"].as_str();
    if let Some(session) = session.and_then(|session| session.parse().ok()) {
        let _ = store.forget(&session);
        return;
    }
    for session in store.sessions().unwrap_or_default() {
        if let Ok(Some(Found::Record(record))) = store.read(&session)
            && record.phase == Phase::Intent
            && record.maker.pid == maker
            && !record.maker.may_live()
        {
            let _ = store.forget(&session);
        }
    }
}

fn words(context: &Context, socket: Option<&Path>, status: &OwnedFd) -> Result<Vec<OsString>> {
    let program = std::env::current_exe()
        .or_code(Code::Internal)
        .map_err(|error| error.while_doing("find this program's own file"))?;
    let number = status.as_raw_fd();
    // The child makes it close-on-exec again (--status-fd).
    sys::set_close_on_exec(number, false)
        .or_code(Code::Internal)
        .map_err(|error| error.while_doing("hand a descriptor to the trial by fcntl(2)"))?;
    let mut words: Vec<OsString> = vec![program.clone().into()];
    words.extend(["run", "--quiet", LIMIT, "--status-fd"].map(OsString::from));
    words.push(number.to_string().into());
    let mut option = |name: &str, value: Option<&Path>| {
        words.extend(value.iter().flat_map(|value| [name.into(), value.into()]));
    };
    option("--socket", socket);
    option("--scope-dir", context.scope_dir.as_deref());
    // What it would say on stderr is in the status line.
    words.extend(["--".into(), program.into(), "--version".into()]);
    Ok(words)
}

/// The tier of a status line, or the error in it.
fn tier(line: &str) -> Result<Tier> {
    let status: Value = serde_json::from_str(line).map_err(|_| {
        Error::new(
            Code::Internal,
            "`cgleaf run` ended without saying how it went",
        )
    })?;
    match status["result"]["tier"].as_str() {
        Some(name) if name == Tier::Cgroup.name() => Ok(Tier::Cgroup),
        Some(_) => Ok(Tier::Group),
        None => Err(told(&status["error"])),
    }
}

/// The error of a status line, with what a program can tell it by.
fn told(error: &Value) -> Error {
    let message = error["message"].as_str();
    let code = error["code"].as_str().and_then(Code::from_name);
    let details = error["details"].as_object().cloned().unwrap_or_default();
    let told = Error::new(
        code.unwrap_or(Code::Internal),
        message.unwrap_or("`cgleaf run` failed without a reason"),
    );
    details
        .into_iter()
        .fold(told, |told, (key, value)| told.with(&key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_line_has_the_tier_or_the_reason() {
        assert_eq!(
            tier(r#"{"ok":true,"result":{"tier":"cgroup"}}"#).unwrap(),
            Tier::Cgroup
        );
        assert_eq!(
            tier(r#"{"ok":true,"result":{"tier":"group"}}"#).unwrap(),
            Tier::Group
        );
        let refused = tier(
            r#"{"ok":false,"error":{"code":"STORAGE","message":"no room","details":{"errno":11}}}"#,
        )
        .unwrap_err();
        assert_eq!(
            (refused.code(), refused.message()),
            (Code::Storage, "no room")
        );
        assert_eq!(refused.details()["errno"], 11);
        assert_eq!(tier("").unwrap_err().code(), Code::Internal);
    }
}
