//! `cgleaf adopt`.

use cgleaf_shared::process::Pid;
use serde_json::json;

use super::super::args::Adopt;
use super::super::context::Context;
use crate::error::{Code, Error, Result};
use crate::launch::{self, Adoption, Identity, Site};

/// Takes a running process and what it started into a session; prints its id.
pub(super) fn run(context: &Context, arguments: &Adopt) -> Result<u8> {
    let notice = |text: &str| context.output.notice(text);
    let site = Site {
        base: &context.base,
        socket: context.socket.as_deref(),
        scope_dir: context.scope_dir.as_deref(),
        kept_descriptor: None,
        notices: &notice,
        trouble: &|text| context.output.trouble(text),
    };
    let pid = Pid::new(arguments.pid)
        .filter(|pid| pid.may_be_signalled())
        .ok_or_else(|| Error::new(Code::Usage, format!("{} is no process", arguments.pid)))?;
    let identity = Identity {
        session: None,
        name: Some(arguments.name.clone()),
    };
    let adoption = launch::adopt(&site, &identity, pid)?;
    answer(context, &adoption)
}

fn answer(context: &Context, adoption: &Adoption) -> Result<u8> {
    let Adoption { record, adopted } = adoption;
    let id = &record.session;
    if !adopted.unproven.is_empty() {
        return Err(Error::new(
            Code::Partial,
            format!(
                "session {id} has {} processes of it, and one may be outside: {}",
                adopted.moved.len(),
                adopted.unproven.join("; ")
            ),
        )
        .with("session", id.as_str())
        .with("moved", json!(adopted.moved))
        .with("unproven", json!(adopted.unproven)));
    }
    if !adopted.by_group {
        context.output.notice(
            "the process led neither its process group nor its POSIX session: what it started earlier and what then lost \
             its parent cannot be told from others' and is not in the session",
        );
    }
    let result = json!({
        "session": id,
        "name": record.name,
        "tier": record.tier.name(),
        "moved": adopted.moved,
        "complete": adopted.by_group,
    });
    context
        .output
        .answer(&result, |out| writeln!(out, "{id}"))?;
    Ok(0)
}
