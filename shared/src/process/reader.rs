//! Reading `/proc` (proc(5)): thin calls of openat(2) and read(2) around the parsers beside it.
//!
//! Nothing here asks for a file's size or follows a path twice: the helper reads through this module under its seccomp
//! filter, which has no statx(2).

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2, readlinkat};
use nix::sys::stat::Mode;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

use super::directory::ProcessDir;
use super::identity::Pid;
use super::{files, stat, status};
use crate::id::BootId;

/// The largest file of `/proc` that is read: an environment or a command line may be as long as a quarter of the stack
/// limit (execve(2)), and nobody needs more than this of it.
const READ_LIMIT: usize = 8 << 20;

/// Why a file of `/proc` gave no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// ENOENT or ESRCH: no such process, or (with `hidepid`) none that this reader may see.
    #[error("{} is not there: the process has ended, or is hidden from this one", path.display())]
    Gone {
        /// What was to be read.
        path: PathBuf,
    },
    /// Any other refusal: the process may well be there.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// What was to be read.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Something else is mounted there, or nothing.
    #[error("{path} is no proc file system: mount one, as root: `mount -t proc proc {path}`", path = path.display())]
    NoProc {
        /// Where one was looked for.
        path: PathBuf,
    },
    /// It was read and is not what a kernel writes there.
    #[error("{} does not hold what proc(5) says it holds", path.display())]
    Malformed {
        /// What was read.
        path: PathBuf,
    },
}

impl ReadError {
    fn new(path: PathBuf, source: io::Error) -> ReadError {
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => ReadError::Gone { path },
            _ => ReadError::Unreadable { path, source },
        }
    }

    /// Is the file, and with it the process, not there?
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, ReadError::Gone { .. })
    }
}

/// Whose processes a `/proc` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcView {
    /// Those of the calling process's own pid namespace: its numbers are what kill(2) takes.
    Own,
    /// Those of another pid namespace: its numbers mean other processes to kill(2), or nobody.
    Foreign,
}

/// A mounted `/proc`, held open.
#[derive(Debug)]
pub struct Proc {
    root: OwnedFd,
    path: PathBuf,
    view: OnceLock<ProcView>,
}

impl Proc {
    /// Opens `/proc`.
    ///
    /// # Errors
    /// What open(2) answers; [`ReadError::NoProc`] if it is no procfs.
    pub fn system() -> Result<Proc, ReadError> {
        Proc::at(Path::new("/proc"))
    }

    /// Opens the procfs mounted at `path`.
    ///
    /// # Errors
    /// As [`Proc::system`].
    pub fn at(path: &Path) -> Result<Proc, ReadError> {
        let path = path.to_path_buf();
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = open(&path, flags, Mode::empty())
            .map_err(|errno| ReadError::new(path.clone(), errno.into()))?;
        let kind = fstatfs(&root).map_err(|errno| ReadError::new(path.clone(), errno.into()))?;
        if kind.filesystem_type() != PROC_SUPER_MAGIC {
            return Err(ReadError::NoProc { path });
        }
        Ok(Proc {
            root,
            path,
            view: OnceLock::new(),
        })
    }

    /// Does this `/proc` number processes as kill(2) does?
    ///
    /// `NSpid` in our own status has one entry exactly if our pid namespace is the one that this procfs was mounted for:
    /// a deeper one adds entries, and a procfs of a namespace that we are not in has no `self`.
    ///
    /// # Errors
    /// If our own status cannot be read for another reason.
    pub fn view(&self) -> Result<ProcView, ReadError> {
        if let Some(view) = self.view.get() {
            return Ok(*view);
        }
        let view = self.read_view()?;
        Ok(*self.view.get_or_init(|| view))
    }

    /// Whether its numbers are certainly those that kill(2) takes.
    pub fn is_own(&self) -> bool {
        matches!(self.view(), Ok(ProcView::Own))
    }

    fn read_view(&self) -> Result<ProcView, ReadError> {
        let path = self.path.join("self/status");
        let text = match read_at(&self.root, Path::new("self/status"), &path) {
            Ok(text) => text,
            Err(error) if error.is_gone() => return Ok(ProcView::Foreign),
            Err(error) => return Err(error),
        };
        let own = status::parse(&text).ok_or(ReadError::Malformed { path })?;
        let one_level = matches!(own.ns_pids.as_slice(), [] | [_]);
        let same = one_level && own.pid == Pid::own();
        Ok(if same {
            ProcView::Own
        } else {
            ProcView::Foreign
        })
    }

