//! Why a lock-down is a start-up failure.

use std::fmt;
use std::io;

/// Why the helper must not go on after [`super::lock_down`].
#[derive(Debug)]
#[non_exhaustive]
pub enum SandboxError {
    /// `/proc/self/status` cannot be read or lacks a line: nothing could be confirmed.
    Status(io::Error),
    /// There are that many threads. Landlock and seccomp would bind only the calling one.
    Threads(u64),
    /// What is required and not enforced, each with its reason.
    Required(Vec<(&'static str, String)>),
}

impl fmt::Display for SandboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(_) => write!(
                f,
                "reading {} to see what the kernel enforces failed; mount /proc for this process",
                super::status::PATH
            ),
            Self::Threads(count) => {
                write!(
                    f,
                    "there are {count} threads: the lock-down would bind only one of them"
                )
            }
            Self::Required(missing) => {
                write!(f, "the sandbox is required and not complete:")?;
                for (name, reason) in missing {
                    write!(f, " {name} ({reason});")?;
                }
                write!(
                    f,
                    " a newer kernel or one with landlock and seccomp enabled is needed"
                )
            }
        }
    }
}

impl std::error::Error for SandboxError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Status(cause) => Some(cause),
            Self::Threads(_) | Self::Required(_) => None,
        }
    }
}
