//! One opened cgroup directory, for reading.

use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::dir::{Dir, Type};
use nix::fcntl::{OFlag, ResolveFlag, open, openat, openat2};
use nix::sys::stat::{FileStat, Mode, fstat};
use nix::sys::statfs::fstatfs;

use super::{CGROUP2_SUPER_MAGIC, CgroupPath, Events};
use crate::error::{IoContext, IoError};
use crate::id::CgroupId;
use crate::sys;

/// The control files that cgleaf reads, by the names of cgroup-v2.rst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControlFile {
    /// `cgroup.events`: populated and frozen, the facts.
    Events,
    /// `cgroup.procs`: the processes of this cgroup alone, unordered, perhaps repeated.
    Procs,
    /// `cgroup.threads`: the threads of this cgroup alone, those too whose main thread has ended elsewhere.
    Threads,
    /// `cgroup.freeze`: the request, not the fact.
    Freeze,
    /// `cgroup.kill` (Linux 5.14).
    Kill,
    /// `cgroup.type`: `domain`, `threaded`, `domain threaded`, `domain invalid`.
    Type,
    /// `cgroup.controllers`.
    Controllers,
    /// `cgroup.subtree_control`.
    SubtreeControl,
    /// `cgroup.max.descendants`.
    MaxDescendants,
    /// `cgroup.max.depth`.
    MaxDepth,
    /// `cgroup.stat`: how many cgroups there are beneath it.
    Stat,
    /// `cpu.stat`, which every cgroup has, with the controller or without.
    CpuStat,
    /// `memory.current`, of the memory controller.
    MemoryCurrent,
}

impl ControlFile {
    /// The file's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Events => "cgroup.events",
            Self::Procs => "cgroup.procs",
            Self::Threads => "cgroup.threads",
            Self::Freeze => "cgroup.freeze",
            Self::Kill => "cgroup.kill",
            Self::Type => "cgroup.type",
            Self::Controllers => "cgroup.controllers",
            Self::SubtreeControl => "cgroup.subtree_control",
            Self::MaxDescendants => "cgroup.max.descendants",
            Self::MaxDepth => "cgroup.max.depth",
            Self::Stat => "cgroup.stat",
            Self::CpuStat => "cpu.stat",
            Self::MemoryCurrent => "memory.current",
        }
    }
}

/// A cgroup directory held open: what is read through it is that cgroup's, whatever happens to its name.
pub struct CgroupDir {
    fd: OwnedFd,
    path: CgroupPath,
    shown: PathBuf,
}

const DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_CLOEXEC);

impl CgroupDir {
    /// Opens a mount point itself and makes sure that it is cgroup2.
    ///
    /// # Errors
    /// If it cannot be opened, or is none.
    pub fn open_mount(point: &Path) -> Result<Self, IoError> {
        let fd = open(point, DIRECTORY, Mode::empty()).context("open", point)?;
        require_cgroup2(fd.as_fd()).context("find cgroup2 at", point)?;
        Ok(Self {
            fd,
            path: CgroupPath::root(),
            shown: point.to_path_buf(),
        })
    }

    /// Opens the directory at `path` beneath this one, which must be the root that `path` is relative to, without
    /// following a link, leaving the mount or climbing out (openat2(2)), and makes sure that it is cgroup2.
    ///
    /// # Errors
    /// `ENOENT`: there is none. `EXDEV`, `ELOOP`: the path leads elsewhere. `EACCES`: it may not be read.
    pub fn open_beneath(&self, path: &CgroupPath) -> Result<Self, IoError> {
        let shown = self.shown_beneath(path);
        let fd = open_beneath(self.fd.as_fd(), path.relative()).context("open", &shown)?;
        require_cgroup2(fd.as_fd()).context("find cgroup2 at", &shown)?;
        Ok(Self {
            fd,
            path: path.clone(),
            shown,
        })
    }

    /// [`Self::open_beneath`] without any of its promises, for the test that shows that they are needed.
    #[cfg(feature = "mutations")]
    pub(crate) fn open_trusting(&self, path: &CgroupPath) -> Result<Self, IoError> {
        let shown = self.shown_beneath(path);
        let fd = open(&shown, DIRECTORY, Mode::empty()).context("open", &shown)?;
        Ok(Self {
            fd,
            path: path.clone(),
            shown,
        })
    }

