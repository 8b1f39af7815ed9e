//! `cgleaf start`.

use super::super::args::Start;
use super::super::context::Context;
use super::launching::{Launching, session_json};
use crate::error::Result;
use crate::launch;

pub(super) fn run(context: &Context, arguments: &Start) -> Result<u8> {
    let launching = Launching::new("start", &arguments.launch)?;
    let started = launching.with_site(context, |site| {
        launch::start(site, launching.plan(), arguments.log.as_deref())
    });
    let record = match started {
        Ok(record) => record,
        Err(failure) => return Ok(launching.failed(context, &failure)),
    };
    // The program runs: what cannot be told any more is no reason to say that it does not.
    let told = launching.tell_enrolled(&record);
    let survives = launch::survives_logout(&record);
    let mut result = session_json(&record);
    result["survives_logout"] = survives.into();
    result["log"] = record
        .log
        .as_ref()
        .map(|path| path.display().to_string())
        .into();
    let answered = context
        .output
        .answer(&result, |out| writeln!(out, "{}", record.session));
    let mut status = 0;
    for error in [told.err(), answered.err()].into_iter().flatten() {
        status = error.code().exit_status();
        context.output.trouble(&format!(
            "session {} was started and runs; {}",
            record.session,
            error.message()
        ));
    }
    if let Some(told) = launch::ends_with_it(&record) {
        context.output.notice(&told);
    }
    Ok(status)
}
