//! A helper of a test's own, in direct mode, and clients that speak to it over the wire.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use cgleaf_shared::attestation::Attestation;
use cgleaf_shared::wire::{
    self, Hello, NewSession, Opened, Refusal, RefusalCode, Reply, Request, SessionEntry, Target,
    Welcome,
};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, setsockopt,
    socket, sockopt,
};

use crate::frontend::{programs, wait_for};
use crate::scratch::{DEADLINE, Scratch, skip, wait_until};

/// A scope directory, a socket, and the helper that serves them. Dropping it ends everything in it.
#[derive(Debug)]
pub struct Lair {
    _scratch: Scratch,
    scope: PathBuf,
    outside: PathBuf,
    directory: PathBuf,
    uid: u32,
    /// The helper, while it runs.
    pub helper: Option<Child>,
}

impl Lair {
    /// Makes one whose helper runs as `uid`, and starts that.
    #[must_use]
    pub fn new(uid: u32) -> Option<Self> {
        let mut lair = Self::without_helper(uid)?;
        lair.start(&[]);
        Some(lair)
    }

    /// Makes one without a helper.
    ///
    /// # Panics
    /// Where the directory for the socket cannot be made.
    #[must_use]
    pub fn without_helper(uid: u32) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !nix::unistd::geteuid().is_root() {
            skip("the helper's tests need root");
            return None;
        }
        let scratch = Scratch::new(uid)?;
        let scope = scratch.child("scope", uid);
        let outside = scratch.child("outside", uid);
        let directory = std::env::temp_dir().join(format!(
            "cgleaf-h{}-{}",
            crate::scratch::tag(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        ));
        fs::create_dir(&directory).expect("make a directory");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).expect("chmod");
        chown(&directory, Some(uid), Some(uid)).expect("chown");
        Some(Self {
            _scratch: scratch,
            scope,
            outside,
            directory,
            uid,
            helper: None,
        })
    }

    /// The scope directory.
    #[must_use]
    pub fn scope(&self) -> &Path {
        &self.scope
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.join("helper.sock")
    }

    /// A helper's command line in this place, with more arguments.
    pub fn command(&self, more: &[&str]) -> Command {
        let mut command = self.outside(&programs().join("cgleaf-helper"), self.uid);
        command
            .args(["serve", "--mode", "direct", "--scope-dir"])
            .arg(self.scope())
            .arg("--socket")
            .arg(self.socket())
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::from(self.log()));
        command
    }

    /// A program to be started as `uid` in a cgroup beside the scope directory: a user's helper can move itself and others
    /// only within what was delegated to that user.
    #[must_use]
    pub fn outside(&self, program: &Path, uid: u32) -> Command {
        let mut command = Command::new("bash");
        command
            .arg("-c")
            .arg("echo $$ >\"$0/cgroup.procs\" && exec setpriv --reuid $1 --regid $1 --clear-groups -- \"$2\" \"${@:3}\"")
            .arg(&self.outside)
            .arg(uid.to_string())
            .arg(program);
        command
    }

    /// A process that enrols itself: see [`Enrolled`].
    #[must_use]
    pub fn enrolled(&self, words: &[&str]) -> Enrolled {
        let mut command = self.outside(&client_program(), self.uid);
        command.arg(self.socket()).args(words);
        Enrolled::start(command)
    }

    fn log(&self) -> fs::File {
        fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.directory.join("log"))
            .expect("open the helper's log")
    }

    /// What its helpers have said.
    #[must_use]
    pub fn said(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Starts a helper and waits until it answers.
    ///
    /// # Panics
    /// Where it ends instead.
    pub fn start(&mut self, more: &[&str]) {
        let mut helper = self.command(more).spawn().expect("start the helper");
        wait_until("a helper that answers", || {
            if let Some(status) = helper.try_wait().expect("look at the helper") {
                panic!("the helper ended with {status}: {}", self.said());
            }
            Client::connect(&self.socket()).is_ok()
        });
        self.helper = Some(helper);
    }

    /// The helper's pid.
    ///
    /// # Panics
    /// Where there is none.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.helper.as_ref().expect("a helper").id()
    }

    /// Kills the helper as nothing else would, and reaps it.
    ///
    /// # Panics
    /// Where it cannot be killed.
    pub fn kill_helper(&mut self) {
        let mut helper = self.helper.take().expect("a helper");
        helper.kill().expect("kill the helper");
        wait_for(&mut helper);
    }

    /// A client of the helper's.
    ///
    /// # Panics
    /// Where it cannot be had.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::connect(&self.socket()).expect("a client")
    }

    /// The names of the cgroups directly in the scope directory.
    #[must_use]
    pub fn cgroups(&self) -> Vec<String> {
        let mut found: Vec<String> = fs::read_dir(self.scope())
            .expect("list the scope directory")
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        found.sort();
        found
    }

    /// How many descriptors the helper has open.
    ///
    /// # Panics
    /// Where that cannot be read.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .expect("list the helper's descriptors")
            .count()
    }
}

