//! One connection: Hello and the first request back to back, then a reply for each request.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cgleaf_shared::id::Uid;
use cgleaf_shared::wire::{self, Hello, PROTOCOL, Reply, Request, Welcome};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, setsockopt, socket, sockopt,
    sockopt::PeerCredentials,
};
use nix::sys::time::{TimeSpec, TimeVal};

use super::deadline::Deadline;
use super::errors::{has_ended, is_known, mute, refused};
use super::interest::{self, Ready};
use super::patience;
use crate::error::{Code, Error, OrCode, Result};
use crate::operations;

/// A connected helper.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    path: PathBuf,
    welcome: Option<Welcome>,
    greeted: bool,
    /// A question of it was not answered in time. Its answer may come yet, and would be taken for that to the next one.
    late: bool,
    /// Whether it was connected to a second time, or cannot be.
    connected_again: bool,
}

/// How a helper has hung up that had not greeted.
enum Parting {
    /// It has said nothing.
    Silent,
    /// It has greeted after all, and may have done what it was asked.
    Greeted,
    /// It has said why.
    Refusal(wire::Refusal),
}

impl Client {
    /// Connects to a helper's socket, and makes sure that its peer is one to trust: our own user, or root where socket
    /// and directory are root's.
    ///
    /// # Errors
    /// HELPER_UNREACHABLE: nobody listens. REFUSED: the peer is not to be trusted. USAGE: the path is not UTF-8.
    pub fn connect(path: &Path) -> Result<Self> {
        if path.to_str().is_none() {
            return Err(Error::new(
                Code::Usage,
                format!(
                    "connect to {}: the path is not UTF-8, so that no record could name it; give the helper another socket",
                    path.display()
                ),
            ));
        }
        if patience::is_mute(path) {
            return Err(mute(path));
        }
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
        limit(&socket, patience::for_a_question()).map_err(unreachable)?;
        connect_patiently(&socket, &address).map_err(|errno| match errno {
            Errno::EAGAIN => {
                patience::note_mute(path);
                mute(path)
            }
            other => unreachable(other),
        })?;
        let client = Self {
            socket,
            path: path.to_path_buf(),
            welcome: None,
            greeted: false,
            late: false,
            connected_again: false,
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
            late: false,
            connected_again: true,
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
        if self.late {
            return Err(mute(&self.path));
        }
        let bytes = wire::encode_request(request).or_code(Code::Protocol)?;
        let deadline = deadline.earlier(Deadline::after(patience::for_a_question()));
        let answer = match self.exchange(&bytes, descriptor, deadline) {
            Err(error) if self.welcome.is_none() && has_ended(&error) => match self.parting() {
                Parting::Refusal(refusal) => Err(refused(&refusal)),
                Parting::Silent if self.connects_again() => {
                    self.exchange(&bytes, descriptor, deadline)
                }
                Parting::Silent | Parting::Greeted => Err(error),
            },
            other => other,
        };
        // An interrupted wait leaves its answer to come, too; a connection that has ended leaves none.
        self.late = answer.as_ref().err().is_some_and(|error| !has_ended(error));
        let packet = answer?;
        let reply = wire::decode_reply(&packet.bytes)
            .map_err(|why| self.version_or_protocol(&why.to_string()))?;
        Ok((reply, packet.descriptors.into_iter().next()))
    }

    fn exchange(
        &mut self,
        request: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
        deadline: Deadline,
    ) -> Result<wire::Packet> {
        if !self.greeted {
            let hello = wire::encode_hello(&Hello::ours()).or_code(Code::Protocol)?;
            self.send(&hello, None)?;
            self.greeted = true;
        }
        self.send(request, descriptor)?;
        if self.welcome.is_none() {
            self.welcome = Some(self.read_welcome(deadline)?);
        }
        self.receive(deadline)
    }

    /// A helper that turns a client away says why and hangs up, perhaps before the client has said anything: what it sent is there
    /// to be read behind the error.
    fn parting(&self) -> Parting {
        let Ok(Some(packet)) = wire::receive(self.socket.as_fd(), wire::MAX_REPLY) else {
            return Parting::Silent;
        };
        match wire::decode_reply(&packet.bytes) {
            Ok(Reply::Refused(refusal)) if is_known(&refusal) => Parting::Refusal(refusal),
            _ => Parting::Greeted,
        }
    }

    /// A helper greets before it does anything. One that has hung up on a client which came to say nothing in time, as on a machine
    /// that is full of processes, has done nothing, and may be there still; so it is with one whose place another has taken.
    fn connects_again(&mut self) -> bool {
        if std::mem::replace(&mut self.connected_again, true) {
            return false;
        }
        let Ok(again) = Self::connect(&self.path) else {
            return false;
        };
        self.socket = again.socket;
        self.greeted = false;
        true
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
            Ok(Reply::Refused(refusal)) if is_known(&refusal) => Err(refused(&refusal)),
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
        wire::send(self.socket.as_fd(), bytes, descriptor, true).map_err(|error| {
            if error.kind() != std::io::ErrorKind::WouldBlock {
                return self.broken("send to", &error);
            }
            patience::note_mute(&self.path);
            mute(&self.path)
        })
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
                patience::note_mute(&self.path);
                Err(mute(&self.path))
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

/// Connecting waits while the listener's queue is full, and sending while the helper does not read: so long at most, then they
/// fail with EAGAIN (unix(7), socket(7)).
fn limit(socket: &OwnedFd, time: Duration) -> nix::Result<()> {
    let seconds = TimeSpec::from_duration(time).tv_sec();
    setsockopt(
        socket,
        sockopt::SendTimeout,
        &TimeVal::new(seconds.max(1), 0),
    )
}

/// A signal may come between.
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

#[cfg(test)]
mod tests {
    use cgleaf_shared::wire::RefusalCode;
    use nix::sys::socket::socketpair;

    use super::*;

    /// A helper that was stopped and goes on answers what was asked before.
    #[test]
    fn an_answer_that_comes_too_late_is_not_taken_for_that_to_the_next_question() {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)
            .expect("a socketpair");
        let mut client = Client::from_socket(ours, PathBuf::from("/run/x.sock"));
        let soon = Deadline::after(Duration::from_millis(20));
        let unanswered = client.call_full(&Request::Status, None, soon);
        let error = unanswered.expect_err("nobody answers");
        assert_eq!(error.code(), Code::HelperUnreachable);
        assert!(!has_ended(&error));
        let welcome = Welcome {
            magic: wire::MAGIC,
            protocol: PROTOCOL,
            build: String::new(),
            mode: "direct".to_owned(),
            enforced: Vec::new(),
        };
        let welcome = wire::encode_welcome(&welcome).expect("a welcome");
        let reply = wire::encode_reply(&Reply::Killed).expect("a reply");
        for packet in [welcome, reply] {
            wire::send(theirs.as_fd(), &packet, None, true).expect("sent");
        }
        let again = client
            .call(&Request::Status)
            .expect_err("it is not asked again");
        assert_eq!(again.message(), error.message());
    }

    #[test]
    fn why_a_client_is_turned_away_is_heard_although_nothing_can_be_sent() {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)
            .expect("a socketpair");
        let refusal = wire::Refusal::new(RefusalCode::QuotaClients, "there are too many");
        let reply = wire::encode_reply(&Reply::Refused(refusal)).expect("a reply");
        wire::send(theirs.as_fd(), &reply, None, true).expect("sent");
        drop(theirs);
        let mut client = Client::from_socket(ours, PathBuf::from("/run/x.sock"));
        let error = client
            .call(&Request::Status)
            .expect_err("it is turned away");
        assert_eq!(error.message(), "there are too many");
    }
}
