//! The end of a session that this process started: what is left over is ended, the leaf goes, the record says how.

use std::time::Duration;

use cgleaf_shared::wire::{Reply, Request, Target};

use super::claim::Claim;
use crate::client::{Client, Deadline, LeafEvents};
use crate::error::{Code, Error, OrCode, Result};
use crate::records::{Found, Phase, Record};

/// What ending a session came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    /// How many processes were killed.
    pub(super) killed: u32,
}

/// How long the end of what was killed may take before it is said to be late.
const END_TIME: Duration = Duration::from_secs(10);

/// Whether nothing lives in the leaf.
pub(super) fn is_over(events: &mut LeafEvents) -> bool {
    match events.now() {
        Ok(None) => true,
        Ok(Some(events)) => !events.populated,
        Err(_) => false,
    }
}

/// Ends everything in the session.
///
/// # Errors
/// PARTIAL: something may live. Whatever the helper refuses.
pub(super) fn end(record: &Record, _grace: Option<Duration>) -> Result<Ended> {
    let (mut client, target) = reach(record)?;
    let session = record.session.clone();
    let killed = match client.call(&Request::Members {
        target: target.clone(),
        after: None,
    })? {
        Reply::Members(page) => page.total,
        _ => 0,
    };
    let (_, descriptor) = client.call_with_descriptor(&Request::Open { session })?;
    client.call(&Request::Kill { target })?;
    let mut events = LeafEvents::new(descriptor.ok_or_else(|| {
        Error::new(
            Code::Partial,
            "the helper passes no descriptor to wait with",
        )
    })?);
    events
        .wait_for_end(Some(Deadline::after(END_TIME)))
        .or_code(Code::Partial)?;
    Ok(Ended { killed })
}

fn reach(record: &Record) -> Result<(Client, Target)> {
    let unknown = || Error::new(Code::Internal, "the session has no leaf");
    let attestation = record.attestation.as_ref().ok_or_else(unknown)?;
    let helper = record.helper.as_ref().ok_or_else(unknown)?;
    Ok((Client::connect(&helper.socket)?, Target::from(attestation)))
}

/// Has an empty leaf removed. EBUSY right after an end is normal; what stays is swept by gc.
pub(super) fn remove_empty(mut client: Client, target: &Target) -> bool {
    for wait in 0..10_u64 {
        match client.call(&Request::Remove {
            target: target.clone(),
        }) {
            Ok(Reply::Removed(removal)) if removal.removed => return true,
            Ok(_) => std::thread::sleep(Duration::from_millis(wait)),
            // It is gone already, or nobody is there to remove it.
            Err(_) => return false,
        }
    }
    false
}

/// Writes how the leader ended; the session goes on.
pub(super) fn write_exit(claim: &Claim) {
    let Some(store) = claim.store() else { return };
    let record = claim.record();
    if let Ok(Some(Found::Record(mut current))) = store.read(&record.session) {
        current.exit = record.exit;
        let _ = store.advance(&current);
    }
}

/// Writes how the leader ended and, where nothing is left, that the session has; its leaf and its name go.
pub(super) fn write_the_end(claim: &Claim, events: &mut LeafEvents) {
    if !is_over(events) {
        write_exit(claim);
        return;
    }
    if let Ok((client, target)) = reach(claim.record()) {
        remove_empty(client, &target);
    }
    let Some(store) = claim.store() else { return };
    let record = claim.record();
    if let Ok(Some(Found::Record(mut current))) = store.read(&record.session) {
        current.exit = record.exit;
        if current.phase < Phase::Destroying {
            current.phase = Phase::Ended;
        }
        let _ = store.advance(&current);
    }
    claim.release_name();
}
