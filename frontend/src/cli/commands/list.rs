//! `cgleaf list`.

use serde_json::json;

use super::super::args::List;
use super::super::context::Context;
use super::super::descriptors;
use super::super::table::Table;
use super::view::View;
use crate::error::Result;

/// Lists the sessions; with `--all` those too that are over.
pub(super) fn run(context: &Context, arguments: &List) -> Result<u8> {
    let reach = context.reach();
    let everything = reach.everything();
    let trouble: Vec<String> = everything
        .trouble
        .iter()
        .map(|error| error.message().to_owned())
        .collect();
    let unknown = everything.unknown().cloned();
    let mut views = View::of_all(&reach, everything.sessions);
    let unknown = unknown.or_else(|| descriptors::wanting(&views));
    views.retain(|view| arguments.all || !view.look.state.is_over());
    for trouble in &trouble {
        context.output.notice(trouble);
    }
    for view in &views {
        if let Some(why) = view.session.set_aside() {
            let id = &view.session.id;
            context
                .output
                .notice(&format!("the record of {id} is set aside: {why}"));
        }
    }
    let result = json!({
        "sessions": views.iter().map(View::to_json).collect::<Vec<_>>(),
        "trouble": trouble,
    });
    let unknown = unknown.map(|error| {
        let error = error.with("sessions", result["sessions"].clone());
        error.with("trouble", result["trouble"].clone())
    });
    match unknown {
        Some(error) if context.output.is_json() => return Err(error),
        _ => {}
    }
    context.output.answer(&result, |out| {
        if views.is_empty() {
            return Ok(());
        }
        table(&views).write(out)
    })?;
    unknown.map_or(Ok(0), Err)
}

fn table(views: &[View]) -> Table {
    let mut table = Table::new(&["SESSION", "NAME", "STATE", "MEMBERS", "AGE", "PROGRAM"]);
    table.paint_states(2);
    for view in views {
        let members = view
            .members
            .map_or("?".to_owned(), |count| count.to_string());
        table.row(&[
            view.session.id.as_str(),
            view.session.name().map_or("-", |name| name.as_str()),
            view.look.state.name(),
            &members,
            &view.age(),
            &view.argv().join(" "),
        ]);
    }
    table
}