    /// Opens the child of that name.
    ///
    /// # Errors
    /// As [`Self::open_beneath`].
    pub fn open_child(&self, name: &str) -> Result<Self, IoError> {
        let shown = self.shown.join(name);
        let path = self
            .path
            .child(name)
            .map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))
            .context("open", &shown)?;
        let fd = open_beneath(self.fd.as_fd(), Path::new(name)).context("open", &shown)?;
        Ok(Self { fd, path, shown })
    }

    /// Opens a descendant by its path relative to this directory: `""` for itself, `a/b` for a grandchild.
    ///
    /// # Errors
    /// As [`Self::open_beneath`].
    pub fn open_descendant(&self, relative: &str) -> Result<Self, IoError> {
        let shown = self.shown.join(relative);
        let below = if relative.is_empty() { "." } else { relative };
        let path = if relative.is_empty() {
            Ok(self.path.clone())
        } else {
            self.path.join(relative)
        }
        .map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))
        .context("open", &shown)?;
        let fd = open_beneath(self.fd.as_fd(), Path::new(below)).context("open", &shown)?;
        Ok(Self { fd, path, shown })
    }

    /// The relative paths of everything beneath it, parents before children, beginning with `""` for itself.
    /// What vanishes meanwhile is left out. It stops at `most` entries: a program may make as many as it likes.
    ///
    /// # Errors
    /// If this directory itself cannot be listed.
    pub fn subtree(&self, most: usize) -> Result<Vec<String>, IoError> {
        let mut found = vec![String::new()];
        let mut next = 0;
        while let Some(current) = found.get(next).cloned() {
            next += 1;
            let names = match self
                .open_descendant(&current)
                .and_then(|dir| dir.children())
            {
                Ok(names) => names,
                Err(error) if error.is_gone() && !current.is_empty() => continue,
                Err(error) => return Err(error),
            };
            let prefix = if current.is_empty() {
                current
            } else {
                current + "/"
            };
            found.extend(names.into_iter().map(|name| format!("{prefix}{name}")));
            if found.len() >= most {
                found.truncate(most);
                break;
            }
        }
        Ok(found)
    }

    /// Its path relative to the namespace's root.
    pub fn path(&self) -> &CgroupPath {
        &self.path
    }

    /// A path beneath it in the file system: the root's own has nothing to be joined.
    fn shown_beneath(&self, path: &CgroupPath) -> PathBuf {
        if path.is_root() {
            self.shown.clone()
        } else {
            self.shown.join(path.relative())
        }
    }

    /// Its path in the file system, for messages.
    pub fn shown(&self) -> &Path {
        &self.shown
    }

    /// Its kernfs id, by name_to_handle_at(2), or `st_ino` where an outer filter refuses that call.
    ///
    /// # Errors
    /// If neither can be had.
    pub fn id(&self) -> Result<CgroupId, IoError> {
        match sys::kernfs_id(self.fd.as_fd()) {
            Ok(id) => Ok(id),
            Err(_) => Ok(CgroupId(self.stat()?.st_ino)),
        }
    }

    /// The owner's user id and the mode bits of the directory.
    ///
    /// # Errors
    /// If fstat(2) fails.
    pub fn owner_and_mode(&self) -> Result<(crate::id::Uid, u32), IoError> {
        let stat = self.stat()?;
        Ok((crate::id::Uid(stat.st_uid), stat.st_mode & 0o7777))
    }

    fn stat(&self) -> Result<FileStat, IoError> {
        fstat(&self.fd).context("stat", &self.shown)
    }

    /// Opens one of its files for reading.
    ///
    /// # Errors
    /// `ENOENT` or `ENODEV`: the cgroup was removed, or this kernel has no such file.
    pub fn open_file(&self, file: ControlFile) -> Result<File, IoError> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let fd = openat(&self.fd, file.name(), flags, Mode::empty())
            .context("open", self.shown.join(file.name()))?;
        Ok(File::from(fd))
    }

    /// Whether it has that file: a feature is decided on the leaf itself, never by a version.
    pub fn has(&self, file: ControlFile) -> bool {
        self.open_file(file).is_ok()
            || openat(
                &self.fd,
                file.name(),
                OFlag::O_PATH | OFlag::O_CLOEXEC,
                Mode::empty(),
            )
            .is_ok()
    }

    /// Reads one of its files whole.
    ///
    /// # Errors
    /// As [`Self::open_file`]; `EOPNOTSUPP` for `cgroup.procs` of a threaded cgroup.
    pub fn read(&self, file: ControlFile) -> Result<Vec<u8>, IoError> {
        let mut open = self.open_file(file)?;
        sys::read_all(&mut open).context("read", self.shown.join(file.name()))
    }

    /// Whether it is populated and whether it is frozen.
    ///
    /// # Errors
    /// As [`Self::read`]; `InvalidData` if a value is missing (a kernel before 5.2).
    pub fn events(&self) -> Result<Events, IoError> {
        Events::parse(&self.read(ControlFile::Events)?)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
            .context(
                "find populated and frozen in",
                self.shown.join(ControlFile::Events.name()),
            )
    }

    /// The processes of this cgroup alone, as `cgroup.procs` numbers them: 0 stands for a process that the
    /// reader's pid namespace cannot see. Unordered, repeats removed. A threaded cgroup has none of its own:
    /// they are listed at its domain root.
    ///
    /// # Errors
    /// `ENOENT` or `ENODEV`: the cgroup was removed.
    pub fn procs(&self) -> Result<Vec<i32>, IoError> {
        let content = match self.read(ControlFile::Procs) {
            Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => return Ok(Vec::new()),
            other => other?,
        };
        let mut pids: Vec<i32> = String::from_utf8_lossy(&content)
            .lines()
            .filter_map(|line| line.trim().parse().ok())
            .collect();
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// The names of its child cgroups, in the kernel's order.
    ///
    /// # Errors
    /// `ENOENT` or `ENODEV`: the cgroup was removed.
    pub fn children(&self) -> Result<Vec<String>, IoError> {
        // A new open file description: reading a directory moves an offset that a clone would share.
        let mut dir =
            Dir::openat(&self.fd, ".", DIRECTORY, Mode::empty()).context("open", &self.shown)?;
        let mut names = Vec::new();
        for entry in dir.iter() {
            let entry = entry.context("list", &self.shown)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type() == Some(Type::Directory) && name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// One extended attribute; `None` where it does not exist.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: this kernel has no user attributes on cgroup2. `ENODEV`: the cgroup was removed.
    pub fn attribute(&self, name: &CStr) -> Result<Option<Vec<u8>>, IoError> {
        sys::get_xattr(self.fd.as_fd(), name).context("read an attribute of", &self.shown)
    }

    /// The value of an attribute as text; `None` too where it is not UTF-8.
    ///
    /// # Errors
    /// As [`Self::attribute`].
    pub fn attribute_text(&self, name: &CStr) -> Result<Option<String>, IoError> {
        Ok(self
            .attribute(name)?
            .and_then(|value| String::from_utf8(value).ok()))
    }
}

impl AsFd for CgroupDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for CgroupDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CgroupDir({} as {})",
            self.shown.display(),
            self.fd.as_raw_fd()
        )
    }
}

