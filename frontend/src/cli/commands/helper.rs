//! `cgleaf helper`.

use std::ffi::OsString;
use std::process::ExitCode;

use cgleaf_shared::wire::{Reply, Request};
use serde_json::{Value, json};

use super::super::args::HelperAction;
use super::super::context::Context;
use super::super::table::Table;
use crate::client::{Client, Looked, Unreachable, serving_pid};
use crate::error::{Code, Error, Result};

/// Is the helper, where none is installed.
pub(in crate::cli) fn serve(arguments: &[OsString]) -> ExitCode {
    cgleaf_helper::run(arguments.iter().cloned())
}

/// Shows or ends the helpers.
pub(super) fn run(context: &Context, action: &HelperAction) -> Result<u8> {
    match action {
        HelperAction::Serve { .. } => Ok(0),
        HelperAction::Status => status(context),
        HelperAction::Stop => stop(context),
    }
}

/// What one helper says of itself, as `helper status` and `doctor` tell it.
pub(super) fn describe(client: &mut Client) -> Value {
    let status = match client.call(&Request::Status) {
        Ok(Reply::Status(status)) => Some(status),
        _ => None,
    };
    let welcome = client.welcome();
    json!({
        "pid": status.as_ref().map(|status| status.pid),
        "mode": client.mode(),
        "socket": client.path(),
        "version": welcome.map(|welcome| welcome.build.clone()),
        "protocol": welcome.map(|welcome| welcome.protocol),
        "enforced": welcome.map(|welcome| {
            welcome
                .enforced
                .iter()
                .map(|one| json!({"part": one.part, "enforced": one.enforced, "detail": one.detail}))
                .collect::<Vec<_>>()
        }),
        "sessions": status.as_ref().map(|status| status.sessions),
        "clients": status.as_ref().map(|status| status.clients),
        "scope": status.as_ref().map(|status| status.scope_paths.clone()),
        "uid": status.as_ref().map(|status| status.uid),
    })
}

pub(super) fn looked_json(looked: &[Looked]) -> Vec<Value> {
    looked
        .iter()
        .map(|one| {
            let socket = one.socket.display().to_string();
            json!({"socket": socket, "named_by": one.named_by, "why_not": one.why_not})
        })
        .collect()
}

fn status(context: &Context) -> Result<u8> {
    let (mut clients, looked) = context.reach().helpers();
    let helpers: Vec<Value> = clients.iter_mut().map(describe).collect();
    if helpers.is_empty() {
        let tried: Vec<&str> = looked.iter().map(|one| one.why_not.as_str()).collect();
        return Err(Error::new(
            Code::HelperUnreachable,
            format!(
                "no helper runs ({}); the next `cgleaf run` starts one",
                tried.join("; ")
            ),
        )
        .with("looked", looked_json(&looked)));
    }
    let result = json!({"helpers": helpers, "looked": looked_json(&looked)});
    context.output.answer(&result, |out| {
        let mut table = Table::new(&["PID", "MODE", "VERSION", "SESSIONS", "SOCKET"]);
        for helper in &helpers {
            let cell = |name: &str| match &helper[name] {
                Value::String(text) => text.clone(),
                Value::Null => "?".to_owned(),
                other => other.to_string(),
            };
            let cells = ["pid", "mode", "version", "sessions", "socket"].map(cell);
            table.row(&cells.each_ref().map(String::as_str));
        }
        table.write(out)
    })?;
    Ok(0)
}

/// A helper that listens and does not do what it is asked: who it is says the kernel.
fn not_asked(looked: &Looked) -> Error {
    let next = serving_pid(&looked.socket).map_or(String::new(), |pid| {
        format!("; it is pid {pid}: SIGTERM ends it, and its sessions go on")
    });
    Error::new(
        Code::HelperUnreachable,
        format!("not stopped: {}{next}", looked.why_not),
    )
}

/// Ends each helper that has no session, and one that has lost its socket. That none runs is fine.
fn stop(context: &Context) -> Result<u8> {
    let reach = context.reach();
    let (clients, looked) = reach.helpers();
    let mut stopped = Vec::new();
    let mut refused = None;
    for mut client in clients {
        match client.call(&Request::Stop) {
            Ok(Reply::Stopping) => stopped.push(client.path().display().to_string()),
            Ok(_) => {}
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    // The system's and the containers' helpers are not this user's to end.
    let root = reach.base().root();
    let ours = looked.iter().filter(|one| one.socket.starts_with(root));
    let trouble = ours.filter(|one| one.is_trouble());
    for one in trouble {
        refused = refused.or_else(|| Some(not_asked(one)));
    }
    // One that was just stopped has no socket any more either.
    for lost in looked
        .iter()
        .filter(|one| !one.why_not.is_empty())
        .filter_map(|one| Unreachable::find(&one.socket))
    {
        match lost.end() {
            Ok(()) => stopped.push(lost.socket().display().to_string()),
            Err(why) => refused = refused.or(Some(Error::new(Code::HelperUnreachable, why))),
        }
    }
    match refused {
        Some(error) => Err(error),
        None => {
            context
                .output
                .answer(&json!({"stopped": stopped}), |_| Ok(()))?;
            Ok(0)
        }
    }
}
