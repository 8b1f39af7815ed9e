//! I/O errors that say what was tried and on which path.

use std::io;
use std::path::{Path, PathBuf};

/// An I/O failure together with the operation and the path that it happened on.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {}: {source}", path.display())]
pub struct IoError {
    operation: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl IoError {
    /// Joins what was tried with what the kernel answered.
    pub fn new(
        operation: &'static str,
        path: impl AsRef<Path>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self {
            operation,
            path: path.as_ref().to_path_buf(),
            source: source.into(),
        }
    }

    /// What was tried, as a verb phrase such as `open` or `write 1 to`.
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// The path it was tried on.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The `errno` of the kernel's answer, if it was the kernel that refused.
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }

    /// Whether the answer means that the cgroup is no longer there: `ENOENT` when it is opened, `ENODEV`
    /// when it is read or written through a descriptor that was opened before (cgroup-v2.rst).
    pub fn is_gone(&self) -> bool {
        matches!(self.errno(), Some(libc::ENOENT | libc::ENODEV))
    }

    /// The underlying error.
    pub fn source_error(&self) -> &io::Error {
        &self.source
    }
}

/// Adds operation and path to an error on its way out.
pub trait IoContext<T> {
    /// Names what was tried (`operation`) and where (`path`).
    ///
    /// # Errors
    /// The error it was called on, with its context.
    fn context(self, operation: &'static str, path: impl AsRef<Path>) -> Result<T, IoError>;
}

impl<T, E: Into<io::Error>> IoContext<T> for Result<T, E> {
    fn context(self, operation: &'static str, path: impl AsRef<Path>) -> Result<T, IoError> {
        self.map_err(|source| IoError::new(operation, path, source))
    }
}
