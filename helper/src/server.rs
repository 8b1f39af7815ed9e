//! The loop: one thread, one epoll(7), nothing that waits for a session.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use cgleaf_shared::wire::{self, MAX_REQUEST, Refusal, RefusalCode, Reply};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{SockFlag, accept4};

use crate::audience::Audience;
use crate::authorise;
use crate::connection::{Connection, ConnectionId, HELLO_TIME, Next};
use crate::context::State;
use crate::endpoints::{Endpoints, FIRST_CONNECTION, FIRST_LISTENER, SIGNALS};
use crate::listen::Listener;
use crate::log;
use crate::peer::Peer;
use crate::requests;
use crate::room::{self, Seat, Share, Worth};
use crate::status::StatusLine;

/// When the helper ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Never: a service ends when it is stopped.
    Never,
    /// After so long without a client and a live session.
    WhenIdle(Duration),
}

/// The helper at work.
pub(crate) struct Server {
    state: State,
    endpoints: Endpoints,
    connections: BTreeMap<ConnectionId, Connection>,
    next_id: u64,
    ends: Ends,
    idle_since: Instant,
    last_watchdog: Instant,
    status: StatusLine,
}

impl Server {
    pub(crate) fn new(state: State, endpoints: Endpoints, ends: Ends) -> Result<Self> {
        let server = Self {
            status: StatusLine::new(state.table.len()),
            state,
            endpoints,
            connections: BTreeMap::new(),
            next_id: FIRST_CONNECTION,
            ends,
            idle_since: Instant::now(),
            last_watchdog: Instant::now(),
        };
        server.endpoints.wait_for_all()?;
        Ok(server)
    }

    /// Serves a client whose socket was inherited.
    pub(crate) fn welcome_inherited(&mut self, socket: OwnedFd) {
        self.welcome(socket);
    }

