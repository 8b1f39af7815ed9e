//! A recorded process, held while it is signalled and until it has ended.

use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use cgleaf_shared::process::{Proc, ProcessId, SignalHandle, liveness};

/// How often it is looked at where nothing tells of its end; at first twice as often as the time before.
const LOOK: Duration = Duration::from_millis(1);
const LOOK_AT_MOST: Duration = Duration::from_millis(50);

/// One process.
#[derive(Debug)]
pub(super) struct Held<'a> {
    proc: &'a Proc,
    process: ProcessId,
    handle: SignalHandle,
}

impl<'a> Held<'a> {
    /// Holds it; `None` if it is over. Held first, then known to be the recorded one: the number can have had another
    /// owner only before.
    ///
    /// # Errors
    /// What the kernel answers: then nothing is known.
    pub(super) fn open(proc: &'a Proc, process: ProcessId) -> io::Result<Option<Self>> {
        let handle = SignalHandle::open(process.pid);
        if liveness::of(proc, process).is_dead() {
            return Ok(None);
        }
        let handle = handle.map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Some(Self {
            proc,
            process,
            handle,
        }))
    }

    /// Signals it. `Ok(false)` if it has been reaped.
    ///
    /// # Errors
    /// EPERM where this user may not.
    pub(super) fn send_signal(&self, signal: i32) -> io::Result<bool> {
        self.handle.send_signal(signal)
    }

    /// Waits for its end; `false` once the time is over.
    ///
    /// # Errors
    /// What poll(2) answers.
    pub(super) fn wait_for_end(&self, limit: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + limit;
        let mut pause = LOOK;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let ended = match &self.handle {
                SignalHandle::Pidfd(held) => held.wait(Some(left))?,
                // Nothing tells: it is looked at.
                SignalHandle::Directory(_) => liveness::of(self.proc, self.process).is_dead(),
            };
            if ended {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
            if matches!(self.handle, SignalHandle::Directory(_)) {
                sleep(pause.min(left));
                pause = (pause * 2).min(LOOK_AT_MOST);
            }
        }
    }
}
