//! `cgleaf freeze` and `cgleaf thaw`.

use std::time::Duration;

use serde_json::json;

use super::super::args::{Freeze, One};
use super::super::context::Context;
use super::super::progress;
use crate::error::Result;
use crate::ops::{self, Reach, Session};

/// Freezes a session, for good or for a time.
pub(super) fn freeze(context: &Context, arguments: &Freeze) -> Result<u8> {
    let reach = context.reach();
    let session = reach.resolve(&arguments.session)?;
    match arguments.time {
        Some(time) => hold(context, &reach, &session, time)?,
        None => {
            let what = format!("freezing {}", session.id);
            let done = progress::during(context.output, &what, || ops::freeze(&reach, &session))?;
            let result = json!({
                "session": session.id, "frozen": true, "was_frozen": done.was_frozen,
            });
            context.output.answer(&result, |_| Ok(()))?;
        }
    }
    Ok(0)
}

fn hold(context: &Context, reach: &Reach, session: &Session, time: Duration) -> Result<()> {
    let what = format!("holding {} frozen", session.id);
    progress::during(context.output, &what, || {
        ops::hold_for(reach, session, time)
    })?;
    let result = json!({"session": session.id, "frozen": false, "held_for": time.as_secs_f64()});
    context.output.answer(&result, |_| Ok(()))
}

/// Thaws a session.
pub(super) fn thaw(context: &Context, arguments: &One) -> Result<u8> {
    let reach = context.reach();
    let session = reach.resolve(&arguments.session)?;
    let done = ops::thaw(&reach, &session)?;
    if !done.frozen_beneath.is_empty() {
        context.output.notice(&format!(
            "the program froze cgroups of its own, which stay frozen: {}",
            done.frozen_beneath.join(", ")
        ));
    }
    let result = json!({
        "session": session.id, "frozen": false, "was_frozen": done.was_frozen,
        "frozen_beneath": done.frozen_beneath,
    });
    context.output.answer(&result, |_| Ok(()))?;
    Ok(0)
}
