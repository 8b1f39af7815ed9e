//! The helper's sockets: bound by itself, with a lock that decides whose the path is, or taken from the service manager.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, getsockname, getsockopt, listen,
    socket, sockopt,
};
use nix::sys::stat::fstatat;
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::sys;

/// How many clients may wait to be accepted. Who comes then waits for a place in the queue, which is soon; in a long queue he would
/// wait behind all that somebody else put there. A service manager's is shortened to this, thousands by default.
const QUEUE: i32 = 64;

/// Another helper has the socket.
#[derive(Debug)]
pub(crate) struct LockHeld(PathBuf);

impl fmt::Display for LockHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "another helper has {}: connect to it", self.0.display())
    }
}

impl std::error::Error for LockHeld {}

/// The right to bind a path, for as long as this is kept: the kernel drops it with its holder, however that ends.
#[derive(Debug)]
pub(crate) struct Claim {
    path: PathBuf,
    directory: File,
    lock_name: OsString,
    /// It is no mode's usual place.
    is_lone: bool,
    _lock: File,
}

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    /// Where clients reach it; empty for an unnamed one.
    path: String,
    /// Where it was bound by this helper; `None` for the service manager's.
    bound: Option<Bound>,
}

#[derive(Debug)]
struct Bound {
    claim: Claim,
    inode: u64,
}

impl Claim {
    /// Takes the lock beside the path. The lock file of a mode's usual place is never removed; one of a lone helper, of which there may
    /// be any number in time, goes with its socket, and whoever has opened it meanwhile sees that and opens the next.
    pub(crate) fn take(path: &Path, is_lone: bool) -> Result<Self> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            bail!("{} is no path for a socket", path.display());
        };
        let directory = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(parent)
            .with_context(|| format!("open {}", parent.display()))?;
        require_private(&directory, parent)?;
        let mut lock_name = name.to_owned();
        lock_name.push(".lock");
        let lock_path = parent.join(&lock_name);
        loop {
            let lock = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
                .open(&lock_path)
                .with_context(|| format!("open {}", lock_path.display()))?;
            match lock.try_lock() {
                Ok(()) if is_at(&lock, &lock_path) => {
                    return Ok(Self {
                        path: path.to_path_buf(),
                        directory,
                        lock_name,
                        is_lone,
                        _lock: lock,
                    });
                }
                // Its last holder has removed it since it was opened.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(LockHeld(path.to_path_buf()).into()),
                Err(TryLockError::Error(error)) => {
                    return Err(error).with_context(|| format!("lock {}", lock_path.display()));
                }
            }
        }
    }

    /// Binds the path. Whatever socket is there is nobody's: its helper would have the lock.
    pub(crate) fn bind(self) -> Result<Listener> {
        let shown = self.path.display().to_string();
        match std::fs::symlink_metadata(&self.path) {
            Ok(there) if is_socket(&there) => {
                std::fs::remove_file(&self.path).with_context(|| {
                    format!("remove the socket that a former helper left at {shown}")
                })?;
            }
            Ok(_) => bail!("{shown} is there and is no socket: name another path"),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("look at {shown}")),
        }
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
            .context("make a socket")?;
        let address =
            UnixAddr::new(&self.path).with_context(|| format!("{shown} as an address"))?;
        bind(socket.as_raw_fd(), &address).with_context(|| format!("bind {shown}"))?;
        let inode = std::fs::symlink_metadata(&self.path)
            .with_context(|| format!("look at {shown}"))?
            .ino();
        listen(&socket, Backlog::new(QUEUE)?).with_context(|| format!("listen at {shown}"))?;
        Ok(Listener {
            socket,
            path: shown,
            bound: Some(Bound { claim: self, inode }),
        })
    }
}

/// Whether the file that is open is the one that has this name. What cannot be told counts as so: it was just opened by it.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        (_, Err(error)) => error.kind() != std::io::ErrorKind::NotFound,
        (Err(_), Ok(_)) => true,
    }
}

fn is_socket(there: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    there.file_type().is_socket()
}

/// In a directory that others may write to, somebody else could take the socket's place.
fn require_private(directory: &File, path: &Path) -> Result<()> {
    let there = directory
        .metadata()
        .with_context(|| format!("look at {}", path.display()))?;
    let own = nix::unistd::geteuid().as_raw();
    if (there.uid() == own || there.uid() == 0) && there.mode() & 0o022 == 0 {
        return Ok(());
    }
    bail!(
        "{} belongs to uid {} with mode {:o}: a socket's directory must be our own, and nobody else's to write to",
        path.display(),
        there.uid(),
        there.mode() & 0o7777
    )
}

