//! A directory of ours that nobody else may write: opened without following links, its owner and mode checked on
//! the descriptor, and so are those of every file in it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::operations;
use cgleaf_shared::id::{BootTime, Nonce, Uid};
use cgleaf_shared::{IoContext, IoError};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{
    AT_FDCWD, AtFlags, Flock, FlockArg, OFlag, RenameFlags, openat, renameat, renameat2,
};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, SFlag, fchmod, fchmodat, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};

/// The largest file that is read: a record has some hundred bytes.
const MAX_FILE: u64 = 64 * 1024;
/// How the name of a file begins that is not whole yet.
const TEMPORARY: &str = ".new-";
/// How many milliseconds are waited for a turn; what is done in one takes microseconds.
const TURNS: u32 = 100;
/// How often a file is opened again that was replaced just after it was opened.
const REPLACED: u32 = 100;
const DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_CLOEXEC)
    .union(OFlag::O_NOFOLLOW);

/// A directory with mode 0700 that belongs to this user, held open.
#[derive(Debug)]
pub struct PrivateDir {
    fd: OwnedFd,
    path: PathBuf,
}

/// What reading a file in a [`PrivateDir`] comes to, beside I/O errors.
#[derive(Debug)]
pub enum Content {
    /// The whole content.
    Bytes(Vec<u8>),
    /// It is not one that we would have made; why.
    NotOurs(String),
}

impl PrivateDir {
    /// Opens it, and makes it first where it does not exist; its parent must exist.
    ///
    /// # Errors
    /// It cannot be made or opened, is a link, belongs to another user, or others may write in it.
    pub fn open_or_make(path: &Path) -> Result<Self, IoError> {
        match mkdirat(AT_FDCWD, path, Mode::S_IRWXU) {
            Ok(()) => {
                // The umask may have taken from the owner too. Nobody else can have put anything else there meanwhile.
                fchmodat(AT_FDCWD, path, Mode::S_IRWXU, FchmodatFlags::FollowSymlink)
                    .context("chmod", path)?;
                Self::open(path)
            }
            Err(Errno::EEXIST) => Self::open(path),
            Err(errno) => Err(IoError::new("make the directory", path, errno)),
        }
    }

