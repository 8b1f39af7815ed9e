//! `cgleaf completions`.

use std::io::Write;

use super::super::args::{self, Completions};
use super::super::context::Context;
use crate::error::Result;

/// Prints the completions for a shell.
pub(super) fn run(context: &Context, arguments: &Completions) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut args::command(), "cgleaf", &mut script);
    let result = serde_json::json!({
        "shell": arguments.shell.to_string(),
        "script": String::from_utf8_lossy(&script),
    });
    context
        .output
        .answer(&result, |out: &mut dyn Write| out.write_all(&script))?;
    Ok(0)
}
