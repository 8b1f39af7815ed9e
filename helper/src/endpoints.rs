//! What the loop waits for beside clients: signals, and the sockets where new clients come from.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::listen::Listener;
use crate::log;
use crate::notify::Notify;
use crate::requests;

/// What an event's number says it is of.
pub(crate) const SIGNALS: u64 = 0;
/// The first of the listeners, each with a number of its own.
pub(crate) const FIRST_LISTENER: u64 = 1;
/// The first of the connections.
pub(crate) const FIRST_CONNECTION: u64 = 1 << 16;

/// Everything but clients that the loop waits for, made before the lock-down.
#[derive(Debug)]
pub(crate) struct Endpoints {
    pub(crate) listeners: Vec<Listener>,
    pub(crate) notify: Notify,
    pub(crate) epoll: Epoll,
    pub(crate) signals: SignalFd,
    listening: Listening,
}

/// Whether the listeners are polled: not while there is no descriptor for another client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listening {
    Yes,
    /// Nobody need end for a descriptor to come free, where it was the machine that had none: it is tried again.
    Not {
        until: Instant,
    },
}

impl Listening {
    fn until_later() -> Self {
        Self::Not {
            until: Instant::now() + requests::TRY_AGAIN,
        }
    }
}

impl Endpoints {
    pub(crate) fn new(listeners: Vec<Listener>, notify: Notify) -> Result<Self> {
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            mask.add(signal);
        }
        mask.thread_block().context("block signals")?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&mask, flags).context("make a signalfd")?;
        let epoll =
            Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("make an epoll descriptor")?;
        Ok(Self {
            listeners,
            notify,
            epoll,
            signals,
            listening: Listening::Yes,
        })
    }

    /// The directory of the socket that this helper bound.
    pub(crate) fn socket_dir(&self) -> Option<BorrowedFd<'_>> {
        self.listeners.iter().find_map(Listener::directory)
    }

    /// Where the helper is reached; empty for one that only serves what it inherited.
    pub(crate) fn socket(&self) -> String {
        let first = self.listeners.first();
        first.map_or_else(String::new, |listener| listener.path().to_owned())
    }

    /// Has the loop told of signals and of new clients.
    ///
    /// # Errors
    /// What epoll_ctl(2) answers.
    pub(crate) fn wait_for_all(&self) -> Result<()> {
        self.epoll
            .add(&self.signals, EpollEvent::new(EpollFlags::EPOLLIN, SIGNALS))
            .context("wait for signals")?;
        self.listen().context("wait for clients")
    }

    fn listen(&self) -> nix::Result<()> {
        for (number, listener) in (FIRST_LISTENER..).zip(&self.listeners) {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, number);
            match self.epoll.add(listener, event) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Takes new clients again, if it does not.
    pub(crate) fn listen_again(&mut self) {
        if self.listening != Listening::Yes {
            let listened = self.listen();
            self.listening =
                listened.map_or_else(|_| Listening::until_later(), |()| Listening::Yes);
        }
    }

    /// Leaves new clients in the queue for a while.
    pub(crate) fn stop_listening(&mut self) {
        for listener in &self.listeners {
            match self.epoll.delete(listener) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(errno) => log::line(format_args!("stop waiting for clients: {errno}")),
            }
        }
        self.listening = Listening::until_later();
    }

    /// When it takes new clients again, where it does not now.
    pub(crate) fn listens_at(&self) -> Option<Instant> {
        match self.listening {
            Listening::Yes => None,
            Listening::Not { until } => Some(until),
        }
    }
}
