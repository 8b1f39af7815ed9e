//! Clients that wish a helper ill. It neither ends nor keeps others waiting, its memory and its descriptors come back, and
//! every refusal is the right one. What each does is in `cgleaf_tests::helper::hostile`.

use std::process::Command;

use cgleaf_shared::wire::Target;
use cgleaf_tests::frontend::are_released;
use cgleaf_tests::helper::{Client, Lair, hostile};
use cgleaf_tests::scratch::wait_until;

/// Runs a case on a helper of its own.
fn alone(case: hostile::Case) {
    if let Some(lair) = Lair::new(0) {
        case(&lair);
    }
}

#[test]
fn random_and_mutated_messages_are_answered_or_end_their_connection() {
    alone(hostile::random_and_mutated_messages_are_answered_or_end_their_connection);
}

#[test]
fn malformed_packets_get_bad_message_and_the_next_one_is_served() {
    alone(hostile::malformed_packets_get_bad_message_and_the_next_one_is_served);
}

#[test]
fn who_does_not_begin_with_hello_is_hung_up_on() {
    alone(hostile::who_does_not_begin_with_hello_is_hung_up_on);
}

#[test]
fn no_id_names_anything_but_a_leaf() {
    alone(hostile::no_id_names_anything_but_a_leaf);
}

#[test]
fn another_version_lists_and_kills_and_is_told_who_is_older() {
    alone(hostile::another_version_lists_and_kills_and_is_told_who_is_older);
}

#[test]
fn descriptors_are_closed_however_many_come() {
    alone(hostile::descriptors_are_closed_however_many_come);
}

#[test]
fn one_that_never_reads_stops_nobody() {
    alone(hostile::one_that_never_reads_stops_nobody);
}

#[test]
fn ten_thousand_connections_and_silent_ones_leave_nothing() {
    alone(hostile::ten_thousand_connections_and_silent_ones_leave_nothing);
}

#[test]
fn a_silent_client_is_closed_in_time() {
    alone(hostile::a_silent_client_is_closed_in_time);
}

#[test]
fn one_that_dies_at_each_step_leaves_nothing() {
    alone(hostile::one_that_dies_at_each_step_leaves_nothing);
}

#[test]
fn one_that_only_reads_any_more_is_answered() {
    alone(hostile::one_that_only_reads_any_more_is_answered);
}

#[test]
fn nobody_else_is_moved() {
    alone(hostile::nobody_else_is_moved);
}

#[test]
fn a_connection_whose_maker_has_ended_moves_nobody() {
    alone(hostile::a_connection_whose_maker_has_ended_moves_nobody);
}

#[test]
fn credentials_in_a_message_mean_nothing() {
    alone(hostile::credentials_in_a_message_mean_nothing);
}

#[test]
fn another_users_sessions_are_not_there() {
    alone(hostile::another_users_sessions_are_not_there);
}

/// The most that a released helper may ever have resident, in KiB: `VmHWM`, the pages of its program included.
const MOST: u64 = 4096;
/// The most that any helper may have of its own, its program's pages apart, and by which its peak may grow under all of them.
const OWN: u64 = 1024;

/// One after the other on one helper. The bound of all that is resident holds for a released one (`tests/run released`), whose pages are
/// those that are installed; that of its own memory for every build.
#[test]
fn one_helper_outlives_all_of_them() {
    let Some(lair) = Lair::new(0) else { return };
    drop(lair.client());
    let descriptors = lair.descriptors();
    let resident = |which| hostile::resident(&lair, which);
    let base = resident(hostile::AT_MOST);
    println!(
        "{base} KiB at most before, {} of its own",
        resident(hostile::OWN)
    );
    for (name, case) in hostile::CASES {
        case(&lair);
        wait_until("the helper's descriptors to come back", || {
            lair.descriptors() <= descriptors
        });
        let (most, own) = (resident(hostile::AT_MOST), resident(hostile::OWN));
        println!("{most} KiB at most, {own} of its own after {name}");
        assert!(own < OWN, "{own} KiB of its own after {name}");
        assert!(most < base + OWN, "{base} KiB became {most} after {name}");
        assert!(!are_released() || most < MOST, "{most} KiB after {name}");
    }
}

/// The descriptors run out: those who are connected are served, one who comes later is told or waits, and once there is
/// room again everyone is served.
#[test]
fn when_descriptors_run_out_kill_and_list_still_work() {
    let Some(mut lair) = Lair::without_helper(0) else {
        return;
    };
    let mut command = Command::new("prlimit");
    let real = lair.command(&[]);
    command
        .arg("--nofile=80:80")
        .arg(real.get_program())
        .args(real.get_args())
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    lair.helper = Some(command.spawn().unwrap());
    wait_until("a helper that answers", || {
        Client::connect(&lair.socket()).is_ok()
    });
    let mut program = lair.enrolled(&["enrol=one"]);
    assert!(program.line().starts_with("enrolled"));
    let client = lair.client();
    let target = Target::from(&client.open("one").attestation);
    let mut crowd = Vec::new();
    let told = loop {
        let socket = Client::connect_silently(&lair.socket()).unwrap();
        match Client::greet(socket) {
            Ok(client) => crowd.push(client),
            Err(why) => break why.to_string(),
        }
        assert!(crowd.len() < 80);
    };
    assert!(!told.is_empty());
    assert_eq!(client.list().len(), 1);
    client.destroy(&target);
    drop(crowd);
    wait_until("room for another client", || {
        Client::connect(&lair.socket()).is_ok()
    });
}
