//! `cgleaf logs`: what a started program has written.

use std::fs::File;
use std::io::{Read, Write};
use std::time::Duration;

use super::super::args::Logs;
use super::super::context::Context;
use crate::error::{Code, Error, OrCode, Result};
use crate::ops::{Reach, WaitOutcome, wait};

/// How long it waits for the session's end between two looks at the log.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

pub(super) fn run(context: &Context, arguments: &Logs) -> Result<u8> {
    if context.output.is_json() {
        let why = "logs prints what the program wrote, which is no JSON";
        return Err(Error::new(Code::Usage, why));
    }
    let reach = context.reach();
    let session = reach.resolve(&arguments.session)?;
    let Some(path) = session.record().and_then(|record| record.log.clone()) else {
        return Err(Error::new(
            Code::SessionNotFound,
            format!(
                "session {} has no log: `cgleaf start` keeps one, and the output of run and exec is the caller's",
                session.id
            ),
        )
        .with("session", session.id.as_str()));
    };
    let mut log = File::open(&path)
        .or_code(Code::Storage)
        .map_err(|error| error.while_doing(format_args!("open {}", path.display())))?;
    loop {
        // In this order: what is written before the end is read after it was seen.
        let over = !arguments.follow || is_over(&reach, &session)?;
        if !copy(&mut log)? || over {
            return Ok(0);
        }
    }
}

fn is_over(reach: &Reach, session: &crate::ops::Session) -> Result<bool> {
    Ok(matches!(
        wait(reach, session, Some(LOOK_AGAIN))?,
        WaitOutcome::Ended(_)
    ))
}

/// Copies what is there; `false` where nobody reads it any more.
fn copy(log: &mut File) -> Result<bool> {
    let mut stdout = std::io::stdout().lock();
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let count = log
            .read(&mut chunk)
            .or_code(Code::Storage)
            .map_err(|error| error.while_doing("read the log"))?;
        if count == 0 {
            break;
        }
        match stdout.write_all(&chunk[..count]) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(false),
            other => other.or_code(Code::Internal)?,
        }
    }
    match stdout.flush() {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        other => other.or_code(Code::Internal).map(|()| true),
    }
}