/// `EOPNOTSUPP` if what is open is not cgroup2: a tmpfs or a bind mount can hold the same names.
fn require_cgroup2(fd: BorrowedFd<'_>) -> io::Result<()> {
    // Signed in one C library and unsigned in another: compared as what holds both.
    let magic = i128::from(fstatfs(fd)?.filesystem_type().0);
    if magic == i128::from(CGROUP2_SUPER_MAGIC) {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
}

fn open_beneath(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let resolve = ResolveFlag::RESOLVE_BENEATH
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_NO_XDEV
        | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = nix::fcntl::OpenHow::new().flags(DIRECTORY).resolve(resolve);
    match openat2(root, path, how) {
        Ok(fd) => Ok(fd),
        // Before 5.6, or refused by an outer seccomp filter (old docker answers EPERM).
        Err(nix::Error::ENOSYS | nix::Error::EPERM) => walk_beneath(root, path),
        Err(errno) => Err(errno.into()),
    }
}

/// What openat2(2) promises, by hand: one component at a time, no link followed, the device the same throughout.
fn walk_beneath(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let device = fstat(root)?.st_dev;
    let mut current = openat(root, ".", DIRECTORY, Mode::empty())?;
    for component in path.components() {
        let name = match component {
            std::path::Component::Normal(name) => name,
            std::path::Component::CurDir => continue,
            _ => return Err(io::Error::from_raw_os_error(libc::EXDEV)),
        };
        current = openat(&current, name, DIRECTORY | OFlag::O_NOFOLLOW, Mode::empty())?;
        if fstat(&current)?.st_dev != device {
            return Err(io::Error::from_raw_os_error(libc::EXDEV));
        }
    }
    Ok(current)
}
