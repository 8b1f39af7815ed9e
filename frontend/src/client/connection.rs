//! One connection: Hello and the first request back to back, then a reply for each request.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cgleaf_shared::id::Uid;
use cgleaf_shared::wire::{self, Hello, PROTOCOL, RefusalCode, Reply, Request, Welcome};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket,
    sockopt::PeerCredentials,
};

use super::interest::{self, Ready};
use crate::error::{Code, Error, OrCode, Result};
use crate::operations;

/// A point in time after which a client gives up.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// How long an ordinary request may take. A loaded machine makes a 20 ms step of anything.
    pub const REQUEST: Duration = Duration::from_secs(20);

    /// That far from now.
    pub fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    /// The earlier of the two.
    #[must_use]
    pub fn earlier(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }

    /// What is left; `None` when it is over.
    pub fn left(self) -> Option<Duration> {
        self.0
            .checked_duration_since(Instant::now())
            .filter(|left| !left.is_zero())
    }
}

/// A connected helper.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    path: PathBuf,
    welcome: Option<Welcome>,
    greeted: bool,
}

impl Client {
    /// Connects to a helper's socket, and makes sure that its peer is one to trust: our own user, or root where socket
    /// and directory are root's.
    ///
    /// # Errors
    /// HELPER_UNREACHABLE: nobody listens. REFUSED: the peer is not to be trusted.
    pub fn connect(path: &Path) -> Result<Self> {
        let unreachable = |error: Errno| {
            Error::new(
                Code::HelperUnreachable,
                format!("connect to {}: {}", path.display(), error.desc()),
            )
            .with("socket", path.display().to_string())
            .with("errno", error as i32)
        };
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket =
            socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).map_err(unreachable)?;
        let address = UnixAddr::new(path).map_err(unreachable)?;
        operations::tell(|| format!("connect(2): {}", path.display()));
        connect_patiently(&socket, &address).map_err(unreachable)?;
        let client = Self {
            socket,
            path: path.to_path_buf(),
            welcome: None,
            greeted: false,
        };
        client.require_trusted_peer()?;
        Ok(client)
    }

    /// Takes a connected socket, such as one end of a socketpair whose other end a helper inherited.
    pub fn from_socket(socket: OwnedFd, path: PathBuf) -> Self {
        Self {
            socket,
            path,
            welcome: None,
            greeted: false,
        }
    }

    fn require_trusted_peer(&self) -> Result<()> {
        let peer = getsockopt(&self.socket, PeerCredentials).or_code(Code::Refused)?;
        let own = Uid::effective();
        if peer.uid() == own.0 || (peer.uid() == 0 && is_roots(&self.path)) {
            return Ok(());
        }
        let path = self.path.display();
        Err(Error::new(
            Code::Refused,
            format!(
                "the helper at {path} runs as uid {}, this is uid {own}: it is not trusted",
                peer.uid()
            ),
        ))
    }

    /// The helper's pid; `None` where this pid namespace does not show it (unix(7), SO_PEERCRED).
    #[cfg(feature = "cli")]
    pub(super) fn peer_pid(&self) -> Option<i32> {
        let peer = getsockopt(&self.socket, PeerCredentials).ok()?;
        Some(peer.pid()).filter(|pid| *pid > 0)
    }

    /// The socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the helper said of itself, once it has answered.
    pub fn welcome(&self) -> Option<&Welcome> {
        self.welcome.as_ref()
    }

    /// Whether both sides speak the same version.
    pub fn same_version(&self) -> bool {
        self.welcome
            .as_ref()
            .is_none_or(|welcome| welcome.protocol == PROTOCOL)
    }

    /// The mode that the helper told, or an empty text before it has.
    pub fn mode(&self) -> &str {
        self.welcome
            .as_ref()
            .map_or("", |welcome| welcome.mode.as_str())
    }

    /// Asks, and waits for the answer within the usual time.
    ///
    /// # Errors
    /// As [`Self::call_full`]; a refusal comes back as an [`Error`] of its kind.
    pub fn call(&mut self, request: &Request) -> Result<Reply> {
        self.call_with_descriptor(request).map(|(reply, _)| reply)
    }

    /// Asks, and gives back the descriptor that came with the answer too.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn call_with_descriptor(&mut self, request: &Request) -> Result<(Reply, Option<OwnedFd>)> {
        let (reply, descriptor) =
            self.call_full(request, None, Deadline::after(Deadline::REQUEST))?;
        match reply {
            Reply::Refused(refusal) => Err(refused(&refusal)),
            other => Ok((other, descriptor)),
        }
    }

    /// Asks with a descriptor and a deadline of one's own. A refusal is a reply here.
    ///
    /// # Errors
    /// HELPER_UNREACHABLE: the connection broke, or the deadline passed. PROTOCOL: the answer is none.
    pub fn call_full(
        &mut self,
        request: &Request,
        descriptor: Option<BorrowedFd<'_>>,
        deadline: Deadline,
    ) -> Result<(Reply, Option<OwnedFd>)> {
        operations::tell_request(&self.path, request);
        let bytes = wire::encode_request(request).or_code(Code::Protocol)?;
        if !self.greeted {
            let hello = wire::encode_hello(&Hello::ours()).or_code(Code::Protocol)?;
            self.send(&hello, None)?;
            self.greeted = true;
        }
        self.send(&bytes, descriptor)?;
        if self.welcome.is_none() {
            self.welcome = Some(self.read_welcome(deadline)?);
        }
        let packet = self.receive(deadline)?;
        let reply = wire::decode_reply(&packet.bytes)
            .map_err(|why| self.version_or_protocol(&why.to_string()))?;
        Ok((reply, packet.descriptors.into_iter().next()))
    }

    fn read_welcome(&self, deadline: Deadline) -> Result<Welcome> {
        let packet = self.receive(deadline)?;
        // The magic goes first: a refusal's bytes can decode as a Welcome too.
        match wire::decode_welcome(&packet.bytes) {
            Ok(welcome) if welcome.magic == wire::MAGIC => return Ok(welcome),
            _ => {}
        }
        // A helper that has no room says so instead of greeting.
        match wire::decode_reply(&packet.bytes) {
            Ok(Reply::Refused(refusal)) if refusal.kind() != RefusalCode::Unknown(refusal.code) => {
                Err(refused(&refusal))
            }
            _ => Err(Error::new(
                Code::Protocol,
                format!("{} is no cgleaf helper's socket", self.path.display()),
            )),
        }
    }

    /// An answer that cannot be read is a version's fault if the versions differ.
    fn version_or_protocol(&self, why: &str) -> Error {
        match self.version_skew() {
            Some(skew) => Error::new(Code::Protocol, skew),
            None => Error::new(Code::Protocol, format!("the helper's answer: {why}")),
        }
    }

    /// One line that says which side is older, where the versions differ.
    pub fn version_skew(&self) -> Option<String> {
        let welcome = self.welcome.as_ref()?;
        let (theirs, ours) = (welcome.protocol, PROTOCOL);
        let (older, newer) = match theirs.cmp(&ours) {
            std::cmp::Ordering::Equal => return None,
            std::cmp::Ordering::Less => ("the helper", "this cgleaf"),
            std::cmp::Ordering::Greater => ("this cgleaf", "the helper"),
        };
        Some(format!(
            "{older} is older than {newer}: the helper at {} is {} (protocol {theirs}), this is {} (protocol {ours}); \
             list and destroy work, for the rest bring both to one version",
            self.path.display(),
            welcome.build,
            wire::BUILD,
        ))
    }

    fn send(&self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<()> {
        wire::send(self.socket.as_fd(), bytes, descriptor, true)
            .map_err(|error| self.broken("send to", &error))
    }

    fn receive(&self, deadline: Deadline) -> Result<wire::Packet> {
        self.await_readable(deadline)?;
        match wire::receive(self.socket.as_fd(), wire::MAX_REPLY) {
            Ok(Some(packet)) if packet.truncated => Err(Error::new(
                Code::Protocol,
                format!("an answer from {} is too long", self.path.display()),
            )),
            Ok(Some(packet)) => Ok(packet),
            Ok(None) => Err(self.broken(
                "read from",
                &std::io::Error::from_raw_os_error(libc::ECONNRESET),
            )),
            Err(error) => Err(self.broken("read from", &error)),
        }
    }

    fn await_readable(&self, deadline: Deadline) -> Result<()> {
        match interest::wait(self.socket.as_fd(), Some(deadline))? {
            Ready::Readable => Ok(()),
            Ready::Deadline => {
                let path = self.path.display();
                Err(Error::new(
                    Code::HelperUnreachable,
                    format!("the helper at {path} does not answer; is it stopped or frozen?"),
                ))
            }
        }
    }

    fn broken(&self, what: &str, error: &std::io::Error) -> Error {
        Error::new(
            Code::HelperUnreachable,
            format!("{what} the helper at {}: {error}", self.path.display()),
        )
        .with("socket", self.path.display().to_string())
        .with("errno", error.raw_os_error().unwrap_or(0))
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A listener's backlog may be full for a moment (`EAGAIN`), and a signal may come between.
fn connect_patiently(socket: &OwnedFd, address: &UnixAddr) -> nix::Result<()> {
    use std::os::fd::AsRawFd;
    loop {
        match connect(socket.as_raw_fd(), address) {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

/// Whether socket and directory are root's: only then is a root peer what it seems to be.
fn is_roots(path: &Path) -> bool {
    // The service's socket belongs to the user it serves; that nobody else can bind there is the directory's doing.
    path.parent()
        .and_then(|parent| std::fs::symlink_metadata(parent).ok())
        .is_some_and(|stat| stat.is_dir() && stat.uid() == 0 && stat.mode() & 0o022 == 0)
}

/// A helper's refusal as an error of ours.
pub(crate) fn refused(refusal: &wire::Refusal) -> Error {
    let code = match refusal.kind() {
        RefusalCode::NoSuchSession => Code::SessionNotFound,
        RefusalCode::BadMessage | RefusalCode::Version => Code::Protocol,
        RefusalCode::SessionExists | RefusalCode::NameTaken => Code::Usage,
        RefusalCode::PlaceNotServed
        | RefusalCode::Unsupported
        | RefusalCode::CgroupLimit
        | RefusalCode::QuotaSessions
        | RefusalCode::MoveDenied => Code::Unsupported,
        RefusalCode::QuotaClients | RefusalCode::Ending | RefusalCode::Exhausted => {
            Code::HelperUnreachable
        }
        RefusalCode::Kernel => Code::Internal,
        _ => Code::Refused,
    };
    Error::new(code, refusal.message.clone())
        .with("refusal", refusal.code)
        .with("errno", refusal.errno)
        .with("socket", refusal.socket.clone())
}
