//! Whether anybody still wants what a helper is asked for: who starts a program may interrupt that, or end, while a helper
//! does not answer.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Deadline;
use crate::error::{Code, Error, OrCode, Result};

thread_local! {
    static INTEREST: RefCell<Option<Rc<OwnedFd>>> = const { RefCell::new(None) };
}

/// While this lives, each wait of this thread for a helper ends with an error as soon as a descriptor can be read: a
/// signalfd, or the connection to whoever waits for us. It holds in a forked child too.
#[derive(Debug)]
pub(crate) struct Interest(());

impl Interest {
    /// It is lost when this can be read, which nobody else may do.
    pub(crate) fn until_readable(descriptor: OwnedFd) -> Self {
        INTEREST.set(Some(Rc::new(descriptor)));
        Self(())
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        INTEREST.set(None);
    }
}

/// While this lives, nothing ends a wait early: what an interruption leaves behind is to be taken back all the same.
#[derive(Debug)]
pub(crate) struct Regardless(Option<Rc<OwnedFd>>);

impl Regardless {
    /// From here on.
    pub(crate) fn begin() -> Self {
        Self(INTEREST.take())
    }
}

impl Drop for Regardless {
    fn drop(&mut self) {
        INTEREST.set(self.0.take());
    }
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    Readable,
    Deadline,
}

/// Fails if nobody wants the answer any more.
///
/// # Errors
/// INTERNAL: it was interrupted.
pub(crate) fn require() -> Result<()> {
    let Some(interest) = current() else {
        return Ok(());
    };
    let mut fds = [PollFd::new(interest.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::ZERO) {
        Ok(0) | Err(_) => Ok(()),
        Ok(_) => Err(interrupted()),
    }
}

/// Waits for a descriptor of ours for as long as it takes.
///
/// # Errors
/// INTERNAL: it was interrupted, or cannot be waited for.
pub(crate) fn wait_for(descriptor: BorrowedFd<'_>) -> Result<()> {
    wait(descriptor, None).map(|_| ())
}

/// Waits until a descriptor can be read; what is there to be read comes before an interruption.
pub(super) fn wait(descriptor: BorrowedFd<'_>, deadline: Option<Deadline>) -> Result<Ready> {
    let interest = current();
    loop {
        let time = match deadline.map(Deadline::left) {
            None => PollTimeout::NONE,
            Some(None) => return Ok(Ready::Deadline),
            Some(Some(left)) => PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX),
        };
        let mut fds = vec![PollFd::new(descriptor, PollFlags::POLLIN)];
        fds.extend(
            interest
                .as_ref()
                .map(|lost| PollFd::new(lost.as_fd(), PollFlags::POLLIN)),
        );
        match poll(&mut fds, time) {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) if fds[0].any() == Some(false) => return Err(interrupted()),
            Ok(_) => return Ok(Ready::Readable),
            Err(errno) => return Err(errno).or_code(Code::Internal),
        }
    }
}

fn current() -> Option<Rc<OwnedFd>> {
    INTEREST.with_borrow(Clone::clone)
}

fn interrupted() -> Error {
    Error::new(
        Code::Internal,
        "interrupted before the program was started; nothing of it is left",
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_wait_ends_when_nobody_wants_the_answer_and_only_then() {
        let (answer, mut answerer) = UnixStream::pair().expect("a pair");
        let (lost, waiter) = UnixStream::pair().expect("a pair");
        let interest = Interest::until_readable(lost.into());
        let deadline = || Some(Deadline::after(Duration::from_millis(20)));
        assert_eq!(wait(answer.as_fd(), deadline()).ok(), Some(Ready::Deadline));
        assert!(require().is_ok());
        drop(waiter);
        assert!(require().is_err());
        let regardless = Regardless::begin();
        assert!(require().is_ok());
        drop(regardless);
        assert!(require().is_err());
        assert!(wait(answer.as_fd(), None).is_err());
        answerer.write_all(b"x").expect("written");
        assert_eq!(wait(answer.as_fd(), None).ok(), Some(Ready::Readable));
        drop(interest);
        assert!(require().is_ok());
    }
}
