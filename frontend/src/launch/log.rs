//! The log of a program that is started detached.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::claim::Claim;
use crate::error::{Code, Error, OrCode, Result};
use crate::sys;

/// Where the program's output goes. One that was made for a program that did not start is removed again.
pub(super) struct Log {
    path: PathBuf,
    file: File,
    made: bool,
}

/// Where a log is to be.
#[derive(Debug)]
pub(super) enum LogPlace {
    /// In a file that was named.
    Named(PathBuf),
    /// Beside the session's record, and gone with it.
    BesideTheRecord,
}

impl LogPlace {
    /// # Errors
    /// USAGE: the name is none.
    pub(super) fn new(named: Option<&Path>) -> Result<Self> {
        Ok(match named {
            Some(path) => Self::Named(std::path::absolute(path).or_code(Code::Usage)?),
            None => Self::BesideTheRecord,
        })
    }
}

impl Log {
    /// Opens the one that the claim names.
    ///
    /// # Errors
    /// STORAGE.
    pub(super) fn open(claim: &Claim, place: &LogPlace) -> Result<Self> {
        let path = match (place, &claim.record().log) {
            (LogPlace::Named(path), _) => path.clone(),
            (LogPlace::BesideTheRecord, Some(path)) if claim.store().is_some() => path.clone(),
            (LogPlace::BesideTheRecord, _) => {
                let why = "there is no place for the log: name one with --log";
                return Err(Error::new(Code::Storage, why));
            }
        };
        let made = !path.exists();
        let mode = match place {
            LogPlace::Named(_) => 0o666,
            LogPlace::BesideTheRecord => 0o600,
        };
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(mode)
            // A pipe that nobody reads must not hold us up, and a terminal not become ours.
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(&path)
            .and_then(let_writes_wait)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::ENXIO) => Error::new(Code::Storage, "nobody reads that pipe"),
                _ => Error::new(Code::Storage, error.to_string()),
            })
            .map_err(|error| error.while_doing(format_args!("open the log {}", path.display())))?;
        Ok(Self { path, file, made })
    }

    /// The program was executed: it stays.
    pub(super) fn keep(&mut self) {
        self.made = false;
    }

    /// Makes it this process's stdout and stderr, and its stdin empty.
    pub(super) fn be_the_output(&self, null: &File) {
        let _ = sys::put_at(null.as_fd(), 0);
        let _ = sys::put_at(self.file.as_fd(), 1);
        let _ = sys::put_at(self.file.as_fd(), 2);
    }
}

/// What the program writes waits as it would on any descriptor that it is given.
fn let_writes_wait(file: File) -> std::io::Result<File> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let flags = OFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GETFL)?);
    fcntl(
        &file,
        FcntlArg::F_SETFL(flags.difference(OFlag::O_NONBLOCK)),
    )?;
    Ok(file)
}

impl Drop for Log {
    fn drop(&mut self) {
        if self.made {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