    /// Every process that this `/proc` lists, in the order of the listing.
    ///
    /// This is no snapshot: a fork chain can keep out of it for as long as it likes, and an empty answer proves nothing.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn pids(&self) -> Result<Vec<Pid>, ReadError> {
        list(&self.root, Path::new("."), &self.path)
    }

    /// Opens one process.
    ///
    /// # Errors
    /// [`ReadError::Gone`] if it is not there.
    pub fn process(&self, pid: Pid) -> Result<ProcessDir, ReadError> {
        self.open_process(&pid.to_string())
    }

    fn open_process(&self, name: &str) -> Result<ProcessDir, ReadError> {
        let path = self.path.join(name);
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        // Not across a mount: whoever mounts another process's directory there has us take the one for the other.
        let how = OpenHow::new()
            .flags(flags)
            .resolve(ResolveFlag::RESOLVE_NO_XDEV);
        let opened = match openat2(&self.root, name, how) {
            // Before 5.6, or refused by an outer seccomp filter.
            Err(Errno::ENOSYS | Errno::EPERM) => openat(&self.root, name, flags, Mode::empty()),
            other => other,
        };
        match opened {
            Ok(directory) => Ok(ProcessDir { directory, path }),
            Err(errno) => Err(ReadError::new(path, errno.into())),
        }
    }

    /// Opens the calling process itself (`self`), also where this `/proc` numbers processes in another way than we do.
    ///
    /// # Errors
    /// [`ReadError::Gone`] in a `/proc` of a pid namespace that we are not in.
    pub fn own(&self) -> Result<ProcessDir, ReadError> {
        self.open_process("self")
    }

    /// This boot's id, `sys/kernel/random/boot_id`.
    ///
    /// # Errors
    /// If it cannot be read or is no UUID.
    pub fn boot_id(&self) -> Result<BootId, ReadError> {
        let name = Path::new("sys/kernel/random/boot_id");
        let path = self.path.join(name);
        let text = read_at(&self.root, name, &path)?;
        let text = std::str::from_utf8(&text).unwrap_or_default();
        text.trim_ascii_end()
            .parse()
            .map_err(|_| ReadError::Malformed { path })
    }

    /// The number that was given last in the calling process's pid namespace: the last field of `loadavg` (proc(5)). Numbers
    /// are given in turn, so that the newest processes have those just below it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn newest_pid(&self) -> Result<Pid, ReadError> {
        self.last_number(Path::new("loadavg"))
    }

    /// A number that none that is given reaches: `sys/kernel/pid_max` (proc(5)). Behind it they begin anew.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn pid_max(&self) -> Result<Pid, ReadError> {
        self.last_number(Path::new("sys/kernel/pid_max"))
    }

    fn last_number(&self, name: &Path) -> Result<Pid, ReadError> {
        let path = self.path.join(name);
        let text = read_at(&self.root, name, &path)?;
        std::str::from_utf8(&text)
            .ok()
            .and_then(|text| text.split_whitespace().last()?.parse().ok())
            .and_then(Pid::new)
            .ok_or(ReadError::Malformed { path })
    }

    /// Is this `/proc` mounted with `hidepid`, so that processes of other users may be there and not be seen?
    ///
    /// # Errors
    /// If the mount's options cannot be read: then nothing is known.
    pub fn hides_processes(&self) -> Result<bool, ReadError> {
        let name = format!("self/fdinfo/{}", self.root.as_raw_fd());
        let path = self.path.join(&name);
        let text = read_at(&self.root, Path::new(&name), &path)?;
        let id = text
            .split(|&byte| byte == b'\n')
            .find_map(|line| line.strip_prefix(b"mnt_id:"));
        let id = id.ok_or(ReadError::Malformed { path })?.trim_ascii();
        let name = Path::new("self/mountinfo");
        let path = self.path.join(name);
        let text = read_at(&self.root, name, &path)?;
        let mut lines = text.split(|&byte| byte == b'\n');
        lines
            .find_map(|line| files::hides_processes(line, id))
            .ok_or(ReadError::Malformed { path })
    }

    /// A variable of `/proc/<pid>/environ`, for a look at every process there is: what was read was said of whoever had the
    /// number at that moment.
    ///
    /// # Errors
    /// As [`ProcessDir::environ_value`].
    pub fn environ_value_of(&self, pid: Pid, name: &str) -> Result<Option<Vec<u8>>, ReadError> {
        let file = format!("{pid}/environ");
        let path = self.path.join(&file);
        let text = read_at(&self.root, Path::new(&file), &path)?;
        Ok(files::environ_value(&text, name).map(<[u8]>::to_vec))
    }

    /// The inode number of the calling process's pid namespace (namespaces(7)).
    ///
    /// The kernel uses such a number again for a later namespace: two different ones prove two namespaces, two equal ones
    /// prove nothing by themselves.
    ///
    /// # Errors
    /// If the link cannot be read (landlock hides it) or says something else.
    pub fn own_pid_namespace(&self) -> Result<u64, ReadError> {
        let name = "self/ns/pid";
        let path = self.path.join(name);
        let link = readlinkat(&self.root, name)
            .map_err(|errno| ReadError::new(path.clone(), errno.into()))?;
        link.to_str()
            .and_then(|text| text.strip_prefix("pid:[")?.strip_suffix("]")?.parse().ok())
            .ok_or(ReadError::Malformed { path })
    }
}

