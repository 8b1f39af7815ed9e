//! What became of a child.

use nix::errno::Errno;
use nix::sys::wait::WaitPidFlag;

use cgleaf_shared::process::Pid;

/// How a child has changed, by signal numbers as the kernel has them: real-time signals, which end a process as any other, have
/// no name in nix, whose waitpid answers EINVAL for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It has exited with this status, and is reaped.
    Exited(i32),
    /// This signal ended it, and it is reaped.
    Signalled(i32),
    /// This signal stopped it.
    Stopped(i32),
    /// It goes on.
    Continued,
}

/// waitpid(2) of one child, or of any. `None` if nothing has changed and `WNOHANG` is among the flags.
///
/// # Errors
/// `ECHILD`: there is none. `EINTR`.
pub(crate) fn wait_child(
    child: Option<Pid>,
    flags: WaitPidFlag,
) -> nix::Result<Option<(Pid, Change)>> {
    let mut status = 0;
    let which = child.map_or(-1, Pid::get);
    // SAFETY: `status` is a valid place for the answer, and nothing else is written to.
    let answer = Errno::result(unsafe { libc::waitpid(which, &raw mut status, flags.bits()) })?;
    let Some(pid) = Pid::new(answer) else {
        return Ok(None);
    };
    let change = if libc::WIFEXITED(status) {
        Change::Exited(libc::WEXITSTATUS(status))
    } else if libc::WIFSIGNALED(status) {
        Change::Signalled(libc::WTERMSIG(status))
    } else if libc::WIFSTOPPED(status) {
        Change::Stopped(libc::WSTOPSIG(status))
    } else {
        Change::Continued
    };
    Ok(Some((pid, change)))
}
