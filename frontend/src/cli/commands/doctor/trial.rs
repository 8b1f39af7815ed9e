//! A program run as anybody would run one, to see which tier `run` uses here: nothing but `run` itself can tell.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use cgleaf_shared::id::SessionId;
use nix::fcntl::OFlag;
use nix::libc;
use nix::unistd::pipe2;
use serde_json::Value;

use super::super::super::context::Context;
use super::guard::KILLED;
use crate::error::{Code, Error, OrCode, Result};
use crate::records::{Store, Tier};
use crate::sys;

/// The trial's program only says its version; this bounds a machine on which even that hangs.
const LIMIT: &str = "--timeout=30s";

/// Which tier `run` uses, or why it starts nothing.
pub(super) fn run(context: &Context) -> Result<Tier> {
    let session = SessionId::generate()?;
    let status = status_line(context, &session);
    // It is over, and nobody asked for it. A record that is not there was never written, or a helper keeps the session.
    if let Ok(store) = Store::open(&context.base) {
        let _ = store.forget(&session);
    }
    read(&status?)
}

fn status_line(context: &Context, session: &SessionId) -> Result<String> {
    let (ours, theirs) = pipe2(OFlag::O_CLOEXEC).or_code(Code::Internal)?;
    let mut command = command(context, session, &theirs)?;
    let mut child = command
        .spawn()
        .or_code(Code::Internal)
        .map_err(|error| error.while_doing("execute this program again"))?;
    drop(theirs);
    let mut line = String::new();
    let read = BufReader::new(File::from(ours)).read_line(&mut line);
    let end = child.wait().or_code(Code::Internal)?;
    read.or_code(Code::Internal)?;
    if end.signal() == Some(libc::SIGSYS) {
        return Err(Error::new(
            Code::Unsupported,
            format!("`cgleaf run` is {KILLED}"),
        ));
    }
    Ok(line)
}

fn command(context: &Context, session: &SessionId, status: &OwnedFd) -> Result<Command> {
    let program = std::env::current_exe().or_code(Code::Internal)?;
    let number = status.as_raw_fd();
    // The child makes it close-on-exec again (--status-fd).
    sys::set_close_on_exec(number, false).or_code(Code::Internal)?;
    let mut command = Command::new(&program);
    command.args(["run", "--quiet", LIMIT, "--session", session.as_str()]);
    command.args(["--status-fd", &number.to_string()]);
    if let Some(socket) = &context.socket {
        command.arg("--socket").arg(socket);
    }
    if let Some(directory) = &context.scope_dir {
        command.arg("--scope-dir").arg(directory);
    }
    command.arg("--").arg(&program).arg("--version");
    // What it would say on stderr is in the status line.
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ok(command)
}

/// The tier of a status line, or the error in it.
fn read(line: &str) -> Result<Tier> {
    let status: Value = serde_json::from_str(line).map_err(|_| {
        Error::new(
            Code::Internal,
            "`cgleaf run` ended without saying how it went",
        )
    })?;
    match status["result"]["tier"].as_str() {
        Some(name) if name == Tier::Cgroup.name() => Ok(Tier::Cgroup),
        Some(_) => Ok(Tier::Group),
        None => {
            let message = status["error"]["message"].as_str();
            let code = status["error"]["code"].as_str().and_then(Code::from_name);
            Err(Error::new(
                code.unwrap_or(Code::Internal),
                message.unwrap_or("`cgleaf run` failed without a reason"),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_line_has_the_tier_or_the_reason() {
        assert_eq!(
            read(r#"{"ok":true,"result":{"tier":"cgroup"}}"#).unwrap(),
            Tier::Cgroup
        );
        assert_eq!(
            read(r#"{"ok":true,"result":{"tier":"group"}}"#).unwrap(),
            Tier::Group
        );
        let refused =
            read(r#"{"ok":false,"error":{"code":"STORAGE","message":"no room"}}"#).unwrap_err();
        assert_eq!(
            (refused.code(), refused.message()),
            (Code::Storage, "no room")
        );
        assert_eq!(read("").unwrap_err().code(), Code::Internal);
    }
}
