//! The command line's entry.

use std::process::ExitCode;

fn main() -> ExitCode {
    cgleaf::cli::main(std::env::args_os())
}
