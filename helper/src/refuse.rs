//! Refusals, made in one way.

use cgleaf_shared::IoError;
use cgleaf_shared::wire::{Refusal, RefusalCode};

/// A refusal of the helper's own.
pub(crate) fn because<T>(code: RefusalCode, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(code, message))
}

/// What the kernel answered, with what to do next where there is something.
pub(crate) fn kernel(code: RefusalCode, error: &IoError, next: &str) -> Refusal {
    let message = if next.is_empty() {
        error.to_string()
    } else {
        format!("{error}; {next}")
    };
    Refusal::kernel(code, message, error.errno().unwrap_or(0))
}

/// The usual case: something failed that ordinarily does not.
pub(crate) fn failed(error: &IoError) -> Refusal {
    let code = if is_exhaustion(error) {
        RefusalCode::Exhausted
    } else {
        RefusalCode::Kernel
    };
    kernel(code, error, "")
}

/// Whether it says that there is no descriptor or no memory left, and so nothing about what was looked at.
pub(crate) fn is_exhaustion(error: &IoError) -> bool {
    error.errno().is_some_and(exhausts)
}

/// The same of an errno.
pub(crate) fn exhausts(errno: i32) -> bool {
    matches!(errno, libc::EMFILE | libc::ENFILE | libc::ENOMEM)
}
