//! What can go wrong, as a host and a script see it: a code, an exit status, one message, details.

use std::fmt;

use cgleaf_shared::IoError;
use serde_json::{Map, Value};

/// The kinds of failure and their exit statuses (DESIGN 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// Unexpected.
    Internal,
    /// Arguments, names, ids.
    Usage,
    /// No such session.
    SessionNotFound,
    /// The session is over, and what was asked needs one that runs.
    SessionNotRunning,
    /// The session was destroyed before.
    SessionAlreadyDestroyed,
    /// Something is or may be alive, and is named.
    Partial,
    /// The same, since a deadline passed.
    Timeout,
    /// No helper answers.
    HelperUnreachable,
    /// Identity or authority not proven: nothing was signalled.
    Refused,
    /// A directory or file of ours cannot be used.
    Storage,
    /// A record is torn, empty, foreign or newer.
    RecordDamaged,
    /// The other side does not speak this protocol.
    Protocol,
    /// `wait --timeout` ran out.
    WaitTimeout,
    /// The guarantee asked for is not to be had here.
    Unsupported,
}

impl Code {
    /// All of them, in the order of their exit statuses.
    pub const ALL: [Self; 14] = [
        Self::Internal,
        Self::Usage,
        Self::SessionNotFound,
        Self::SessionNotRunning,
        Self::SessionAlreadyDestroyed,
        Self::Partial,
        Self::Timeout,
        Self::HelperUnreachable,
        Self::Refused,
        Self::Storage,
        Self::RecordDamaged,
        Self::Protocol,
        Self::WaitTimeout,
        Self::Unsupported,
    ];

    /// What it means, in a few words, for the manual.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Internal => "unexpected",
            Self::Usage => "arguments, names, ids",
            Self::SessionNotFound => "no such session",
            Self::SessionNotRunning => "the session is over",
            Self::SessionAlreadyDestroyed => "the session was destroyed before",
            Self::Partial => "something is or may be alive, and is named",
            Self::Timeout => "the same, since the time was over",
            Self::HelperUnreachable => "no helper answers",
            Self::Refused => "identity or authority not proven: nothing was signalled",
            Self::Storage => "a directory or file of cgleaf's cannot be used",
            Self::RecordDamaged => "a record is torn, empty, foreign or newer",
            Self::Protocol => "the other side does not speak this protocol",
            Self::WaitTimeout => "wait: the time was over",
            Self::Unsupported => "the guarantee asked for is not to be had here",
        }
    }

    /// The one of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.name() == name)
    }

    /// The name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Internal => "INTERNAL",
            Self::Usage => "USAGE",
            Self::SessionNotFound => "SESSION_NOT_FOUND",
            Self::SessionNotRunning => "SESSION_NOT_RUNNING",
            Self::SessionAlreadyDestroyed => "SESSION_ALREADY_DESTROYED",
            Self::Partial => "PARTIAL",
            Self::Timeout => "TIMEOUT",
            Self::HelperUnreachable => "HELPER_UNREACHABLE",
            Self::Refused => "REFUSED",
            Self::Storage => "STORAGE",
            Self::RecordDamaged => "RECORD_DAMAGED",
            Self::Protocol => "PROTOCOL",
            Self::WaitTimeout => "WAIT_TIMEOUT",
            Self::Unsupported => "UNSUPPORTED",
        }
    }

    /// The exit status of every command but run, exec and start, which have 125 for all of these.
    pub const fn exit_status(self) -> u8 {
        match self {
            Self::Internal => 1,
            Self::Usage => 2,
            Self::SessionNotFound => 3,
            Self::SessionNotRunning | Self::SessionAlreadyDestroyed => 4,
            Self::Partial | Self::Timeout => 5,
            Self::HelperUnreachable => 6,
            Self::Refused => 7,
            Self::Storage | Self::RecordDamaged => 8,
            Self::Protocol => 9,
            Self::WaitTimeout => 11,
            Self::Unsupported => 12,
        }
    }

    /// Whether the same call may succeed later without anything being changed by hand.
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::Partial | Self::Timeout | Self::HelperUnreachable | Self::WaitTimeout
        )
    }
}

/// A failure, with what a reader needs to go on.
#[derive(Debug, Clone)]
pub struct Error {
    code: Code,
    message: String,
    details: Map<String, Value>,
}

/// What most functions here answer.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A failure of this kind. The message says what was tried, what the answer was, and what to do next.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            details: Map::new(),
        }
    }

    /// Adds a detail for JSON.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }

    /// Puts what was being done before the message.
    #[must_use]
    pub fn while_doing(mut self, what: impl fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Puts something that may help behind the message.
    #[must_use]
    pub fn followed_by(mut self, what: impl fmt::Display) -> Self {
        self.message = format!("{}; {what}", self.message);
        self
    }

    /// Which kind.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The sentence for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The details for JSON.
    pub fn details(&self) -> &Map<String, Value> {
        &self.details
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<IoError> for Error {
    /// An I/O error that nobody gave a better kind is unexpected.
    fn from(error: IoError) -> Self {
        Self::new(Code::Internal, error.to_string())
            .with("path", error.path().display().to_string())
    }
}

/// Gives an error without a kind of ours its kind.
pub trait OrCode<T> {
    /// Turns any error into an [`Error`] of that kind, with its own words as the message.
    ///
    /// # Errors
    /// The error it was called on.
    fn or_code(self, code: Code) -> Result<T>;
}

impl<T, E: fmt::Display> OrCode<T> for std::result::Result<T, E> {
    fn or_code(self, code: Code) -> Result<T> {
        self.map_err(|error| Error::new(code, error.to_string()))
    }
}
