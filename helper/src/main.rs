//! The helper's program: everything is in the library, so that `cgleaf helper serve` is the same helper.

fn main() -> std::process::ExitCode {
    cgleaf_helper::run(std::env::args_os().skip(1))
}