    /// Serves until its end.
    pub(crate) fn run(mut self) -> Result<()> {
        let ready = format!("READY=1\n{}", self.status.text());
        self.endpoints.notify.send(&ready);
        let mut events = [EpollEvent::empty(); 64];
        while !self.is_over() {
            let timeout = self.timeout();
            let count = match self.endpoints.epoll.wait(&mut events, timeout) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                Err(errno) => return Err(errno).context("epoll_wait"),
            };
            for event in &events[..count] {
                self.handle(event.data(), event.events());
            }
            self.pass_of_time();
            self.require_scopes()?;
        }
        self.endpoints.notify.send("STOPPING=1");
        self.drain();
        Ok(())
    }

    fn handle(&mut self, data: u64, events: EpollFlags) {
        match data {
            SIGNALS => self.signalled(),
            FIRST_LISTENER..FIRST_CONNECTION => self.accept(data),
            connection => self.serve(ConnectionId(connection), events),
        }
    }

    /// A service's sessions go on: it is the helper alone that ends.
    fn signalled(&mut self) {
        if let Ok(Some(signal)) = self.endpoints.signals.read_signal() {
            log::line(format_args!("ending on signal {}", signal.ssi_signo));
            self.state.ending = true;
        }
    }

    fn accept(&mut self, data: u64) {
        let index = usize::try_from(data - FIRST_LISTENER).unwrap_or(usize::MAX);
        let Some(listener) = self.endpoints.listeners.get(index) else {
            return;
        };
        match next_in_queue(listener) {
            Ok(Some(socket)) => self.welcome(socket),
            Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::ENOBUFS) => {
                // The client waits in the queue; polling for it would only spin.
                self.endpoints.stop_listening();
            }
            Ok(None) | Err(_) => {}
        }
    }

    /// Takes in a client, if there is room for it.
    fn welcome(&mut self, socket: OwnedFd) {
        let peer = match Peer::of(socket.as_fd(), &self.state.context.proc) {
            Ok(peer) => peer,
            Err(mut refusal) => {
                let context = &self.state.context;
                let mount = &context.root.mount().point;
                Audience::unknown(context.mode).put_refusal(&mut refusal, mount);
                return turn_away(socket.as_fd(), refusal);
            }
        };
        let id = ConnectionId(self.next_id);
        let share = self.share_of(id, &peer);
        match self.room_for(&share) {
            Ok(None) => {}
            Ok(Some(parting)) => self.part_with(parting),
            Err(refusal) => return turn_away(socket.as_fd(), refusal),
        }
        self.next_id += 1;
        let connection = Connection::new(id, socket, peer, share);
        if let Err(errno) = self
            .endpoints
            .epoll
            .add(&connection, EpollEvent::new(EpollFlags::EPOLLIN, id.0))
        {
            log::line(format_args!("wait for a client: {errno}"));
            return;
        }
        self.connections.insert(id, connection);
        self.state.clients = self.connections.len();
    }

    /// Whose connections it counts with.
    fn share_of(&self, id: ConnectionId, peer: &Peer) -> Share {
        let context = &self.state.context;
        if context.quota.clients == usize::MAX && context.rules.container_roots.is_empty() {
            return Share::Everybody;
        }
        let domain = authorise::caller(&self.state, id, peer).and_then(|caller| caller.domain());
        domain.map_or(Share::Outside(peer.uid), Share::Domain)
    }

    fn room_for(&self, share: &Share) -> Result<Option<ConnectionId>, Refusal> {
        let quota = &self.state.context.quota;
        // It counts only where somebody has to go.
        let worths = if self.connections.len() < quota.all_clients {
            BTreeMap::new()
        } else {
            requests::worths(&self.state)
        };
        let worth = |id| worths.get(id).copied().unwrap_or(Worth::Nothing);
        let seats: Vec<Seat<'_>> = self
            .connections
            .iter()
            .map(|(id, connection)| connection.seat(worth(id)))
            .collect();
        room::for_one_of(share, &seats, quota)
    }

    /// Takes a connection from those who have most. A lease on it does not end with it: whoever has it may come back.
    fn part_with(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        // One that has said nothing yet connects anew by itself when it is hung up on without a word.
        if connection.half_open_since().is_none() {
            let why = Refusal::new(
                RefusalCode::Exhausted,
                "all connections are taken, and this was the idlest one of those who have most: connect again",
            );
            turn_away(connection.as_fd(), why);
        }
        requests::suspend_leases(&mut self.state, id);
        self.close(id);
    }

    fn serve(&mut self, id: ConnectionId, events: EpollFlags) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let next = if events.contains(EpollFlags::EPOLLOUT) {
            connection.write()
        } else if events.contains(EpollFlags::EPOLLIN) {
            connection.read(&mut self.state)
        } else {
            // EPOLLHUP or EPOLLERR alone, with nothing left to read.
            Next::Close
        };
        let wanted = match next {
            Next::Close => return self.close(id),
            Next::Read => EpollFlags::EPOLLIN,
            Next::Write => EpollFlags::EPOLLOUT,
        };
        let mut event = EpollEvent::new(wanted, id.0);
        if self
            .endpoints
            .epoll
            .modify(&*connection, &mut event)
            .is_err()
        {
            self.close(id);
        }
    }

    fn close(&mut self, id: ConnectionId) {
        // Its descriptor closes with it, which takes it out of the epoll set.
        if self.connections.remove(&id).is_none() {
            return;
        }
        self.state.clients = self.connections.len();
        requests::connection_ended(&mut self.state, id);
        if self.connections.is_empty() {
            self.idle_since = Instant::now();
        }
        if !self.state.ending {
            self.endpoints.listen_again();
        }
    }

    /// What is due when nobody asks for anything.
    fn pass_of_time(&mut self) {
        let now = Instant::now();
        let late: Vec<ConnectionId> = self
            .connections
            .values()
            .filter(|connection| {
                connection
                    .half_open_since()
                    .is_some_and(|since| now >= since + HELLO_TIME)
            })
            .map(|connection| connection.id)
            .collect();
        for id in late {
            self.close(id);
        }
        if self.endpoints.listens_at().is_some_and(|at| now >= at) {
            self.endpoints.listen_again();
        }
        requests::drop_overdue_holds(&mut self.state, now);
        requests::end_overdue_leases(&mut self.state, now);
        requests::remove_ended_leases(&mut self.state, now);
        if let Some(every) = self.endpoints.notify.watchdog
            && now >= self.last_watchdog + every
        {
            self.endpoints.notify.send("WATCHDOG=1");
            self.last_watchdog = now;
        }
        if self.endpoints.notify.is_connected() && self.status.changed(self.state.table.len(), now)
        {
            self.endpoints.notify.send(&self.status.text());
        }
        if let Ends::WhenIdle(after) = self.ends
            && self.connections.is_empty()
            && now >= self.idle_since + after
        {
            self.idle_since = now;
            self.state.ending |= !self.state.has_live_session();
        }
    }

    /// When the next of these is due.
    fn timeout(&self) -> EpollTimeout {
        let hello = self
            .connections
            .values()
            .filter_map(|connection| connection.half_open_since().map(|since| since + HELLO_TIME));
        let leases = &self.state.leases;
        let lease = leases.waiting.iter().map(|(until, _)| *until);
        let ended = leases
            .ended
            .first()
            .map(|_| Instant::now() + requests::LOOK_AGAIN);
        let watchdog = self
            .endpoints
            .notify
            .watchdog
            .map(|every| self.last_watchdog + every);
        let notify = Some(&self.endpoints.notify).filter(|notify| notify.is_connected());
        let status = notify.and_then(|_| self.status.due(self.state.table.len()));
        let idle = match self.ends {
            Ends::WhenIdle(after) if self.connections.is_empty() => Some(self.idle_since + after),
            _ => None,
        };
        let Some(due) = hello
            .chain(lease)
            .chain(self.endpoints.listens_at())
            .chain(self.state.holds.next_drop())
            .chain(ended)
            .chain(watchdog)
            .chain(status)
            .chain(idle)
            .min()
        else {
            return EpollTimeout::NONE;
        };
        // Rounded up: a millisecond early would spin until it is due.
        let left = due.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        EpollTimeout::try_from(left).unwrap_or(EpollTimeout::MAX)
    }

    /// A scope directory that was removed under its helper and made again is another one, to the kernel and to landlock.
    fn require_scopes(&self) -> Result<()> {
        for scope in &self.state.context.scopes {
            // Any other answer, such as that there is no descriptor left, says nothing about the directory.
            if let Err(error) = scope.dir.events()
                && error.is_gone()
            {
                return Err(error).context("the scope directory is gone: the helper ends");
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.state.ending
    }

    /// Serves what was asked already, takes the socket's name away, and turns away who came too late.
    fn drain(&mut self) {
        for listener in &self.endpoints.listeners {
            listener.unlink();
        }
        let ids: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for id in ids {
            self.close(id);
        }
        if let Some(scope) = self.state.context.scopes.first() {
            crate::scope::leave(&scope.dir);
        }
    }
}

/// The next client that is still there. Finding out who somebody is takes longer than connecting: whoever connects and hangs up
/// again and again would keep the queue full for everybody else, so that these are passed over unseen. Only so many at once,
/// since others wait to be served.
fn next_in_queue(listener: &Listener) -> nix::Result<Option<OwnedFd>> {
    const AT_ONCE: usize = 64;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    for _ in 0..AT_ONCE {
        let socket = accept4(listener, flags)?;
        if !has_hung_up(socket.as_fd()) {
            return Ok(Some(socket));
        }
    }
    Ok(None)
}

/// Whether the other end is closed. One that only says nothing more is not (`POLLRDHUP`).
fn has_hung_up(socket: BorrowedFd<'_>) -> bool {
    let mut asked = [PollFd::new(socket, PollFlags::POLLIN)];
    let answered = poll(&mut asked, PollTimeout::ZERO).unwrap_or(0);
    let events = asked[0].revents().unwrap_or(PollFlags::empty());
    answered > 0 && events.contains(PollFlags::POLLHUP)
}

/// Says why, and closes. What does not fit the socket's empty buffer is not worth waiting for.
fn turn_away(socket: BorrowedFd<'_>, refusal: Refusal) {
    if let Ok(bytes) = wire::encode_reply(&Reply::Refused(refusal)) {
        let _ = wire::send(socket, &bytes, None, false);
    }
    // What the client has sent already, Hello and a request, would reset the connection if it were left unread: then the
    // client would get that instead of the reason.
    for _ in 0..2 {
        if !matches!(wire::receive_bytes(socket, MAX_REQUEST), Ok(Some(_))) {
            break;
        }
    }
}
