//! `cgleaf signal`.

use serde_json::json;

use super::super::args::Signal;
use super::super::context::Context;
use crate::error::Result;
use crate::ops;
use crate::records::Tier;

/// Sends a signal to every process of a session.
pub(super) fn run(context: &Context, arguments: &Signal) -> Result<u8> {
    let reach = context.reach();
    let session = reach.resolve(&arguments.session)?;
    let done = ops::signal(&reach, &session, arguments.signal)?;
    let result = json!({
        "session": session.id, "signal": arguments.signal, "sent": done.sent,
        // In the cgroup tier whoever was missed makes it no success; without a leaf nobody can tell.
        "complete": session.tier() == Tier::Cgroup,
    });
    context.output.answer(&result, |_| Ok(()))?;
    Ok(0)
}
