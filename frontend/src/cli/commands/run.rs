//! `cgleaf run`.

use super::super::args::{Leftovers, Run};
use super::super::context::Context;
use super::launching::Launching;
use crate::error::Result;
use crate::launch::{self, RunOptions};

pub(super) fn run(context: &Context, arguments: &Run) -> Result<u8> {
    let launching = Launching::new("run", &arguments.launch)?;
    launching.require_status_for_json(context)?;
    let options = RunOptions {
        leftovers: match arguments.leftovers {
            Leftovers::Kill => launch::Leftovers::Kill,
            Leftovers::Keep => launch::Leftovers::Keep,
            Leftovers::Wait => launch::Leftovers::Wait,
        },
        grace: arguments.grace,
        timeout: arguments.timeout,
        die_with_frontend: arguments.die_with_frontend,
    };
    let ended = launching.with_site(context, |site| {
        launch::run(site, launching.plan(), options, &mut |record| {
            launching.tell_enrolled(record)
        })
    });
    Ok(ended.unwrap_or_else(|failure| launching.failed(context, &failure)))
}
