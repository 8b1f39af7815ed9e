//! A panic message that the system call filter lets through.

use std::io::Write;

/// Replaces std's panic hook by one that writes a single line to stderr and then aborts, also in a build that would
/// unwind. The standard one may print a backtrace, for which it asks for the working directory and maps files; the
/// unwinder waits on futexes: calls that the filter ends the process for.
pub fn install_panic_hook() {
    std::panic::set_hook(Box::new(|info| {
        let what = info.payload_as_str().unwrap_or("no message");
        let line = match info.location() {
            Some(at) => format!(
                "cgleaf-helper: panic at {}:{}: {what}\n",
                at.file(),
                at.line()
            ),
            None => format!("cgleaf-helper: panic: {what}\n"),
        };
        // There is nobody left to tell that stderr is gone.
        let _ = std::io::stderr().write_all(line.as_bytes());
        std::process::abort();
    }));
}
