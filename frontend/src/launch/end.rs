//! The end of a session that this process started: what is left over is ended, the leaf goes, the record says how.

use std::time::Duration;

use cgleaf_shared::id::SessionId;
use cgleaf_shared::wire::{Reply, Request, Target};

use super::Site;
use super::claim::Claim;
use crate::client::interest::Regardless;
use crate::client::{Client, Deadline, LeafEvents, all_places};
use crate::error::{Code, Error, Result};
use crate::ops::{self, DestroyOptions, Destroyed, Reach};
use crate::records::{Phase, Record, Store};

/// Whether nothing lives in the leaf.
pub(super) fn is_over(events: &mut LeafEvents) -> bool {
    match events.now() {
        Ok(None) => true,
        Ok(Some(events)) => !events.populated,
        Err(_) => false,
    }
}

/// Ends everything in the session, as `destroy` does.
///
/// # Errors
/// PARTIAL: something lives, and is named. Whatever the helper refuses.
pub(super) fn end(site: &Site<'_>, record: &Record, grace: Option<Duration>) -> Result<Destroyed> {
    let reach = Reach::new(site.base, site.socket).with_scope_dir(site.scope_dir);
    let options = DestroyOptions {
        grace,
        if_exists: true,
        ..DestroyOptions::default()
    };
    ops::destroy(&reach, record.session.as_str(), &options)
}

fn reach(record: &Record) -> Result<(Client, Target)> {
    let unknown = || Error::new(Code::Internal, "the session has no leaf");
    let attestation = record.attestation.as_ref().ok_or_else(unknown)?;
    let helper = record.helper.as_ref().ok_or_else(unknown)?;
    Ok((Client::connect(&helper.socket)?, Target::from(attestation)))
}

/// How long a helper may take to remove a leaf: somebody waits for the program's end, or has interrupted its beginning.
const REMOVAL: Duration = Duration::from_secs(5);

/// Has an empty leaf removed, also by who is interrupted. EBUSY right after an end is normal; what stays is swept by gc.
pub(super) fn remove_empty(mut client: Client, target: &Target) -> bool {
    let _regardless = Regardless::begin();
    let deadline = Deadline::after(REMOVAL);
    for wait in 0..10_u64 {
        let request = Request::Remove {
            target: target.clone(),
        };
        match client
            .call_full(&request, None, deadline)
            .map(|(reply, _)| reply)
        {
            Ok(Reply::Removed(removal)) if removal.removed => return true,
            Ok(Reply::Refused(_)) => return false,
            Ok(_) => std::thread::sleep(Duration::from_millis(wait)),
            // It is gone already, or nobody is there to remove it.
            Err(_) => return false,
        }
    }
    false
}

/// Has the leaf removed of a session that got none as far as this process was told. Its child has ended; it may have been
/// moved into a leaf and not have said so.
pub(super) fn remove_untold(site: &Site<'_>, session: &SessionId) {
    let _regardless = Regardless::begin();
    let deadline = Deadline::after(REMOVAL);
    let request = Request::Open {
        session: session.clone(),
    };
    for (_, socket) in all_places(site.base, site.socket) {
        let Ok(mut client) = Client::connect(&socket) else {
            continue;
        };
        if let Ok((Reply::Opened(opened), _)) = client.call_full(&request, None, deadline) {
            remove_empty(client, &Target::from(&opened.entry.attestation));
            return;
        }
    }
}

/// Writes how the leader ended; the session goes on.
pub(super) fn write_exit(claim: &Claim) {
    if let Some(store) = claim.store() {
        write_to(store, claim.record(), Phase::Running);
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
    if let Some(store) = claim.store() {
        write_to(store, claim.record(), Phase::Ended);
    }
    claim.release_name();
}

/// What is said where the leader has ended and leftovers are kept.
pub(super) fn goes_on(session: &SessionId) -> String {
    format!(
        "session {session} goes on without its first program; `cgleaf destroy {session}` ends it"
    )
}

/// Adds to a record how the leader ended. A record that a destroy has in hand keeps its phase.
pub(super) fn write_to(store: &Store, of: &Record, phase: Phase) {
    // What cannot be written now is told by the kernel later, but for the status.
    let _ = store.revise(&of.session, Some(of.created), |current| {
        current.exit = of.exit.or(current.exit);
        if current.phase < Phase::Destroying {
            current.phase = phase;
        }
    });
}

/// What is said of processes that outlived their program and were ended; nothing of none.
pub(super) fn outlived(session: &SessionId, killed: usize) -> Option<String> {
    let (what, verb) = match killed {
        0 => return None,
        1 => ("process", "was"),
        _ => ("processes", "were"),
    };
    Some(format!(
        "session {session}: {killed} {what} outlived the program and {verb} ended; --leftovers keep lets them go on"
    ))
}
