//! One client's connection: Hello first, then a reply for each request, in order.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use cgleaf_shared::wire::{
    self, Hello, MAGIC, MAX_REQUEST, PROTOCOL, Refusal, RefusalCode, Reply, Request, Welcome,
};

use crate::context::State;
use crate::peer::Peer;
use crate::requests::{self, Answer};
use crate::room::{Seat, Share, Worth};

/// How long a client may take until its Hello.
pub(crate) const HELLO_TIME: Duration = Duration::from_secs(5);

/// Names a connection for as long as the helper runs. Numbers are not used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId(pub(crate) u64);

/// A connected client.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    socket: OwnedFd,
    peer: Peer,
    /// Whose it was when it connected, for the quota.
    share: Share,
    heard: Instant,
    stage: Stage,
    unsent: Option<Unsent>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing came yet.
    HalfOpen { since: Instant },
    /// Hello was said, by this protocol version.
    Greeted { protocol: u16 },
}

/// A reply that the socket had no room for. There is one at most: until it is gone nothing more is read.
#[derive(Debug)]
struct Unsent {
    bytes: Vec<u8>,
    descriptor: Option<OwnedFd>,
}

/// What is to become of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait until it can be read.
    Read,
    /// Wait until it can be written.
    Write,
    /// It is over.
    Close,
}

impl Connection {
    /// Takes a connected, non-blocking socket whose peer is known.
    pub(crate) fn new(id: ConnectionId, socket: OwnedFd, peer: Peer, share: Share) -> Self {
        let now = Instant::now();
        Self {
            id,
            socket,
            peer,
            share,
            heard: now,
            stage: Stage::HalfOpen { since: now },
            unsent: None,
        }
    }

    /// Since when it has been silent, if it never said Hello.
    pub(crate) fn half_open_since(&self) -> Option<Instant> {
        match self.stage {
            Stage::HalfOpen { since } => Some(since),
            Stage::Greeted { .. } => None,
        }
    }

    /// What counts where there is no room.
    pub(crate) fn seat(&self, worth: Worth) -> Seat<'_> {
        Seat {
            id: self.id,
            share: &self.share,
            half_open_since: self.half_open_since(),
            heard: self.heard,
            worth,
        }
    }

    /// It can be read: one packet is taken and answered.
    pub(crate) fn read(&mut self, state: &mut State) -> Next {
        // Strangers may connect in the root modes, where no request carries a descriptor.
        let receive = if state.context.mode.is_root_mode() {
            wire::receive_bytes
        } else {
            wire::receive
        };
        let packet = match receive(self.socket.as_fd(), MAX_REQUEST) {
            Ok(Some(packet)) => packet,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Next::Read,
            // Its end, or a reset: nothing that one of ours would do comes after either.
            Ok(None) | Err(_) => return Next::Close,
        };
        self.heard = Instant::now();
        match self.stage {
            Stage::HalfOpen { .. } => self.greet(state, &packet),
            Stage::Greeted { protocol } => {
                let answer = self.answer(state, packet, protocol);
                self.send(answer)
            }
        }
    }

    /// It can be written: the reply that waits goes first.
    pub(crate) fn write(&mut self) -> Next {
        match self.unsent.take() {
            Some(unsent) => self.deliver(unsent),
            None => Next::Read,
        }
    }

    /// Hello, or the end: whoever says something else first is no client.
    fn greet(&mut self, state: &State, packet: &wire::Packet) -> Next {
        let hello: Option<Hello> = wire::decode_hello(&packet.bytes).ok();
        let Some(hello) = hello.filter(|hello| hello.magic == MAGIC) else {
            return Next::Close;
        };
        if packet.truncated || packet.descriptors_refused || !packet.descriptors.is_empty() {
            return Next::Close;
        }
        self.stage = Stage::Greeted {
            protocol: hello.protocol,
        };
        let welcome: &Welcome = &state.context.welcome;
        match wire::encode_welcome(welcome) {
            Ok(bytes) => self.deliver(Unsent {
                bytes,
                descriptor: None,
            }),
            Err(_) => Next::Close,
        }
    }

    fn answer(&mut self, state: &mut State, packet: wire::Packet, protocol: u16) -> Answer {
        if packet.truncated {
            return Refusal::new(
                RefusalCode::BadMessage,
                format!("the packet is over {MAX_REQUEST} bytes, or carries too many descriptors"),
            )
            .into();
        }
        let request = match wire::decode_request(&packet.bytes) {
            Ok(request) => request,
            Err(_) if protocol != PROTOCOL => return other_version(protocol).into(),
            Err(why) => return Refusal::new(RefusalCode::BadMessage, why.to_string()).into(),
        };
        if packet.descriptors_refused && !matches!(request, Request::Adopt { .. }) {
            return Refusal::new(
                RefusalCode::BadDescriptor,
                "a helper that root runs for others takes no descriptor: none was received",
            )
            .into();
        }
        if protocol != PROTOCOL && !request.is_frozen() {
            return other_version(protocol).into();
        }
        if state.ending && makes_a_session(&request) {
            return Refusal::new(
                RefusalCode::Ending,
                "the helper is about to end: connect again",
            )
            .into();
        }
        requests::answer(state, self.id, &self.peer, request, packet.descriptors)
    }

    fn send(&mut self, answer: Answer) -> Next {
        let bytes = wire::encode_reply(&answer.reply).or_else(|why| {
            wire::encode_reply(&Reply::Refused(Refusal::new(
                RefusalCode::Exhausted,
                format!("the answer does not fit: {why}"),
            )))
        });
        match bytes {
            Ok(bytes) => self.deliver(Unsent {
                bytes,
                descriptor: answer.descriptor,
            }),
            Err(_) => Next::Close,
        }
    }

    /// Sends, or keeps what the socket has no room for.
    fn deliver(&mut self, mut unsent: Unsent) -> Next {
        loop {
            let descriptor = unsent.descriptor.as_ref().map(AsFd::as_fd);
            let sent = wire::send(self.socket.as_fd(), &unsent.bytes, descriptor, false);
            return match sent {
                Ok(()) => Next::Read,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    self.unsent = Some(unsent);
                    Next::Write
                }
                // Too many descriptors of this user are in flight, over all processes: the client does without.
                Err(error)
                    if error.raw_os_error() == Some(libc::ETOOMANYREFS)
                        && unsent.descriptor.is_some() =>
                {
                    unsent.descriptor = None;
                    continue;
                }
                Err(_) => Next::Close,
            };
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn makes_a_session(request: &Request) -> bool {
    matches!(
        request,
        Request::CreateAndEnrol { .. } | Request::Create { .. } | Request::Adopt { .. }
    )
}

/// One line that says which side is older.
fn other_version(theirs: u16) -> Refusal {
    let (older, newer) = if theirs < PROTOCOL {
        ("this cgleaf", "the helper")
    } else {
        ("the helper", "this cgleaf")
    };
    Refusal::new(
        RefusalCode::Version,
        format!(
            "{older} is older than {newer} (protocol {theirs} asks protocol {PROTOCOL}): list and destroy work, for the \
             rest bring both to one version"
        ),
    )
}
