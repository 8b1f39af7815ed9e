//! Programs that doctor starts, by fork(2) and execve(2): a filter may kill for the calls by which the standard library does it (clone3(2)
//! of posix_spawn(3)), and whom it kills must be a child.

use std::ffi::{CString, OsString};
use std::fs::OpenOptions;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;

use cgleaf_shared::process::Pid;
use nix::errno::Errno;
use nix::sys::wait::WaitPidFlag;

use crate::error::{Code, OrCode, Result};
use crate::sys::{self, Change, Forked, Image};

/// Starts a program that reads nothing and whose stderr nobody reads. Without `stdout` nobody reads that either.
///
/// # Errors
/// INTERNAL: there is no process to be had, or a word has a zero byte.
pub(super) fn start(
    words: Vec<OsString>,
    environment: Vec<OsString>,
    stdout: Option<BorrowedFd<'_>>,
) -> Result<Pid> {
    let words = c_strings(words)?;
    let path = words.first().cloned().unwrap_or_default();
    let image = Image::new(path, words, c_strings(environment)?);
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
        .or_code(Code::Internal)
        .map_err(|error| error.while_doing("open /dev/null"))?;
    let forked = sys::fork()
        .or_code(Code::Internal)
        .map_err(|error| error.while_doing("fork"))?;
    match forked {
        Forked::Parent(child) => Ok(child),
        Forked::Child => {
            let _ = sys::put_at(null.as_fd(), 0);
            let _ = sys::put_at(stdout.unwrap_or(null.as_fd()), 1);
            let _ = sys::put_at(null.as_fd(), 2);
            image.execute();
            sys::exit_now(127)
        }
    }
}

/// How a child ended; `None` where somebody else has reaped it.
pub(super) fn end_of(child: Pid) -> Option<Change> {
    loop {
        match sys::wait_child(Some(child), WaitPidFlag::empty()) {
            Err(Errno::EINTR) => {}
            answer => return answer.ok().flatten().map(|(_, change)| change),
        }
    }
}

/// This process's own environment.
pub(super) fn own_environment() -> Vec<OsString> {
    let joined = |(mut name, value): (OsString, OsString)| {
        name.push("=");
        name.push(value);
        name
    };
    std::env::vars_os().map(joined).collect()
}

fn c_strings(texts: Vec<OsString>) -> Result<Vec<CString>> {
    let c_string = |text: OsString| CString::new(text.into_vec()).or_code(Code::Internal);
    texts.into_iter().map(c_string).collect()
}
