//! `cgleaf ps`.

use serde_json::json;

use super::super::args::One;
use super::super::context::Context;
use super::super::table::Table;
use crate::error::Result;
use crate::ops::{MemberInfo, Processes, processes};

/// Lists a session's processes.
pub(super) fn run(context: &Context, arguments: &One) -> Result<u8> {
    let reach = context.reach();
    let session = reach.resolve(&arguments.session)?;
    let found = processes(&reach, &session)?;
    if let Some(why) = &found.why_incomplete {
        context
            .output
            .notice(&format!("the list may be incomplete: {why}"));
    }
    if found.hidden > 0 {
        context.output.notice(&format!(
            "{} more that this pid namespace cannot see",
            found.hidden
        ));
    }
    let result = json!({
        "session": session.id,
        "complete": found.complete,
        "hidden": found.hidden,
        "members": found.members.iter().map(MemberInfo::to_json).collect::<Vec<_>>(),
    });
    context
        .output
        .answer(&result, |out| table(&found).write(out))?;
    Ok(0)
}

fn table(found: &Processes) -> Table {
    let mut table = Table::new(&["PID", "PPID", "STATE", "CGROUP", "COMMAND"]);
    for member in &found.members {
        let parent = member.parent.map_or("0".to_owned(), |pid| pid.to_string());
        let state = member.state.map_or("-".to_owned(), String::from);
        let cgroup = if member.cgroup.is_empty() {
            "."
        } else {
            &member.cgroup
        };
        table.row(&[
            &member.pid.to_string(),
            &parent,
            &state,
            cgroup,
            &member.command_line(),
        ]);
    }
    table
}
