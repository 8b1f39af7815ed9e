//! A line on the terminal while something takes longer than a second.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::output::{Output, printable};

const BEGIN: Duration = Duration::from_secs(1);

/// Does `work` and says on stderr meanwhile what is waited for, if that takes over a second and a person sees it.
pub(super) fn during<T>(output: Output, what: &str, work: impl FnOnce() -> T) -> T {
    during_counted(output, &|| what.to_owned(), work)
}

/// The same where what is to be said changes meanwhile.
pub(super) fn during_counted<T>(
    output: Output,
    what: &(dyn Fn() -> String + Sync),
    work: impl FnOnce() -> T,
) -> T {
    if output.is_quiet() || output.is_json() || !std::io::stderr().is_terminal() {
        return work();
    }
    let (done, is_done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || tell(what, &is_done));
        let answer = work();
        drop(done);
        answer
    })
}

fn tell(what: &dyn Fn() -> String, is_done: &mpsc::Receiver<()>) {
    let begun = Instant::now();
    let mut told = false;
    while is_done.recv_timeout(BEGIN) == Err(RecvTimeoutError::Timeout) {
        told = true;
        let seconds = begun.elapsed().as_secs();
        // A terminal that went away has nobody to tell.
        let _ = write!(
            std::io::stderr(),
            "\r{} … {seconds} s\u{1b}[K",
            printable(&what())
        );
    }
    if told {
        let _ = write!(std::io::stderr(), "\r\u{1b}[K");
    }
}
