//! The gate at which a child waits between its enrolment and the program: it starts only when its parent says so, and ends
//! if its parent does.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use cgleaf_shared::attestation::Attestation;
use cgleaf_shared::wire::Refusal;
use serde::{Deserialize, Serialize};

use super::message;
use crate::client::interest;
use crate::error::{Code, Error, OrCode, Result};
use crate::records::HelperRef;

const GO: u8 = b'g';

/// The parent's side.
#[derive(Debug)]
pub(super) struct ParentGate(UnixStream);

/// The child's side. execve(2) closes it, which tells the parent that the program was executed.
#[derive(Debug)]
pub(super) struct ChildGate(UnixStream);

/// What became of a child that was told to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The program was executed, or the child has ended.
    Through,
    /// execve(2) answered this.
    Failed(i32),
}

/// What a child that enrols itself tells its parent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Word {
    /// It is in this leaf.
    Enrolled(Box<Attestation>, HelperRef),
    /// No helper serves this place.
    NotServed(Vec<String>),
    /// It cannot be moved.
    MoveDenied(Refusal),
    /// Anything else: a code's name and a message.
    Failed(String, String),
}

impl Word {
    pub(super) fn of_error(error: &Error) -> Self {
        Self::Failed(error.code().name().to_owned(), error.message().to_owned())
    }
}

/// A gate, both sides close-on-exec.
pub(super) fn gate() -> Result<(ParentGate, ChildGate)> {
    let (ours, theirs) = UnixStream::pair()
        .or_code(Code::Internal)
        .map_err(|error| error.while_doing("make a socket pair"))?;
    Ok((ParentGate(ours), ChildGate(theirs)))
}

impl ChildGate {
    /// Waits to be told to go; `false` if the parent has ended or has given up.
    pub(super) fn wait(&mut self) -> bool {
        let mut byte = [0];
        loop {
            match self.0.read(&mut byte) {
                Ok(count) => return count == 1 && byte[0] == GO,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    /// Tells that execve(2) failed.
    pub(super) fn failed(&mut self, errno: i32) {
        let _ = self.0.write_all(&errno.to_ne_bytes());
    }

    /// Tells the parent how the enrolment went.
    pub(super) fn tell(&mut self, word: &Word) {
        // A parent that is gone is seen at the gate.
        let _ = message::write(&mut self.0, word);
    }
}

impl ParentGate {
    /// Lets the child go on to the program.
    ///
    /// # Errors
    /// INTERNAL if the child has ended.
    pub(super) fn open(&mut self) -> Result<()> {
        self.0
            .write_all(&[GO])
            .or_code(Code::Internal)
            .map_err(|error| error.while_doing("let the child go on"))
    }

    /// What came of it. To be asked when the gate can be read; it waits otherwise.
    pub(super) fn outcome(&mut self) -> Outcome {
        let mut errno = [0; 4];
        match self.0.read_exact(&mut errno) {
            Ok(()) => Outcome::Failed(i32::from_ne_bytes(errno)),
            Err(_) => Outcome::Through,
        }
    }

    /// What a child that enrols itself tells.
    ///
    /// # Errors
    /// INTERNAL if it ended before it said anything, or if this process is interrupted meanwhile.
    pub(super) fn word(&mut self) -> Result<Word> {
        interest::wait_for(self.0.as_fd())?;
        message::read(&mut self.0)
            .map_err(|error| error.while_doing("wait for the child's enrolment"))
    }
}

impl AsFd for ParentGate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
