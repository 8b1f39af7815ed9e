//! Frontends and helpers killed at random moments, in direct mode.

use cgleaf_tests::crash::{Place, Victim, series};
use cgleaf_tests::frontend::{Sandbox, programs};

/// How many of each are killed. With 200 both take a minute or two on a busy machine.
fn kills() -> usize {
    std::env::var("CGLEAF_TEST_KILLS").map_or(100, |kills| kills.parse().expect("a number"))
}

fn direct(victim: Victim) {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    // The helper makes its scope directory itself: it must go too.
    let scope = sandbox.scope().join("made");
    let place = Place::direct(&programs().join("cgleaf"), sandbox.runtime(), &scope);
    let report = series(&place, victim, kills());
    println!("direct: {report}");
}

#[test]
fn frontends_killed_at_any_moment_lose_nothing_and_leave_nothing() {
    direct(Victim::Frontend);
}

#[test]
fn helpers_killed_beneath_their_frontends_lose_nothing_and_leave_nothing() {
    direct(Victim::Helper);
}
