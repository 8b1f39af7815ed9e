//! `exec` in this tier: the calling process will become the program, and no process of ours stays behind.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;

use cgleaf_shared::process::{Proc, ReadError};

use super::identity::{GroupIdentity, Leader};

/// Makes the calling process the leader of a POSIX session of its own, where there is no terminal to lose, and says what
/// is to be recorded of it. To be called before the program is executed, and before the record is written.
///
/// A process that shares its group with others (a job of a shell with a terminal, a script, a pipeline) gets a record
/// without a group: [`GroupIdentity::pgid`] is `None`, and [`NO_GROUP_NOTICE`] says what that means.
///
/// # Errors
/// If the boot cannot be identified: such a record would prove nothing.
pub fn prepare_exec(mark: &str) -> Result<GroupIdentity, ReadError> {
    let proc = Proc::system()?;
    if !Leader::own().owns_its_group() && !has_controlling_terminal() {
        // EPERM for the leader of a group: it keeps its group, and none is recorded.
        let _ = nix::unistd::setsid();
    }
    GroupIdentity::record(&proc, Leader::own(), proc.own().ok(), mark, None)
}

/// What a record without a group means, in one line.
pub const NO_GROUP_NOTICE: &str = "no process group of its own: a destroy will end the program and what is beneath it, \
     and cannot account for what it left to others (start it with `cgleaf run`, or under setsid)";

/// ENXIO is the kernel's word for "no controlling terminal" (tty(4)); whatever else, there may be one.
fn has_controlling_terminal() -> bool {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOCTTY | libc::O_CLOEXEC)
        .open("/dev/tty");
    !matches!(opened, Err(error) if error.raw_os_error() == Some(libc::ENXIO))
}
