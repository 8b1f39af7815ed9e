//! Clients that wish a helper ill, a case a function. Each leaves the helper as it was, so that all of them can be tried on
//! one. Where a case does not hold, it panics.
#![allow(
    clippy::missing_panics_doc,
    missing_docs,
    reason = "the cases are tests' bodies: their names say what holds"
)]

mod clients;
mod messages;

pub use clients::*;
pub use messages::*;

use std::fs;

use cgleaf_shared::process::Pid;
use cgleaf_shared::wire::{FreezeFlag, Reply, Request, Target};

use super::{Lair, session};
use crate::scratch::wait_until;

/// For [`resident`]: now.
pub const NOW: &str = "VmRSS:";
/// For [`resident`]: the most since the start.
pub const AT_MOST: &str = "VmHWM:";

/// For [`resident`]: now, of its own memory alone, without its program's pages.
pub const OWN: &str = "RssAnon:";

/// What a client does to a helper.
pub type Case = fn(&Lair);

/// All of the cases, by their names. The last one opens the helper's socket to everybody.
pub const CASES: &[(&str, Case)] = &[
    (
        "random_and_mutated_messages_are_answered_or_end_their_connection",
        random_and_mutated_messages_are_answered_or_end_their_connection,
    ),
    (
        "malformed_packets_get_bad_message_and_the_next_one_is_served",
        malformed_packets_get_bad_message_and_the_next_one_is_served,
    ),
    (
        "who_does_not_begin_with_hello_is_hung_up_on",
        who_does_not_begin_with_hello_is_hung_up_on,
    ),
    (
        "no_id_names_anything_but_a_leaf",
        no_id_names_anything_but_a_leaf,
    ),
    (
        "another_version_lists_and_kills_and_is_told_who_is_older",
        another_version_lists_and_kills_and_is_told_who_is_older,
    ),
    (
        "descriptors_are_closed_however_many_come",
        descriptors_are_closed_however_many_come,
    ),
    (
        "one_that_never_reads_stops_nobody",
        one_that_never_reads_stops_nobody,
    ),
    (
        "ten_thousand_connections_and_silent_ones_leave_nothing",
        ten_thousand_connections_and_silent_ones_leave_nothing,
    ),
    (
        "a_silent_client_is_closed_in_time",
        a_silent_client_is_closed_in_time,
    ),
    (
        "one_that_dies_at_each_step_leaves_nothing",
        one_that_dies_at_each_step_leaves_nothing,
    ),
    (
        "one_that_only_reads_any_more_is_answered",
        one_that_only_reads_any_more_is_answered,
    ),
    ("nobody_else_is_moved", nobody_else_is_moved),
    (
        "a_connection_whose_maker_has_ended_moves_nobody",
        a_connection_whose_maker_has_ended_moves_nobody,
    ),
    (
        "credentials_in_a_message_mean_nothing",
        credentials_in_a_message_mean_nothing,
    ),
    (
        "another_users_sessions_are_not_there",
        another_users_sessions_are_not_there,
    ),
];

/// The helper's resident memory, in KiB: all of it, what it has of its own and the pages of its program.
#[must_use]
pub fn resident(lair: &Lair, which: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", lair.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with(which)).unwrap();
    line.split_ascii_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

/// The helper answers, has the descriptors that it had, and has not grown.
fn unharmed(lair: &Lair, descriptors: usize, memory: u64) {
    let client = lair.client();
    assert!(matches!(client.call(&Request::Status), Reply::Status(_)));
    drop(client);
    wait_until("the helper's descriptors to come back", || {
        lair.descriptors() <= descriptors
    });
    // A debug build, so that the limit of the release build does not hold; what counts is that nothing is kept.
    let now = resident(lair, NOW);
    assert!(now <= memory + 1024, "{memory} KiB became {now} KiB");
}

fn a_request_of_each_kind(target: &Target) -> Vec<Request> {
    let flag = FreezeFlag::Hold;
    vec![
        Request::List { after: None },
        Request::Open {
            session: target.session.clone(),
        },
        Request::Kill {
            target: target.clone(),
        },
        Request::Remove {
            target: target.clone(),
        },
        Request::Freeze {
            target: target.clone(),
            flag,
        },
        Request::Thaw {
            target: target.clone(),
            flag,
        },
        Request::IsFrozen {
            target: target.clone(),
        },
        Request::Members {
            target: target.clone(),
            after: None,
        },
        Request::Adopt {
            target: target.clone(),
        },
        Request::Attest {
            target: target.clone(),
            leader: Pid::own(),
        },
        Request::Create { new: session("x") },
        Request::Status,
    ]
}
