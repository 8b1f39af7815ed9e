//! What run, exec and start have in common on the command line: the plan, the status line, and how a failure is told.

use std::fs::File;
use std::io::Write;
use std::os::fd::{OwnedFd, RawFd};

use serde_json::{Value, json};

use super::super::args::{Launch, TierChoice, gives_stdout_away};
use super::super::context::Context;
use super::super::output::{failure_envelope, timestamp};
use crate::error::{Code, Error, OrCode, Result};
use crate::launch::{Failure, Identity, Plan, Site, TierWanted};
use crate::records::Record;
use crate::sys;

/// A program that is to be started, as the command line says it.
pub(super) struct Launching {
    command: &'static str,
    plan: Plan,
    status: Option<OwnedFd>,
    status_number: Option<RawFd>,
}

impl Launching {
    /// Takes the options.
    ///
    /// # Errors
    /// USAGE: the status descriptor is none.
    pub(super) fn new(command: &'static str, launch: &Launch) -> Result<Self> {
        Ok(Self {
            command,
            plan: Plan {
                identity: Identity {
                    session: launch.session.clone(),
                    name: launch.name.clone(),
                },
                parent: launch.parent.clone(),
                tier: match launch.tier {
                    TierChoice::Auto => TierWanted::Auto,
                    TierChoice::Cgroup => TierWanted::Cgroup,
                    TierChoice::Group => TierWanted::Group,
                },
                words: launch.program.clone(),
            },
            status: launch.status_fd.map(status_descriptor).transpose()?,
            status_number: launch.status_fd,
        })
    }

    /// The plan.
    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// A program's stdout is its own, so that JSON needs a descriptor of its own too.
    ///
    /// # Errors
    /// USAGE.
    pub(super) fn require_status_for_json(&self, context: &Context) -> Result<()> {
        if context.output.is_json() && self.status.is_none() {
            let why = format!(
                "{} --json needs --status-fd: the program's stdout is its own",
                self.command
            );
            return Err(Error::new(Code::Usage, why));
        }
        Ok(())
    }

    /// Calls `what` with where helpers are looked for.
    pub(super) fn with_site<T>(&self, context: &Context, what: impl FnOnce(&Site<'_>) -> T) -> T {
        let notices = |text: &str| context.output.notice(text);
        let trouble = |text: &str| context.output.trouble(text);
        what(&Site {
            base: &context.base,
            socket: context.socket.as_deref(),
            scope_dir: context.scope_dir.as_deref(),
            kept_descriptor: self.status_number,
            notices: &notices,
            trouble: &trouble,
        })
    }

    /// Writes the status line of a session that is enrolled.
    ///
    /// # Errors
    /// USAGE if the descriptor cannot be written.
    pub(super) fn tell_enrolled(&self, record: &Record) -> Result<()> {
        let envelope = json!({
            "ok": true,
            "command": self.command,
            "timestamp": timestamp(),
            "result": session_json(record),
        });
        self.write_status(&envelope)
    }

    /// Says why the program was not started, and gives the exit status.
    pub(super) fn failed(&self, context: &Context, failure: &Failure) -> u8 {
        context
            .output
            .fail(failure.error(), gives_stdout_away(self.command));
        // Whoever was to read it may be gone; stderr has it too.
        let _ = self.write_status(&failure_envelope(self.command, failure.error()));
        failure.status()
    }

    fn write_status(&self, envelope: &Value) -> Result<()> {
        let Some(descriptor) = &self.status else {
            return Ok(());
        };
        let copy = descriptor.try_clone().or_code(Code::Internal)?;
        File::from(copy)
            .write_all(format!("{envelope}\n").as_bytes())
            .or_code(Code::Usage)
            .map_err(|error| error.while_doing("write to the descriptor of --status-fd"))
    }
}

/// A copy of ours; the program gets neither it nor the original. The standard ones are left to the program.
fn status_descriptor(number: i32) -> Result<OwnedFd> {
    let wrong = |error: std::io::Error| {
        Error::new(
            Code::Usage,
            format!("--status-fd {number}: {error}; name an open descriptor"),
        )
    };
    let copy = sys::own_copy(number).map_err(wrong)?;
    if number > 2 {
        sys::set_close_on_exec(number, true).map_err(wrong)?;
    }
    Ok(copy)
}

/// What the status line, and `start`, say of a session.
pub(super) fn session_json(record: &Record) -> Value {
    let leaf = record.attestation.as_ref().map(
        |attestation| json!({"path": attestation.leaf_path.as_str(), "id": attestation.leaf_id}),
    );
    json!({
        "session": record.session.as_str(),
        "name": record.name.as_ref().map(cgleaf_shared::id::SessionName::as_str),
        "tier": record.tier.name(),
        "leader": record.leader.map(|leader| json!({"pid": leader.pid, "start": leader.start})),
        "leaf": leaf,
        "helper": record.helper.as_ref().map(
            |helper| json!({"socket": helper.socket.display().to_string(), "mode": helper.mode}),
        ),
    })
}
