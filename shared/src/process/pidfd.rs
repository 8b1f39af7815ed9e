//! A process held by a descriptor (pidfd_open(2)), so that its number cannot mean another one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::identity::Pid;
use crate::sys::pidfd as sys;

/// A descriptor of one process.
#[derive(Debug)]
pub struct Pidfd(OwnedFd);

/// Why there is no pidfd for a pid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PidfdError {
    /// ESRCH: nobody has this number.
    #[error("no process {0}")]
    Gone(Pid),
    /// EINVAL, since 6.15 ENOENT: the number is a thread's that is no process, or its process was reaped meanwhile.
    #[error("{0} is no process of its own (a thread, or reaped just now)")]
    NotAProcess(Pid),
    /// ENOSYS or, from a container's filter, EPERM: no pidfd is to be had here.
    #[error("pidfd_open is not available here: {0}")]
    Unavailable(io::Error),
    /// Anything else, as EMFILE.
    #[error("pidfd_open({0}) failed: {1}")]
    Failed(Pid, io::Error),
}

impl Pidfd {
    /// Holds the process that has this number now. A zombie can be held.
    ///
    /// # Errors
    /// See [`PidfdError`].
    pub fn open(pid: Pid) -> Result<Pidfd, PidfdError> {
        sys::pidfd_open(pid.get())
            .map(Pidfd)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::ESRCH) => PidfdError::Gone(pid),
                Some(libc::EINVAL | libc::ENOENT) => PidfdError::NotAProcess(pid),
                Some(libc::ENOSYS | libc::EPERM) => PidfdError::Unavailable(error),
                _ => PidfdError::Failed(pid, error),
            })
    }

    /// Takes a descriptor that the kernel gave in another way (`SO_PEERPIDFD`, `CLONE_PIDFD`).
    #[must_use]
    pub fn from_fd(fd: OwnedFd) -> Pidfd {
        Pidfd(fd)
    }

    /// Does the process still run, in any thread? A zombie does not; one whose leader ended while a thread runs does.
    ///
    /// # Errors
    /// What poll(2) answers: then nothing is known.
    pub fn is_alive(&self) -> io::Result<bool> {
        self.wait(Some(Duration::ZERO)).map(|ended| !ended)
    }

    /// Waits until the process has ended: `true` if it has. Without a limit it waits as long as that takes; with one it
    /// answers `false` when the time is over. A signal that interrupts the wait answers `false` too.
    ///
    /// # Errors
    /// What poll(2) answers.
    pub fn wait(&self, limit: Option<Duration>) -> io::Result<bool> {
        let timeout = match limit {
            None => PollTimeout::NONE,
            Some(limit) => PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX),
        };
        let mut polled = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        match poll(&mut polled, timeout) {
            Ok(count) => Ok(count > 0),
            Err(nix::Error::EINTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sends a signal to this process and nobody else. `Ok(false)` if it has been reaped.
    ///
    /// # Errors
    /// EPERM where this user may not; EINVAL for a number that is no signal.
    pub fn send_signal(&self, signal: i32) -> io::Result<bool> {
        send_to(self.0.as_fd(), signal)
    }
}

impl AsFd for Pidfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Pidfd> for OwnedFd {
    fn from(pidfd: Pidfd) -> OwnedFd {
        pidfd.0
    }
}

/// A process held for signals and nothing else. Where a filter refuses pidfd_open(2), as those of older container managers
/// do, its directory in /proc does as well: pidfd_send_signal(2) takes that too (since 5.1).
#[derive(Debug)]
pub enum SignalHandle {
    /// By a pidfd.
    Pidfd(Pidfd),
    /// By its directory in /proc.
    Directory(OwnedFd),
}

impl SignalHandle {
    /// Holds the process that has this number now.
    ///
    /// # Errors
    /// See [`PidfdError`]; `Unavailable` never comes.
    pub fn open(pid: Pid) -> Result<SignalHandle, PidfdError> {
        match Pidfd::open(pid) {
            Ok(held) => Ok(SignalHandle::Pidfd(held)),
            Err(PidfdError::Unavailable(_)) => Self::by_directory(pid),
            Err(error) => Err(error),
        }
    }

    fn by_directory(pid: Pid) -> Result<SignalHandle, PidfdError> {
        std::fs::File::options()
            .read(true)
            .custom_flags(libc::O_DIRECTORY)
            .open(format!("/proc/{pid}"))
            .map(|directory| SignalHandle::Directory(directory.into()))
            .map_err(|error| match error.raw_os_error() {
                Some(libc::ENOENT | libc::ESRCH) => PidfdError::Gone(pid),
                _ => PidfdError::Failed(pid, error),
            })
    }

    /// Sends a signal to this process and nobody else. `Ok(false)` if it has been reaped.
    ///
    /// # Errors
    /// EPERM where this user may not; EINVAL for a number that is no signal; ENOSYS from a filter that refuses
    /// pidfd_send_signal(2) too: then nobody can be signalled without the risk of meeting a stranger.
    pub fn send_signal(&self, signal: i32) -> io::Result<bool> {
        match self {
            SignalHandle::Pidfd(held) => held.send_signal(signal),
            SignalHandle::Directory(held) => send_to(held.as_fd(), signal),
        }
    }
}

/// `Ok(false)` if the process has been reaped.
fn send_to(held: BorrowedFd<'_>, signal: i32) -> io::Result<bool> {
    match sys::pidfd_send_signal(held, signal) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_zombie_is_over_and_a_reaped_process_takes_no_signal() {
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .expect("a child");
        let pid = Pid::new(child.id().try_into().expect("a pid")).expect("a pid");
        let held = Pidfd::open(pid).expect("a pidfd");
        assert!(held.is_alive().expect("poll"));
        assert!(held.send_signal(libc::SIGKILL).expect("the right to"));
        while !held.wait(Some(Duration::from_secs(30))).expect("poll") {}
        assert!(!held.is_alive().expect("poll"));
        let zombie = Pidfd::open(pid).expect("a zombie can be held");
        assert!(!zombie.is_alive().expect("poll"));
        child.wait().expect("its end");
        assert!(
            !held
                .send_signal(libc::SIGTERM)
                .expect("no error of its own")
        );
        assert!(!held.is_alive().expect("poll"));
    }

    #[test]
    fn a_directory_of_proc_holds_a_process_for_signals() {
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .expect("a child");
        let pid = Pid::new(child.id().try_into().expect("a pid")).expect("a pid");
        let held = SignalHandle::by_directory(pid).expect("a directory");
        assert!(held.send_signal(0).expect("the right to"));
        assert!(held.send_signal(libc::SIGKILL).expect("the right to"));
        child.wait().expect("its end");
        // Whoever has the number next is not meant.
        assert!(!held.send_signal(libc::SIGKILL).expect("no error"));
        assert!(matches!(
            SignalHandle::by_directory(pid),
            Err(PidfdError::Gone(_))
        ));
    }

    #[test]
    fn a_number_of_nobody_is_gone() {
        let nobody = Pid::new(i32::MAX).expect("a pid");
        assert!(matches!(Pidfd::open(nobody), Err(PidfdError::Gone(_))));
    }
}
