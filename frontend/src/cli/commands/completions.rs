//! `cgleaf completions`.

use std::io::Write;

use super::super::args::Completions;
use super::super::completions;
use super::super::context::Context;
use crate::error::Result;

/// Prints the completions for a shell.
pub(super) fn run(context: &Context, arguments: &Completions) -> Result<u8> {
    let script = completions::script(arguments.shell);
    let result = serde_json::json!({
        "shell": arguments.shell.to_string(),
        "script": script,
    });
    context.output.answer(&result, |out: &mut dyn Write| {
        out.write_all(script.as_bytes())
    })?;
    Ok(0)
}
