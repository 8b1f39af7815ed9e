//! One process's directory in `/proc`.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::files::{self, Autogroup, parse_autogroup, parse_children, parse_cmdline};
use super::identity::Pid;
use super::reader::{ReadError, list, read_at};
use super::stat::{self, Stat, State};
use super::status::{self, Status};
use crate::cgroup::{CgroupPath, PathError, parse_proc_cgroup};

/// One process, held open by its directory in `/proc`.
///
/// The descriptor belongs to this one process: once it is reaped every read answers ESRCH, also where its number has a
/// new owner. What is read through one `ProcessDir` was never said of two processes.
#[derive(Debug)]
pub struct ProcessDir {
    pub(super) directory: OwnedFd,
    pub(super) path: PathBuf,
}

impl ProcessDir {
    /// `/proc/<pid>/stat`.
    ///
    /// # Errors
    /// As every reader here: [`ReadError`] with the path.
    pub fn stat(&self) -> Result<Stat, ReadError> {
        self.read("stat", stat::parse)
    }

    /// `/proc/<pid>/status`.
    ///
    /// # Errors
    /// As [`ProcessDir::stat`].
    pub fn status(&self) -> Result<Status, ReadError> {
        self.read("status", status::parse)
    }

    /// Its place in the cgroup2 hierarchy: the `0::` line of `/proc/<pid>/cgroup`, or why that is no usable path.
    ///
    /// # Errors
    /// As [`ProcessDir::stat`].
    pub fn cgroup(&self) -> Result<Result<CgroupPath, PathError>, ReadError> {
        self.read("cgroup", |text| Some(parse_proc_cgroup(text)))
    }

    /// `/proc/<pid>/autogroup`; [`ReadError::Gone`] also on a kernel without autogroups.
    ///
    /// # Errors
    /// As [`ProcessDir::stat`].
    pub fn autogroup(&self) -> Result<Autogroup, ReadError> {
        self.read("autogroup", parse_autogroup)
    }

    /// `/proc/<pid>/cmdline`.
    ///
    /// # Errors
    /// As [`ProcessDir::stat`].
    pub fn cmdline(&self) -> Result<Vec<std::ffi::OsString>, ReadError> {
        self.read("cmdline", |text| Some(parse_cmdline(text)))
    }

    /// `/proc/<pid>/environ`, for [`files::environ_value`]: needs the rights of ptrace(2) over the process. Empty for a
    /// process that ends, and for a moment while one is executed.
    ///
    /// # Errors
    /// As [`ProcessDir::stat`].
    pub fn environ(&self) -> Result<Vec<u8>, ReadError> {
        self.read("environ", |text| Some(text.to_vec()))
    }

    /// A variable of `/proc/<pid>/environ`.
    ///
    /// # Errors
    /// As [`ProcessDir::environ`].
    pub fn environ_value(&self, name: &str) -> Result<Option<Vec<u8>>, ReadError> {
        self.read("environ", |text| {
            Some(files::environ_value(text, name).map(<[u8]>::to_vec))
        })
    }

    /// `/proc/<pid>/wchan`: the kernel function in which it waits, for a report on a process in `D` state. Empty where
    /// this kernel does not tell.
    ///
    /// # Errors
    /// As [`ProcessDir::stat`].
    pub fn wait_channel(&self) -> Result<String, ReadError> {
        self.read("wchan", |text| match text.trim_ascii() {
            b"0" => Some(String::new()),
            name => Some(String::from_utf8_lossy(name).into_owned()),
        })
    }

    /// The children of all its threads (`task/*/children`), needs `CONFIG_PROC_CHILDREN`.
    ///
    /// Exact only while the process stands still: it is read thread by thread.
    ///
    /// # Errors
    /// As [`ProcessDir::stat`]. A thread that ends meanwhile is passed over: its children went to another thread, or to
    /// the reaper.
    pub fn children(&self) -> Result<Vec<Pid>, ReadError> {
        let mut children = Vec::new();
        for thread in self.threads_with_children()? {
            match self.read(&format!("task/{thread}/children"), |text| {
                Some(parse_children(text))
            }) {
                Ok(found) => children.extend(found),
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(children)
    }

    /// To list the threads takes longer than all else here, and most processes have one.
    fn threads_with_children(&self) -> Result<Vec<Pid>, ReadError> {
        let stat = self.stat()?;
        if stat.threads == 1 {
            return Ok(vec![stat.id.pid]);
        }
        self.threads()
    }

    /// Does this kernel have [`ProcessDir::children`]? To be asked of a process that is there: the calling one.
    ///
    /// # Errors
    /// As [`ProcessDir::stat`].
    pub fn has_children_file(&self) -> Result<bool, ReadError> {
        for thread in self.threads()? {
            match self.read(&format!("task/{thread}/children"), |text| {
                Some(parse_children(text))
            }) {
                Ok(_) => return Ok(true),
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// The numbers of its threads (`task/`).
    ///
    /// # Errors
    /// As [`ProcessDir::stat`].
    pub fn threads(&self) -> Result<Vec<Pid>, ReadError> {
        list(&self.directory, Path::new("task"), &self.path.join("task"))
    }

    /// The state of one of its threads; `None` if that thread has gone.
    ///
    /// # Errors
    /// As [`ProcessDir::stat`].
    pub fn thread_state(&self, thread: Pid) -> Result<Option<State>, ReadError> {
        match self.read(&format!("task/{thread}/stat"), stat::parse) {
            Ok(stat) => Ok(Some(stat.state)),
            Err(error) if error.is_gone() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read<T>(&self, name: &str, parse: impl FnOnce(&[u8]) -> Option<T>) -> Result<T, ReadError> {
        let path = self.path.join(name);
        let text = read_at(&self.directory, Path::new(name), &path)?;
        parse(&text).ok_or(ReadError::Malformed { path })
    }
}
