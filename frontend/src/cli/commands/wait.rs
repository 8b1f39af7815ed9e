//! `cgleaf wait`.

use serde_json::json;

use super::super::args::Wait;
use super::super::context::Context;
use super::super::progress;
use crate::client::{Deadline, Patience};
use crate::error::{Code, Error, Result};
use crate::ops::{WaitOutcome, wait};

/// Waits for a session's end; the exit status is the program's where it is known, else 0.
pub(super) fn run(context: &Context, arguments: &Wait) -> Result<u8> {
    let deadline = arguments.timeout.map(Deadline::after);
    let _patience = deadline.map(Patience::until);
    let reach = context.reach();
    let session = reach.resolve(&arguments.session)?;
    let what = format!("waiting for the end of {}", session.id);
    let outcome = progress::during(context.output, &what, || {
        let left = deadline.map(|one| one.left().unwrap_or_default());
        wait(&reach, &session, left)
    })?;
    let exit = match outcome {
        WaitOutcome::Ended(exit) => exit,
        WaitOutcome::TimedOut => {
            let id = &session.id;
            return Err(Error::new(
                Code::WaitTimeout,
                format!("session {id} has not ended within the time; it goes on"),
            )
            .with("session", id.as_str()));
        }
    };
    let result = json!({"session": session.id, "state": "ended", "exit": exit});
    if exit.is_none() {
        context.output.notice(&format!(
            "session {} has ended; how its program ended is not known: nobody waited for it, as after exec",
            session.id
        ));
    }
    context.output.answer(&result, |_| Ok(()))?;
    Ok(exit.map_or(0, crate::records::Exit::status))
}