/// Reads a whole file beneath an open directory. `path` is its name in an error.
pub(super) fn read_at(
    directory: impl AsFd,
    name: &Path,
    path: &Path,
) -> Result<Vec<u8>, ReadError> {
    let fail = |source| ReadError::new(path.to_path_buf(), source);
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let mut file = File::from(
        openat(directory, name, flags, Mode::empty()).map_err(|errno| fail(errno.into()))?,
    );
    let mut text = vec![0; 4096];
    let mut filled = 0;
    loop {
        match file.read(&mut text[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(fail(error)),
        }
        if filled == text.len() {
            if filled >= READ_LIMIT {
                return Err(fail(io::ErrorKind::FileTooLarge.into()));
            }
            text.resize(filled * 2, 0);
        }
    }
    text.truncate(filled);
    Ok(text)
}

/// The entries of a directory that are numbers.
pub(super) fn list(directory: impl AsFd, name: &Path, path: &Path) -> Result<Vec<Pid>, ReadError> {
    let fail = |errno: nix::Error| ReadError::new(path.to_path_buf(), errno.into());
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut entries = Dir::openat(directory, name, flags, Mode::empty()).map_err(fail)?;
    let mut pids = Vec::new();
    for entry in entries.iter() {
        let entry = entry.map_err(fail)?;
        if let Some(pid) = stat::number(entry.file_name().to_bytes()).and_then(Pid::new) {
            pids.push(pid);
        }
    }
    Ok(pids)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn reads_this_very_process() {
        let proc = Proc::system().expect("/proc");
        assert_eq!(proc.view().expect("our status"), ProcView::Own);
        assert!(proc.pids().expect("a listing").contains(&Pid::own()));
        let own = proc.own().expect("our own directory");
        let stat = own.stat().expect("our own stat");
        let status = own.status().expect("our own status");
        assert_eq!(stat.id.pid, Pid::own());
        assert_eq!(status.tgid, Pid::own());
        assert_eq!(status.parent, stat.parent);
        assert!(own.threads().expect("our threads").contains(&Pid::own()));
        assert!(!own.cmdline().expect("our arguments").is_empty());
        assert_eq!(
            proc.boot_id().expect("a boot id"),
            BootId::current().expect("a boot id")
        );
        proc.hides_processes().expect("the mount's options");
        assert!(proc.own_pid_namespace().expect("a namespace") > 0);
    }

    /// Others may start processes too, and numbers begin anew at some time: in one of many tries neither comes between.
    #[test]
    fn a_new_child_has_the_newest_number() {
        let proc = Proc::system().expect("/proc");
        let is_newest = |_| {
            let mut child = Command::new("true").spawn().expect("a child");
            let newest = proc.newest_pid().expect("the newest number");
            child.wait().expect("its end");
            newest.get() == i32::try_from(child.id()).expect("a pid")
        };
        assert!((0..200).any(is_newest));
    }

    #[test]
    fn a_descriptor_never_shows_the_next_owner_of_a_number() {
        let proc = Proc::system().expect("/proc");
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .expect("a child");
        let pid = Pid::new(child.id().try_into().expect("a pid")).expect("a pid");
        let held = proc.process(pid).expect("its directory");
        assert!(
            proc.process(Pid::own())
                .expect("ours")
                .children()
                .expect("our children")
                .contains(&pid)
        );
        child.kill().expect("SIGKILL");
        child.wait().expect("its end");
        assert!(held.stat().is_err_and(|error| error.is_gone()));
        assert!(held.threads().is_err_and(|error| error.is_gone()));
    }

    #[test]
    fn a_directory_that_is_no_procfs_is_refused() {
        let error = Proc::at(Path::new("/sys")).expect_err("sysfs");
        assert!(matches!(error, ReadError::NoProc { .. }), "{error}");
        let error = Proc::at(Path::new("/nowhere")).expect_err("nothing");
        assert_eq!(
            error.to_string(),
            "/nowhere is not there: the process has ended, or is hidden from this one"
        );
    }
}
