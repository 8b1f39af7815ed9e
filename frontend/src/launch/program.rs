//! The program: found before anything is made for it, so that one that is not there leaves nothing behind.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use cgleaf_shared::id::{Nonce, SessionId};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};

use super::failure::Failure;
use crate::error::{Code, Error};
pub use crate::group::MARK_VARIABLE;
use crate::sys::Image;

/// The session that a program is in.
pub const SESSION_VARIABLE: &str = "CGLEAF_SESSION";
/// Says that this process is in a scope of its own now, since a helper could not move it from where it was.
pub(super) const IN_SCOPE_VARIABLE: &str = "CGLEAF_IN_SCOPE";

/// Names the variables, with commas between them, that this process has only since it is in that scope.
pub(super) const SCOPE_ADDED_VARIABLE: &str = "CGLEAF_SCOPE_ADDED";

/// Where programs are looked for where PATH is not set, as the C library has it.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// A program that was found, with its arguments.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    words: Vec<OsString>,
}

impl Program {
    /// Looks for the program as a shell would: a word with a slash is a path, any other is looked for along PATH.
    ///
    /// # Errors
    /// 127 if there is none, 126 if it cannot be executed, 125 for no word at all.
    pub fn find(words: &[OsString]) -> Result<Self, Failure> {
        let Some(name) = words.first() else {
            return Err(Error::new(Code::Usage, "there is no program to start").into());
        };
        let path = if name.as_bytes().contains(&b'/') {
            let path = PathBuf::from(name);
            executable(&path).map_err(|errno| cannot_execute(&path, errno))?;
            path
        } else {
            along_path(name)?
        };
        Ok(Self {
            path,
            words: words.to_vec(),
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file, its arguments, and this process's environment with what says which session it is in.
    pub(super) fn image(&self, session: &SessionId, mark: &str) -> crate::Result<Image> {
        let ours = [
            SESSION_VARIABLE,
            MARK_VARIABLE,
            IN_SCOPE_VARIABLE,
            SCOPE_ADDED_VARIABLE,
        ];
        let added = std::env::var(SCOPE_ADDED_VARIABLE).unwrap_or_default();
        let not_the_callers: Vec<&str> = ours.into_iter().chain(added.split(',')).collect();
        let mut environment: Vec<OsString> = std::env::vars_os()
            .filter(|(name, _)| !not_the_callers.iter().any(|other| name == other))
            .map(|(name, value)| joined(&name, "=", &value))
            .collect();
        environment.push(format!("{SESSION_VARIABLE}={session}").into());
        let outer = std::env::var_os(MARK_VARIABLE).filter(|mark| !mark.is_empty());
        let marks = match outer {
            Some(outer) => joined(&outer, ":", OsStr::new(mark)),
            None => mark.into(),
        };
        environment.push(joined(OsStr::new(MARK_VARIABLE), "=", &marks));
        Ok(Image::new(
            c_string(self.path.clone().into_os_string())?,
            c_strings(self.words.clone())?,
            c_strings(environment)?,
        ))
    }
}

/// A mark for a session's environment.
///
/// # Errors
/// INTERNAL if the kernel has no randomness to give.
pub(super) fn new_mark() -> crate::Result<String> {
    Ok(Nonce::generate()?.to_string())
}

fn joined(left: &OsStr, between: &str, right: &OsStr) -> OsString {
    let mut all = left.to_os_string();
    all.push(between);
    all.push(right);
    all
}

pub(super) fn c_string(text: OsString) -> crate::Result<CString> {
    CString::new(text.into_vec()).map_err(|why| {
        Error::new(
            Code::Usage,
            format!("a zero byte in an argument or in the environment: {why}"),
        )
    })
}

pub(super) fn c_strings(texts: Vec<OsString>) -> crate::Result<Vec<CString>> {
    texts.into_iter().map(c_string).collect()
}

/// Whether the effective user may execute a file there.
fn executable(path: &Path) -> Result<(), Errno> {
    let metadata = std::fs::metadata(path)
        .map_err(|why| Errno::from_raw(why.raw_os_error().unwrap_or(libc::EIO)))?;
    if metadata.is_dir() {
        return Err(Errno::EACCES);
    }
    faccessat(AT_FDCWD, path, AccessFlags::X_OK, AtFlags::AT_EACCESS)
}

/// The first that can be executed; one that cannot is told only where there is no other, as execvp(3) does.
fn along_path(name: &OsStr) -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let mut refused = None;
    if !name.is_empty() {
        for directory in path.as_bytes().split(|byte| *byte == b':') {
            // An empty part is the working directory.
            let directory = if directory.is_empty() {
                b"."
            } else {
                directory
            };
            let candidate = Path::new(OsStr::from_bytes(directory)).join(name);
            match executable(&candidate) {
                Ok(()) => return Ok(candidate),
                Err(Errno::ENOENT | Errno::ENOTDIR) => {}
                Err(errno) => refused = refused.or(Some((candidate, errno))),
            }
        }
    }
    match refused {
        Some((candidate, errno)) => Err(cannot_execute(&candidate, errno)),
        None => Err(Failure::not_found(format!(
            "{}: not found in PATH ({})",
            name.to_string_lossy(),
            path.to_string_lossy()
        ))),
    }
}

/// Why execve(2) did not, or would not, execute it.
pub(super) fn cannot_execute(path: &Path, errno: Errno) -> Failure {
    let text = format!("execute {}: {}", path.display(), errno.desc());
    match errno {
        Errno::ENOENT | Errno::ENOTDIR => Failure::not_found(text),
        _ => Failure::not_executable(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(words: &[&str]) -> u8 {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        Program::find(&words).map_or_else(|failure| failure.status(), |_| 0)
    }

    #[test]
    fn what_a_shell_would_say_of_a_program() {
        assert_eq!(status(&["sh"]), 0);
        assert_eq!(status(&["/bin/sh", "-c", ":"]), 0);
        assert_eq!(status(&["/no/such"]), 127);
        assert_eq!(status(&["no-such-program-anywhere"]), 127);
        assert_eq!(status(&["/etc/passwd"]), 126);
        assert_eq!(status(&["/etc"]), 126);
        assert_eq!(status(&["/etc/passwd/x"]), 127);
        assert_eq!(status(&[""]), 127);
        assert_eq!(status(&[]), 125);
    }
}