impl Drop for Lair {
    fn drop(&mut self) {
        if let Some(mut helper) = self.helper.take() {
            let _ = helper.kill();
            let _ = helper.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A helper as a service manager would start it: in its own cgroup, with a listening socket (owned by `owner`) as
/// descriptor 3, LISTEN_PID and, if given, NOTIFY_SOCKET. Killed with this value.
#[derive(Debug)]
pub struct Unit {
    /// The helper.
    pub child: Child,
    socket: PathBuf,
}

impl Unit {
    /// Starts one in `cgroup`, with `arguments` behind `serve`, its log at `log`.
    ///
    /// # Panics
    /// Where that fails.
    #[must_use]
    pub fn start(
        cgroup: &Path,
        path: &Path,
        owner: u32,
        arguments: &[&str],
        notify: Option<&Path>,
    ) -> Self {
        let environment: Vec<_> = notify
            .iter()
            .map(|path| ("NOTIFY_SOCKET", path.as_os_str()))
            .collect();
        Self::with_environment(cgroup, path, owner, arguments, &environment)
    }

    /// The same, with any environment: what else the service manager tells it.
    ///
    /// # Panics
    /// Where that fails.
    #[must_use]
    pub fn with_environment(
        cgroup: &Path,
        path: &Path,
        owner: u32,
        arguments: &[&str],
        environment: &[(&str, &OsStr)],
    ) -> Self {
        let _ = fs::remove_file(path);
        let listening = socket(
            AddressFamily::Unix,
            SockType::SeqPacket,
            SockFlag::empty(),
            None,
        )
        .expect("a socket");
        bind(
            listening.as_raw_fd(),
            &UnixAddr::new(path).expect("an address"),
        )
        .expect("bind");
        listen(&listening, Backlog::new(64).expect("a backlog")).expect("listen");
        chown(path, Some(owner), Some(owner)).expect("chown the socket");
        let take = match listening.as_raw_fd() {
            3 => String::new(),
            other => format!("exec 3<&{other} {other}<&-; "),
        };
        let script = format!(
            "echo $$ >\"$0/cgroup.procs\"; {take}export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\""
        );
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path.with_extension("log"))
            .expect("a log");
        let mut command = Command::new("bash");
        command
            .arg("-c")
            .arg(script)
            .arg(cgroup)
            .arg(programs().join("cgleaf-helper"))
            .arg("serve")
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::from(log));
        command.envs(environment.iter().copied());
        Self {
            child: command.spawn().expect("start the helper"),
            socket: path.to_path_buf(),
        }
    }

    /// A client; it waits in the socket's queue until the helper serves.
    ///
    /// # Panics
    /// Where the helper turns it away or is not there.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::connect(&self.socket).unwrap_or_else(|why| panic!("{why}: {}", self.said()))
    }

    /// What it has said.
    #[must_use]
    pub fn said(&self) -> String {
        fs::read_to_string(self.socket.with_extension("log")).unwrap_or_default()
    }

    /// Kills it as nothing else would, and reaps it.
    ///
    /// # Panics
    /// Where it cannot be killed.
    pub fn kill(&mut self) {
        self.child.kill().expect("kill the helper");
        wait_for(&mut self.child);
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `helper-client` started as `uid` in a cgroup, with what is to stand before its command line (such as unshare(1)).
#[must_use]
pub fn client_in(
    cgroup: &Path,
    uid: u32,
    before: &[&str],
    socket: &Path,
    words: &[&str],
) -> Enrolled {
    let mut command = Command::new("bash");
    command
        .arg("-c")
        .arg("echo $$ >\"$0/cgroup.procs\" && exec \"$@\"")
        .arg(cgroup)
        .args(before)
        .args([
            "setpriv",
            "--reuid",
            &uid.to_string(),
            "--regid",
            &uid.to_string(),
            "--clear-groups",
            "--",
        ])
        .arg(client_program())
        .arg(socket)
        .args(words);
    Enrolled::start(command)
}

/// One connection, that has said Hello.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    /// What the helper said of itself.
    pub welcome: Option<Welcome>,
}

impl Client {
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

/// A program that enrols itself over a connection of its own and then sleeps, killed with this value: the test program
/// `helper-client`.
#[derive(Debug)]
pub struct Enrolled {
    /// The process.
    pub child: Child,
    output: io::BufReader<std::process::ChildStdout>,
}

impl Enrolled {
    /// Starts one: `helper-client SOCKET WORD…`, as [`Lair::enrolled`] makes it.
    ///
    /// # Panics
    /// Where it cannot be started.
    #[must_use]
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("start helper-client");
        let output = io::BufReader::new(child.stdout.take().expect("its output"));
        Self { child, output }
    }

    /// The next line that it says; empty at its end.
    ///
    /// # Panics
    /// Where it cannot be read.
    #[must_use]
    pub fn line(&mut self) -> String {
        use io::BufRead;
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Enrolled {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The test program `helper-client`, beside the tests.
///
/// # Panics
/// Where the test does not know its own path.
#[must_use]
pub fn client_program() -> PathBuf {
    let own = std::env::current_exe().expect("the test's own path");
    let profile = own.ancestors().nth(2).expect("target/PROFILE/deps/test");
    profile.join("helper-client")
}