impl Listener {
    /// The sockets that the service manager has open for us (sd_listen_fds(3)).
    pub(crate) fn from_manager() -> Result<Vec<Self>> {
        let numbers: Vec<_> = sd_notify::listen_fds()
            .context("read LISTEN_FDS")?
            .collect();
        numbers.into_iter().map(Self::inherited).collect()
    }

    fn inherited(number: std::os::fd::RawFd) -> Result<Self> {
        let socket = sys::own_inherited(number)
            .with_context(|| format!("take descriptor {number}, which LISTEN_FDS promises"))?;
        require_seqpacket(socket.as_fd(), number)?;
        if !getsockopt(&socket, sockopt::AcceptConn).unwrap_or(false) {
            bail!(
                "descriptor {number} does not listen: use ListenSequentialPacket= in the socket unit"
            );
        }
        set_nonblocking(socket.as_fd())?;
        listen(&socket, Backlog::new(QUEUE)?)
            .with_context(|| format!("listen at descriptor {number}"))?;
        let path = getsockname::<UnixAddr>(socket.as_raw_fd())
            .ok()
            .and_then(|address| address.path().map(|path| path.display().to_string()));
        Ok(Self {
            socket,
            path: path.unwrap_or_default(),
            bound: None,
        })
    }

    /// No client can send a descriptor any more. Before 6.16 the kernel cannot see to that.
    pub(crate) fn refuse_descriptors(&self) -> Result<()> {
        match sys::passrights::refuse(self.socket.as_fd()) {
            Ok(()) | Err(nix::errno::Errno::ENOPROTOOPT) => Ok(()),
            Err(errno) => Err(errno).context("set SO_PASSRIGHTS to 0"),
        }
    }

    /// Where clients reach it; empty for an unnamed one.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The directory in which it will remove its socket.
    pub(crate) fn directory(&self) -> Option<BorrowedFd<'_>> {
        self.bound
            .as_ref()
            .map(|bound| bound.claim.directory.as_fd())
    }

    /// Removes the socket's name, if it still is ours, while the lock is held.
    pub(crate) fn unlink(&self) {
        let Some(bound) = &self.bound else { return };
        let Some(name) = bound.claim.path.file_name() else {
            return;
        };
        let flags = nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW;
        let ours = fstatat(&bound.claim.directory, name, flags)
            .is_ok_and(|there| there.st_ino == bound.inode);
        if !ours {
            return;
        }
        remove(&bound.claim, name);
    }
}

/// The lock of a lone helper goes with it, also when its start failed.
impl Drop for Claim {
    fn drop(&mut self) {
        if self.is_lone {
            remove(self, &self.lock_name);
        }
    }
}

fn remove(claim: &Claim, name: &OsStr) {
    if let Err(errno) = unlinkat(&claim.directory, name, UnlinkatFlags::NoRemoveDir) {
        let path = claim.path.with_file_name(name);
        crate::log::line(format_args!("remove {}: {errno}", path.display()));
    }
}

/// A start that fails later leaves no socket behind either.
impl Drop for Listener {
    fn drop(&mut self) {
        self.unlink();
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A connected socket that was inherited: the first client's other end.
pub(crate) fn inherited_client(number: std::os::fd::RawFd) -> Result<OwnedFd> {
    let socket = sys::own_inherited(number)
        .with_context(|| format!("take descriptor {number} (--client-fd)"))?;
    require_seqpacket(socket.as_fd(), number)?;
    set_nonblocking(socket.as_fd())?;
    Ok(socket)
}

fn require_seqpacket(socket: BorrowedFd<'_>, number: std::os::fd::RawFd) -> Result<()> {
    match getsockopt(&socket, sockopt::SockType) {
        Ok(SockType::SeqPacket) => Ok(()),
        Ok(other) => bail!("descriptor {number} is a socket of type {other:?}, not SOCK_SEQPACKET"),
        Err(errno) => bail!("descriptor {number} is no socket: {errno}"),
    }
}

fn set_nonblocking(socket: BorrowedFd<'_>) -> Result<()> {
    let flags =
        OFlag::from_bits_retain(fcntl(socket, FcntlArg::F_GETFL).context("fcntl(F_GETFL)")?);
    fcntl(socket, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).context("fcntl(F_SETFL)")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_has_lost_its_name_is_nobodys() {
        let name = format!("cgleaf-lock-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let first = File::create(&path).expect("make it");
        assert!(is_at(&first, &path));
        std::fs::remove_file(&path).expect("remove it");
        assert!(!is_at(&first, &path));
        let second = File::create(&path).expect("make it again");
        let seen = (is_at(&first, &path), is_at(&second, &path));
        std::fs::remove_file(&path).expect("remove it");
        assert_eq!(seen, (false, true));
    }
}
