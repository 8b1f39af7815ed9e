//! Frontends and helpers killed at random moments, beneath a real user manager: in scope mode, and with the helper as the
//! user's service.

use cgleaf_tests::frontend::{Answer, finish};
use cgleaf_tests::lab::{Guest, GuestOptions};
use cgleaf_tests::packaging;
use cgleaf_tests::require;

/// How many of each are killed. In a guest, whose helpers systemd starts one after the other, 200 take minutes: that is for
/// whoever asks for it.
fn kills() -> String {
    std::env::var("CGLEAF_TEST_KILLS").unwrap_or_else(|_| "12".to_owned())
}

fn guest() -> Guest {
    let series = std::path::Path::new(env!("CARGO_BIN_EXE_crash-series"));
    let options = GuestOptions::new()
        .bind(series.parent().expect("a directory"), "/tests")
        .bind(packaging::folder(), "/packaging");
    Guest::up(&options).expect("a guest")
}

fn done(answer: &Answer) -> &str {
    assert!(
        answer.status.success(),
        "{}{}",
        answer.stdout,
        answer.stderr
    );
    answer.stdout.trim()
}

fn as_user(guest: &Guest, script: &str) -> String {
    done(&finish(guest.user(["sh", "-ec", script]))).to_owned()
}

fn series(guest: &Guest, mode: &str, victim: &str) {
    let words = [
        "/tests/crash-series",
        mode,
        victim,
        &kills(),
        "/cgleaf/cgleaf",
    ];
    let output = guest.user(words).output().expect("run the series");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{mode}, {victim}: {said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    println!("{mode}: {}", said.trim());
}

/// Nothing of ours that systemd still knows of, and nothing that it calls failed.
fn no_unit_is_left(guest: &Guest) {
    let listed = as_user(
        guest,
        "systemctl --user list-units --all --plain --no-legend 'cgleaf-helper-*'; systemctl --user --failed --plain --no-legend",
    );
    assert_eq!(listed, "");
}

#[test]
fn in_scope_mode_kills_lose_nothing_and_leave_nothing() {
    require!(Systemd, Cc);
    let guest = guest();
    for victim in ["frontend", "helper"] {
        series(&guest, "scope", victim);
        no_unit_is_left(&guest);
    }
}

#[test]
fn in_user_service_mode_kills_lose_nothing_and_leave_nothing() {
    require!(Systemd, Cc);
    let guest = guest();
    let install = "mkdir -p /usr/libexec /etc/systemd/user
        cp /cgleaf/cgleaf-helper /usr/libexec/; cp /packaging/systemd/user/* /etc/systemd/user/";
    done(&finish(guest.root(["sh", "-ec", install])));
    as_user(
        &guest,
        "systemctl --user daemon-reload; systemctl --user start cgleaf-helper.socket",
    );
    for victim in ["frontend", "helper"] {
        series(&guest, "service", victim);
        // The helper was the service's all the time.
        let state = as_user(
            &guest,
            "systemctl --user show -p ActiveState -p Result cgleaf-helper.service; \
             systemctl --user list-units --all --plain --no-legend 'cgleaf-helper-*'",
        );
        assert_eq!(state, "Result=success\nActiveState=active", "{victim}");
    }
}