    /// Opens it.
    ///
    /// # Errors
    /// As [`Self::open_or_make`]; `ENOENT` where it does not exist.
    pub fn open(path: &Path) -> Result<Self, IoError> {
        let fd =
            openat(AT_FDCWD, path, DIRECTORY, Mode::empty()).context("open the directory", path)?;
        let stat = fstat(&fd).context("stat", path)?;
        require_ours(&stat).context("trust the directory", path)?;
        Ok(Self {
            fd,
            path: path.to_path_buf(),
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names in it, dot files left out.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn names(&self) -> Result<Vec<String>, IoError> {
        let mut dir =
            Dir::openat(&self.fd, ".", DIRECTORY, Mode::empty()).context("open", &self.path)?;
        let mut names = Vec::new();
        for entry in dir.iter() {
            let entry = entry.context("list", &self.path)?;
            if let Ok(name) = entry.file_name().to_str()
                && !name.starts_with('.')
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// The temporary files that a writer left behind: those made at least `age` ago. A younger one may be somebody's who is
    /// just writing. The age goes by CLOCK_BOOTTIME, which no step of the wall clock changes.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn stale_temporaries(&self, age: Duration) -> Result<Vec<String>, IoError> {
        let now = BootTime::now();
        let mut dir =
            Dir::openat(&self.fd, ".", DIRECTORY, Mode::empty()).context("open", &self.path)?;
        let mut names = Vec::new();
        for entry in dir.iter() {
            let entry = entry.context("list", &self.path)?;
            if let Ok(name) = entry.file_name().to_str()
                && let Some(rest) = name.strip_prefix(TEMPORARY)
                && is_older(rest, age, now)
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Reads a whole file; `None` where there is none.
    ///
    /// # Errors
    /// If it cannot be opened or read.
    pub fn read(&self, name: &str) -> Result<Option<Content>, IoError> {
        for _ in 1..REPLACED {
            if let Some(seen) = self.read_once(name)? {
                return Ok(seen);
            }
        }
        let name = self.path.join(name);
        Err(IoError::new("read", name, Errno::EAGAIN))
    }

    /// None if it lost its name between the opening and the look at it: somebody put a new one there, or took it away.
    fn read_once(&self, name: &str) -> Result<Option<Option<Content>>, IoError> {
        let path = self.path.join(name);
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let file = match openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::ENOENT) => return Ok(Some(None)),
            Err(Errno::ELOOP) => {
                let why = "it is a symbolic link".to_owned();
                return Ok(Some(Some(Content::NotOurs(why))));
            }
            Err(Errno::ENXIO) => {
                return Ok(Some(Some(Content::NotOurs("it is a socket".to_owned()))));
            }
            Err(errno) => return self.why_not_opened(name, errno).map(Some),
        };
        let stat = fstat(&file).context("stat", &path)?;
        if stat.st_nlink == 0 {
            return Ok(None);
        }
        if let Some(why) = not_ours(&stat) {
            return Ok(Some(Some(Content::NotOurs(why))));
        }
        let mut bytes = Vec::new();
        file.take(MAX_FILE)
            .read_to_end(&mut bytes)
            .context("read", &path)?;
        Ok(Some(Some(Content::Bytes(bytes))))
    }

    /// A file that is there and may not be opened is none that we would have made, and no failure of the directory.
    fn why_not_opened(&self, name: &str, errno: Errno) -> Result<Option<Content>, IoError> {
        match nix::sys::stat::fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) if errno == Errno::EACCES => {
                let refused = || {
                    format!(
                        "it may not be read: its mode is {:04o}",
                        stat.st_mode & 0o7777
                    )
                };
                let why = not_ours(&stat).unwrap_or_else(refused);
                Ok(Some(Content::NotOurs(why)))
            }
            _ => Err(IoError::new("open", self.path.join(name), errno)),
        }
    }

    /// Whether a name is there, whatever it is.
    ///
    /// # Errors
    /// If it cannot be told.
    pub fn has(&self, name: &str) -> Result<bool, IoError> {
        match nix::sys::stat::fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(IoError::new("stat", self.path.join(name), errno)),
        }
    }

    /// Replaces or makes a file whole: a temporary one, then a rename. No fsync: what is in here is worth nothing
    /// after a reboot, and a rename survives our own crashes.
    ///
    /// # Errors
    /// `ENOSPC` and its like; the old content is then untouched.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), IoError> {
        operations::tell(|| format!("rename(2): a new {}", self.path.join(name).display()));
        let temporary = self.write_temporary(bytes)?;
        renameat(&self.fd, temporary.as_str(), &self.fd, name)
            .inspect_err(|_| self.discard(&temporary))
            .context("rename a new file to", self.path.join(name))
    }

    /// Makes a file whole if there is none of that name, and says whether it did.
    ///
    /// # Errors
    /// `ENOSPC` and its like; nothing is then left behind.
    pub fn create(&self, name: &str, bytes: &[u8]) -> Result<bool, IoError> {
        operations::tell(|| {
            format!(
                "renameat2(2), RENAME_NOREPLACE: {}",
                self.path.join(name).display()
            )
        });
        let temporary = self.write_temporary(bytes)?;
        let renamed = match renameat2(
            &self.fd,
            temporary.as_str(),
            &self.fd,
            name,
            RenameFlags::RENAME_NOREPLACE,
        ) {
            // A file system without that flag: a link is as exclusive.
            Err(Errno::EINVAL | Errno::ENOSYS) => {
                let linked = linkat(
                    &self.fd,
                    temporary.as_str(),
                    &self.fd,
                    name,
                    AtFlags::empty(),
                );
                self.discard(&temporary);
                linked
            }
            other => other.inspect_err(|_| self.discard(&temporary)),
        };
        match renamed {
            Ok(()) => Ok(true),
            Err(Errno::EEXIST) => Ok(false),
            Err(errno) => Err(IoError::new("make", self.path.join(name), errno)),
        }
    }

