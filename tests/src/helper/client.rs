//! A client that says what it is told to.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use cgleaf_shared::attestation::Attestation;
use cgleaf_shared::wire::{
    self, Hello, NewSession, Opened, Refusal, RefusalCode, Reply, Request, SessionEntry, Status,
    Target, Welcome,
};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt,
};

use crate::scratch::{DEADLINE, wait_until};

/// One connection, that has said Hello.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    /// What the helper said of itself.
    pub welcome: Option<Welcome>,
}

impl Client {
    /// How the helper is.
    ///
    /// # Panics
    /// If it answers with something else.
    #[must_use]
    pub fn status(&self) -> Status {
        match self.call(&Request::Status) {
            Reply::Status(status) => status,
            other => panic!("{other:?}"),
        }
    }

    /// Connects and greets.
    ///
    /// # Errors
    /// What connect(2) answers, or `ConnectionReset` where the helper hangs up.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let socket = Self::connect_silently(path)?;
        Self::greet(socket)
    }

    /// Takes a connection that was inherited under this number and has said Hello, once its maker has ended.
    ///
    /// # Errors
    /// If there is none of that number.
    pub fn inherited(number: std::os::fd::RawFd, maker: i32) -> io::Result<Self> {
        wait_until("the end of the connection's maker", || {
            nix::unistd::getppid().as_raw() != maker
        });
        Ok(Self {
            socket: crate::sys::own_inherited(number)?,
            welcome: None,
        })
    }

    /// Connects, and says nothing.
    ///
    /// # Errors
    /// What connect(2) answers.
    pub fn connect_silently(path: &Path) -> io::Result<OwnedFd> {
        let socket = socket(
            AddressFamily::Unix,
            SockType::SeqPacket,
            SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        // A helper that hangs is to fail its test, not to hang it.
        let deadline = nix::sys::time::TimeVal::new(DEADLINE.as_secs().try_into().unwrap_or(60), 0);
        setsockopt(&socket, sockopt::ReceiveTimeout, &deadline)?;
        setsockopt(&socket, sockopt::SendTimeout, &deadline)?;
        connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(socket)
    }

    /// Says Hello over a connected socket.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn greet(socket: OwnedFd) -> io::Result<Self> {
        let hello = wire::encode_hello(&Hello::ours()).map_err(io::Error::other)?;
        wire::send(socket.as_fd(), &hello, None, true)?;
        let mut client = Self {
            socket,
            welcome: None,
        };
        let packet = client.receive()?;
        let welcome = wire::decode_welcome(&packet.bytes).map_err(io::Error::other)?;
        // Who is turned away gets a refusal instead, whose bytes may decode as well.
        if welcome.magic != wire::MAGIC {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        client.welcome = Some(welcome);
        Ok(client)
    }

    /// Sends bytes as one packet.
    ///
    /// # Errors
    /// What sendmsg(2) answers.
    pub fn send(&self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        wire::send(self.socket.as_fd(), bytes, descriptor, true)
    }

    /// Waits for a packet.
    ///
    /// # Errors
    /// `ConnectionReset` at the end.
    pub fn receive(&self) -> io::Result<wire::Packet> {
        wire::receive(self.socket.as_fd(), wire::MAX_REPLY)?
            .ok_or_else(|| io::ErrorKind::ConnectionReset.into())
    }

    /// Asks and waits for the reply, with the descriptors that came with it.
    ///
    /// # Panics
    /// Where the connection breaks.
    pub fn call_full(
        &self,
        request: &Request,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> (Reply, Vec<OwnedFd>) {
        self.ask(request, descriptor).expect("a reply")
    }

    /// Asks a helper that may end at any moment.
    ///
    /// # Errors
    /// Where the connection breaks.
    pub fn try_call(&self, request: &Request) -> io::Result<Reply> {
        self.ask(request, None).map(|(reply, _)| reply)
    }

    fn ask(
        &self,
        request: &Request,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<(Reply, Vec<OwnedFd>)> {
        let bytes = wire::encode_request(request).map_err(io::Error::other)?;
        self.send(&bytes, descriptor)?;
        let packet = self.receive()?;
        let reply = wire::decode_reply(&packet.bytes).map_err(io::Error::other)?;
        Ok((reply, packet.descriptors))
    }

    /// Asks and waits for the reply.
    ///
    /// # Panics
    /// As [`Self::call_full`].
    #[must_use]
    pub fn call(&self, request: &Request) -> Reply {
        self.call_full(request, None).0
    }

    /// Asks for what is to be refused.
    ///
    /// # Panics
    /// Where it is not.
    #[must_use]
    pub fn refusal(&self, request: &Request) -> Refusal {
        match self.call(request) {
            Reply::Refused(refusal) => refusal,
            other => panic!("{request:?} was answered with {other:?}"),
        }
    }

    /// Asks for what is to be refused, and gives the kind of the refusal.
    #[must_use]
    pub fn refused(&self, request: &Request) -> RefusalCode {
        self.refusal(request).kind()
    }

    /// Makes an empty leaf.
    ///
    /// # Panics
    /// Where that is refused.
    #[must_use]
    pub fn create(&self, new: NewSession) -> Attestation {
        match self.call(&Request::Create { new }) {
            Reply::Created(created) => created.attestation,
            other => panic!("create was answered with {other:?}"),
        }
    }

    /// Opens a session.
    ///
    /// # Panics
    /// Where that is refused.
    #[must_use]
    pub fn open(&self, session: &str) -> SessionEntry {
        let session = session.parse().expect("an id");
        match self.call(&Request::Open { session }) {
            Reply::Opened(Opened { entry }) => entry,
            other => panic!("open was answered with {other:?}"),
        }
    }

    /// All sessions, page by page.
    ///
    /// # Panics
    /// Where that is refused.
    #[must_use]
    pub fn list(&self) -> Vec<SessionEntry> {
        let mut all: Vec<SessionEntry> = Vec::new();
        loop {
            let after = all.last().map(|last| last.attestation.session.clone());
            match self.call(&Request::List { after }) {
                Reply::Sessions { sessions, more } => {
                    assert!(
                        !sessions.is_empty() || !more,
                        "an empty page with another after it"
                    );
                    all.extend(sessions);
                    if !more {
                        return all;
                    }
                }
                other => panic!("list was answered with {other:?}"),
            }
        }
    }

    /// Kills and removes a session, until it is gone.
    ///
    /// # Panics
    /// Where that is refused.
    pub fn destroy(&self, target: &Target) {
        let killed = self.call(&Request::Kill {
            target: target.clone(),
        });
        assert_eq!(killed, Reply::Killed);
        wait_until("the removal of a leaf", || {
            match self.call(&Request::Remove {
                target: target.clone(),
            }) {
                Reply::Removed(removal) => removal.removed,
                Reply::Refused(refusal) => refusal.kind() == RefusalCode::NoSuchSession,
                other => panic!("remove was answered with {other:?}"),
            }
        });
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A session to be made, without a name or a parent.
///
/// # Panics
/// Where the id is none.
#[must_use]
pub fn session(id: &str) -> NewSession {
    NewSession {
        session: id.parse().expect("an id"),
        name: None,
        parent: None,
    }
}
