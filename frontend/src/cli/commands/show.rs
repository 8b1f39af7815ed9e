//! `cgleaf show`.

use std::io::Write;

use super::super::args::One;
use super::super::context::Context;
use super::super::descriptors;
use super::super::output::{one_line, wall_clock};
use super::view::View;
use crate::error::Result;
use crate::records::{Exit, Tier};

/// Shows one session.
pub(super) fn run(context: &Context, arguments: &One) -> Result<u8> {
    let reach = context.reach();
    let session = reach.resolve(&arguments.session)?;
    let view = View::of(&reach, session);
    if let Some(error) = descriptors::wanting([&view]) {
        return Err(error);
    }
    context
        .output
        .answer(&view.to_json(), |out| text(&view, out))?;
    Ok(0)
}

fn text(view: &View, out: &mut dyn Write) -> std::io::Result<()> {
    let session = &view.session;
    let mut line = |name: &str, value: &str| writeln!(out, "{name:<9}{}", one_line(value));
    line("session", session.id.as_str())?;
    if let Some(name) = session.name() {
        line("name", name.as_str())?;
    }
    line("tier", session.told_tier().map_or("unknown", Tier::name))?;
    line("state", view.look.state.name())?;
    if let Some(remark) = &view.look.remark {
        line("remark", remark)?;
    }
    if let Some(leader) = view.leader {
        let how = match (leader.alive, leader.stopped) {
            (Some(true), true) => "stopped",
            (Some(true), false) => "alive",
            (Some(false), _) => "ended",
            (None, _) => "not to be told",
        };
        let argv = view.argv().join(" ");
        line(
            "leader",
            format!("{} ({how}) {argv}", leader.process.pid).trim_end(),
        )?;
    }
    match session.record().and_then(|record| record.exit) {
        Some(Exit::Code(code)) => line("exit", &format!("status {code}"))?,
        Some(Exit::Signal(signal)) => line("exit", &format!("signal {signal}"))?,
        None => {}
    }
    if let Some(members) = view.members {
        line("members", &members.to_string())?;
    }
    if let Some(attestation) = session.attestation() {
        line("leaf", attestation.leaf_path.as_str())?;
    }
    if let Some(socket) = session.socket() {
        line("helper", &socket.display().to_string())?;
    }
    if let Some(created) = session.created().and_then(wall_clock) {
        line("created", &created)?;
    }
    if let Some(log) = session.record().and_then(|record| record.log.as_ref()) {
        line("log", &log.display().to_string())?;
    }
    Ok(())
}