    /// Has other processes that take a turn in this directory wait until the answer is dropped (flock(2)). It is no
    /// condition: one that has its turn may stand still in a frozen session, and nobody waits long for that.
    pub fn take_turn(&self) -> Option<Flock<OwnedFd>> {
        let mut own = openat(&self.fd, ".", DIRECTORY, Mode::empty()).ok()?;
        for _ in 0..TURNS {
            match Flock::lock(own, FlockArg::LockExclusiveNonblock) {
                Ok(turn) => return Some(turn),
                Err((fd, Errno::EWOULDBLOCK)) => own = fd,
                Err(_) => return None,
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    /// Removes a file; that it is gone already is fine.
    ///
    /// # Errors
    /// If it is there and cannot be removed.
    pub fn remove(&self, name: &str) -> Result<(), IoError> {
        operations::tell(|| format!("unlink(2): {}", self.path.join(name).display()));
        match unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(IoError::new("remove", self.path.join(name), errno)),
        }
    }

    fn write_temporary(&self, bytes: &[u8]) -> Result<String, IoError> {
        let name = format!("{TEMPORARY}{}-{}", BootTime::now(), Nonce::generate()?);
        let path = self.path.join(&name);
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let mut file =
            File::from(openat(&self.fd, name.as_str(), flags, mode).context("make", &path)?);
        let whole = fchmod(&file, mode)
            .map_err(io::Error::from)
            .and_then(|()| file.write_all(bytes));
        whole
            .inspect_err(|_| self.discard(&name))
            .context("write", &path)?;
        Ok(name)
    }

    /// Best effort: a temporary file that stays is taken away by gc.
    fn discard(&self, name: &str) {
        let _ = unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir);
    }
}

impl AsFd for PrivateDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether a temporary file was made at least `age` before `now`, by what its name says after the beginning. One that says
/// nothing readable, or a time that is as far to come, is of an earlier boot, or nobody's. One made since `now` was asked for is
/// somebody's who is just writing.
fn is_older(rest: &str, age: Duration, now: BootTime) -> bool {
    let made = rest
        .split('-')
        .next()
        .and_then(|made| made.parse::<u64>().ok());
    made.is_none_or(|made| Duration::from_nanos(made.abs_diff(now.0)) >= age)
}

/// Refuses a directory of another user, or one that others may enter.
fn require_ours(stat: &FileStat) -> io::Result<()> {
    let refuse = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    let own = Uid::effective();
    if stat.st_uid != own.0 {
        return refuse(format!(
            "it belongs to uid {}, this is uid {own}",
            stat.st_uid
        ));
    }
    match stat.st_mode & 0o077 {
        0 => Ok(()),
        _ => refuse(format!(
            "its mode is {:04o}: others may use it; it must be 0700",
            stat.st_mode & 0o7777
        )),
    }
}

/// Why a file is not one that we made, if so.
fn not_ours(stat: &FileStat) -> Option<String> {
    let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
    let own = Uid::effective();
    if kind != SFlag::S_IFREG {
        Some("it is no regular file".to_owned())
    } else if stat.st_uid != own.0 {
        Some(format!(
            "it belongs to uid {}, this is uid {own}",
            stat.st_uid
        ))
    } else if stat.st_mode & 0o177 != 0 {
        Some(format!(
            "its mode is {:04o}, not 0600",
            stat.st_mode & 0o7777
        ))
    } else if stat.st_nlink != 1 {
        Some(format!("it has {} links", stat.st_nlink))
    } else if u64::try_from(stat.st_size).unwrap_or(u64::MAX) > MAX_FILE {
        Some(format!("it has {} bytes", stat.st_size))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_file_is_as_old_as_its_name_says() {
        let age = Duration::from_secs(600);
        let now = BootTime(1_000_000_000_000);
        let old = |rest: &str| is_older(rest, age, now);
        assert!(!old("999999999999-00ff"));
        assert!(!old("400000000001-00ff"));
        assert!(old("400000000000-00ff"));
        assert!(!old("1000000000001-00ff"), "somebody is just writing it");
        assert!(old("1600000000000-00ff"), "it is of an earlier boot");
        assert!(old("00ff") && old(""), "nobody writes such a one");
    }
}
