//! A helper that nobody can reach any more: it lives, and the file of its socket is gone. It has its lock all the while, so
//! that no other takes its place; and that lock tells who it is.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cgleaf_shared::process::{Pid, Proc, SignalHandle};
use nix::sys::stat::{major, minor};

use super::{Client, is_absent};
use crate::error::Error;

/// Such a helper.
#[derive(Debug)]
pub(crate) struct Unreachable {
    pid: Pid,
    socket: PathBuf,
    held: SignalHandle,
}

impl Unreachable {
    /// Whoever has the lock of a socket that nobody can connect to. `None` also where that cannot be told, as in another pid
    /// namespace than the helper's.
    pub(crate) fn find(socket: &Path) -> Option<Self> {
        let pid = lock_holder(socket)?;
        let held = SignalHandle::open(pid).ok()?;
        let found = Self {
            pid,
            socket: socket.to_path_buf(),
            held,
        };
        // What is held is the one that has the lock, if it has that still, and it is a helper of this socket.
        let same = lock_holder(socket) == Some(pid) && is_helper_of(pid, socket);
        // One that only does not answer has its socket still.
        let is_gone = |error: Error| is_absent(&error);
        (same && Client::connect(socket).is_err_and(is_gone)).then_some(found)
    }

    /// The socket that it had.
    #[cfg(feature = "cli")]
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Ends it. Its sessions go on, and the next helper takes them over.
    ///
    /// # Errors
    /// What to do instead, where the kernel refuses the signal.
    pub(crate) fn end(&self) -> Result<(), String> {
        let Err(error) = self.held.send_signal(libc::SIGTERM) else {
            return Ok(());
        };
        let (pid, socket) = (self.pid, self.socket.display());
        Err(format!(
            "a helper, pid {pid}, has the lock of {socket}, whose file is gone: send SIGTERM to it: {error}; end it, its \
             sessions go on and the next command finds them"
        ))
    }
}

/// Who has the lock beside a socket, as `/proc/locks` tells (proc_locks(5)).
fn lock_holder(socket: &Path) -> Option<Pid> {
    let mut path = OsString::from(socket);
    path.push(".lock");
    let stat = std::fs::symlink_metadata(&path).ok()?;
    let file = format!(
        "{:02x}:{:02x}:{}",
        major(stat.dev()),
        minor(stat.dev()),
        stat.ino()
    );
    holder_of(&std::fs::read_to_string("/proc/locks").ok()?, &file)
}

/// `5: FLOCK  ADVISORY  WRITE 1683 fe:00:10994596 0 EOF`; a line of who waits has an arrow behind its number.
fn holder_of(locks: &str, file: &str) -> Option<Pid> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, "WRITE", pid, of, ..] if of == file => {
                pid.parse().ok().and_then(Pid::new)
            }
            _ => None,
        }
    })
}

/// The helper that listens at a socket of its own making. A service manager's sockets have that manager as their peer
/// (unix(7), SO_PEERCRED), which is nobody to be named here.
#[cfg(feature = "cli")]
pub(crate) fn serving_pid(socket: &Path) -> Option<Pid> {
    let pid = Pid::new(Client::connect(socket).ok()?.peer_pid()?)?;
    is_helper_of(pid, socket).then_some(pid)
}

/// The helper that has the lock of a socket, without a word to it: it may not take any.
#[cfg(feature = "cli")]
pub(crate) fn locking_pid(socket: &Path) -> Option<Pid> {
    lock_holder(socket).filter(|pid| is_helper_of(*pid, socket))
}

fn is_helper_of(pid: Pid, socket: &Path) -> bool {
    let words = Proc::system()
        .and_then(|proc| proc.process(pid))
        .and_then(|process| process.cmdline())
        .unwrap_or_default();
    let option = OsStr::new("--socket");
    words
        .windows(2)
        .any(|two| two[0] == option && two[1] == socket.as_os_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_who_has_it_and_not_who_waits() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 fe:00:10994596 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 8 fe:00:10994597 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 9 fe:00:10994596 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 10 fe:00:10994596 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE -1 fe:00:10994598 0 EOF\n";
        assert_eq!(holder_of(locks, "fe:00:10994596"), Pid::new(10));
        assert_eq!(holder_of(locks, "fe:00:1"), None);
        assert_eq!(holder_of(locks, "fe:00:10994598"), None);
    }
}
