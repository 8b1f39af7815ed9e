//! Waiting on a leaf by its own `cgroup.events`, without the helper.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use cgleaf_shared::cgroup::Events;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::time::TimeSpec;

use super::Deadline;
use crate::operations;

/// A leaf's `cgroup.events`, held open.
#[derive(Debug)]
pub struct LeafEvents {
    file: File,
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitEnd {
    /// What was waited for is so.
    Reached,
    /// The leaf was removed, so it was empty.
    Removed,
    /// The deadline passed first.
    Deadline,
}

/// The kernel tells a change late: it allows itself about a hundred events a second for each file. So the value is
/// read again after this time, and then after twice that, up to [`SLOWEST`].
const QUICKEST: Duration = Duration::from_micros(100);
const SLOWEST: Duration = Duration::from_secs(1);

impl LeafEvents {
    /// Takes the descriptor that a helper passed, or one that was opened here.
    pub fn new(descriptor: OwnedFd) -> Self {
        Self {
            file: File::from(descriptor),
        }
    }

    /// What the kernel says now; `None` if the leaf was removed.
    ///
    /// # Errors
    /// If it cannot be read for another reason.
    pub fn now(&mut self) -> io::Result<Option<Events>> {
        let gone =
            |error: &io::Error| matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENOENT));
        let mut content = Vec::with_capacity(64);
        let read = self
            .file
            .seek(SeekFrom::Start(0))
            .and_then(|_| self.file.read_to_end(&mut content));
        match read {
            Ok(_) => Events::parse(&content).map(Some).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "cgroup.events lacks a value")
            }),
            Err(error) if gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sleeps until `wanted` holds of the events, the leaf is removed, or the deadline passes. Without a deadline it
    /// waits for ever.
    ///
    /// # Errors
    /// If the events cannot be read, or a signal is to be handled: `Interrupted`.
    pub fn wait(
        &mut self,
        deadline: Option<Deadline>,
        wanted: impl Fn(Events) -> bool,
    ) -> io::Result<WaitEnd> {
        let mut pause = QUICKEST;
        loop {
            match self.now()? {
                None => return Ok(WaitEnd::Removed),
                Some(events) if wanted(events) => return Ok(WaitEnd::Reached),
                Some(_) => {}
            }
            let left = match deadline {
                None => pause,
                Some(deadline) => match deadline.left() {
                    None => return Ok(WaitEnd::Deadline),
                    Some(left) => left.min(pause),
                },
            };
            if self.sleep(left)? {
                pause = QUICKEST;
            } else {
                pause = (pause * 2).min(SLOWEST);
            }
        }
    }

    /// Waits until the session has ended: `populated 0`, or the leaf removed.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn wait_for_end(&mut self, deadline: Option<Deadline>) -> io::Result<WaitEnd> {
        self.wait(deadline, |events| !events.populated)
    }

    /// Whether an event came before the time was over.
    fn sleep(&self, time: Duration) -> io::Result<bool> {
        operations::tell(|| format!("ppoll(2): the leaf's cgroup.events, for {time:?} at most"));
        let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLPRI)];
        match nix::poll::ppoll(&mut fds, Some(TimeSpec::from_duration(time)), None) {
            Ok(number) => Ok(number > 0),
            Err(Errno::EINTR) => Err(io::ErrorKind::Interrupted.into()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for LeafEvents {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.file.as_fd()
    }
}
