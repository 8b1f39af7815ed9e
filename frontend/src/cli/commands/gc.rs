//! `cgleaf gc`.

use std::io::Write;

use serde_json::json;

use super::super::args;
use super::super::context::Context;
use super::super::output::one_line;
use crate::error::Result;
use crate::ops::{self, Gc};

/// Takes away what is proven over.
pub(super) fn run(context: &Context, arguments: &args::Gc) -> Result<u8> {
    let done = ops::gc(&context.reach(), arguments.dry_run)?;
    for trouble in &done.trouble {
        context.output.notice(trouble);
    }
    let kept: Vec<_> = done
        .kept
        .iter()
        .map(|kept| json!({"session": kept.session, "reason": kept.reason}))
        .collect();
    let result = json!({
        "dry_run": arguments.dry_run,
        "removed": done.removed,
        "kept": kept,
        "logs": done.logs,
        "names": done.names,
        "tombstones": done.tombstones,
        "temporary_files": done.temporaries,
        "trouble": done.trouble,
    });
    context
        .output
        .answer(&result, |out| match context.output.is_quiet() {
            true => Ok(()),
            false => text(&done, arguments.dry_run, out),
        })?;
    Ok(0)
}

fn text(done: &Gc, dry_run: bool, out: &mut dyn Write) -> std::io::Result<()> {
    let verb = if dry_run { "would remove" } else { "removed" };
    for session in &done.removed {
        writeln!(out, "{verb} {session}")?;
    }
    for kept in &done.kept {
        writeln!(out, "kept {}: {}", kept.session, one_line(&kept.reason))?;
    }
    for name in &done.names {
        writeln!(out, "{verb} the name {name}, which nobody has")?;
    }
    for session in &done.logs {
        writeln!(
            out,
            "{verb} the log of {session}, of which there is no record"
        )?;
    }
    for tombstone in &done.tombstones {
        writeln!(out, "{verb} the tombstone of {tombstone}")?;
    }
    if done.temporaries > 0 {
        writeln!(out, "{verb} {} unfinished files", done.temporaries)?;
    }
    Ok(())
}
