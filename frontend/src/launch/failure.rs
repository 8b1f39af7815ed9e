//! Why a program was not started, with the exit status that says so (DESIGN 4, 4.1).

use crate::error::{Code, Error};

/// cgleaf failed before the program, whatever the cause.
pub const BEFORE_THE_PROGRAM: u8 = 125;
/// The program cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// There is no such program.
pub const NOT_FOUND: u8 = 127;

/// Why a program was not started.
#[derive(Debug, Clone)]
pub struct Failure {
    error: Error,
    status: u8,
}

impl Failure {
    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self {
            error: Error::new(Code::Usage, message),
            status: NOT_FOUND,
        }
    }

    pub(super) fn not_executable(message: impl Into<String>) -> Self {
        Self {
            error: Error::new(Code::Usage, message),
            status: NOT_EXECUTABLE,
        }
    }

    /// As another process of ours tells it.
    pub(super) fn told(code: Code, message: String, status: u8) -> Self {
        Self {
            error: Error::new(code, message),
            status,
        }
    }

    /// What went wrong.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// 125, 126 or 127.
    pub fn status(&self) -> u8 {
        self.status
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            error,
            status: BEFORE_THE_PROGRAM,
        }
    }
}
