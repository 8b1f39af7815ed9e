//! A clean context: one helper serves all of a user's sessions, so that nothing of its first caller may stay in it.
//!
//! systemd-run makes its scope around itself and executes the helper in place, so what it is started with is what the
//! helper gets (DESIGN 3.1).

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd, RawFd};

use cgleaf_shared::process::{Pid, set_umask};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::{pipe2, setsid};

use crate::error::{Code, OrCode, Result};
use crate::sys::{self, Forked, Image};

/// The number of the inherited socket in the program that is started.
pub(super) const SOCKET_NUMBER: RawFd = 3;

/// Numbers from here on are out of the way of those that the program is given.
const OUT_OF_THE_WAY: RawFd = 10;

/// What is kept of a program that was started.
#[derive(Debug)]
pub(super) struct Started {
    /// The other end of its socket. The pair was made by this process, which the kernel names as its peer.
    pub(super) socket: OwnedFd,
    /// What it writes on stderr: read for its last words if it does not answer. Dropped, it leads nowhere.
    pub(super) stderr: OwnedFd,
}

/// The descriptors that the program is given.
struct Given {
    null: File,
    socket: OwnedFd,
    stderr: OwnedFd,
}

/// Starts a program that is nobody's child here and has nothing of this process but a socket, and a stderr that is read.
///
/// # Errors
/// INTERNAL: a socket, a pipe or a process cannot be made.
pub(super) fn start(image: &Image) -> Result<Started> {
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
        .or_code(Code::Internal)
        .map_err(|error| error.while_doing("open /dev/null"))?;
    let (ours, theirs) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )
    .or_code(Code::Internal)
    .map_err(|error| error.while_doing("make a socket pair for a helper"))?;
    let (stderr, their_stderr) = pipe2(OFlag::O_CLOEXEC)
        .or_code(Code::Internal)
        .map_err(|error| error.while_doing("make a pipe for a helper's stderr"))?;
    let given = Given {
        socket: out_of_the_way(&theirs)?,
        stderr: out_of_the_way(&their_stderr)?,
        null,
    };
    let _orphans_go_elsewhere = NoSubreaper::new();
    match fork()? {
        Forked::Child => go_between(image, &given),
        Forked::Parent(child) => reap(child),
    }
    Ok(Started {
        socket: ours,
        stderr,
    })
}

/// Both children only make system calls until they execute the program or end.
fn fork() -> Result<Forked> {
    sys::fork()
        .or_code(Code::Internal)
        .map_err(|error| error.while_doing("fork"))
}

fn out_of_the_way(fd: &OwnedFd) -> Result<OwnedFd> {
    sys::own_copy_from(fd.as_fd(), OUT_OF_THE_WAY)
        .or_code(Code::Internal)
        .map_err(|error| error.while_doing("copy a descriptor for a helper"))
}

/// The first child: it leaves the caller's session and terminal, forks, and is gone, so that what it has forked belongs
/// to no process of the caller's.
fn go_between(image: &Image, given: &Given) -> ! {
    let _ = setsid();
    match fork() {
        Ok(Forked::Child) => become_it(image, given),
        Ok(Forked::Parent(_)) => sys::exit_now(0),
        Err(_) => sys::exit_now(1),
    }
}

fn become_it(image: &Image, given: &Given) -> ! {
    let _ = sys::put_at(given.null.as_fd(), 0);
    let _ = sys::put_at(given.null.as_fd(), 1);
    let _ = sys::put_at(given.stderr.as_fd(), 2);
    let _ = sys::put_at(given.socket.as_fd(), SOCKET_NUMBER);
    sys::close_from(SOCKET_NUMBER + 1);
    // A helper sets its own, and says so where it cannot.
    let _ = set_umask(0o077);
    let _ = nix::unistd::chdir("/");
    sys::all_signals_to_default();
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None);
    let error = image.execute_no_script();
    let path = image.path().to_string_lossy();
    let _ = writeln!(std::io::stderr(), "execute {path}: {error}");
    sys::exit_now(super::NOT_FOUND)
}

/// It ends at once. Where SIGCHLD is ignored the kernel has reaped it already: ECHILD, after its end too.
fn reap(child: Pid) {
    let child = nix::unistd::Pid::from_raw(child.get());
    while nix::sys::wait::waitpid(child, None) == Err(Errno::EINTR) {}
}

/// Orphans come to the nearest subreaper above, which may be this process itself: then the helper would become a child of
/// the program that this process executes. So it is none until the go-between is gone.
struct NoSubreaper {
    was: bool,
}

impl NoSubreaper {
    fn new() -> Self {
        let was = nix::sys::prctl::get_child_subreaper().unwrap_or(false);
        if was {
            let _ = nix::sys::prctl::set_child_subreaper(false);
        }
        Self { was }
    }
}

impl Drop for NoSubreaper {
    fn drop(&mut self) {
        if self.was {
            let _ = nix::sys::prctl::set_child_subreaper(true);
        }
    }
}
