//! `cgleaf exec`.

use super::super::args::Exec;
use super::super::context::Context;
use super::launching::Launching;
use crate::error::Result;
use crate::launch;

pub(super) fn run(context: &Context, arguments: &Exec) -> Result<u8> {
    let launching = Launching::new("exec", &arguments.launch)?;
    launching.require_status_for_json(context)?;
    let failure = launching.with_site(context, |site| {
        launch::exec(site, launching.plan(), &mut |record| {
            launching.tell_enrolled(record)
        })
    });
    Ok(launching.failed(context, &failure))
}
