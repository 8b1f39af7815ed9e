//! The last logout of a user who does not linger, beneath a real systemd: what lies beneath the user's manager ends, and its
//! records with it; what the system service keeps stays, and is found again without any record.

use std::process::Command;

use cgleaf_tests::frontend::finish;
use cgleaf_tests::lab::{Guest, GuestOptions};
use cgleaf_tests::packaging;
use cgleaf_tests::require;
use cgleaf_tests::scratch::wait_until;
use serde_json::Value;

const CGLEAF: &str = "/cgleaf/cgleaf";

fn script(words: &str) -> [String; 3] {
    ["sh".into(), "-ec".into(), words.into()]
}

/// A command in a login of its own.
fn login(guest: &Guest, words: &str) -> Command {
    guest.session(script(words))
}

/// Their ids, their states, and whether they survive a logout.
fn sessions(json: &str) -> Vec<(String, String, Option<bool>)> {
    let answer: Value = serde_json::from_str(json).expect("JSON");
    let sessions = answer["result"]["sessions"].as_array().expect("sessions");
    let text = |one: &Value, name: &str| one[name].as_str().unwrap_or("").to_owned();
    sessions
        .iter()
        .map(|one| {
            let survives = one["survives_logout"].as_bool();
            (text(one, "session"), text(one, "state"), survives)
        })
        .collect()
}

#[test]
fn what_ends_with_the_last_logout_and_what_stays() {
    require!(Systemd, Cc);
    let options = GuestOptions::new()
        .no_linger()
        .bind(packaging::folder(), "/packaging");
    let guest = Guest::up(&options).expect("a guest");
    let there = |path: &str| guest.cgroup().join(path).exists();

    // In the first login a helper of the user's own; it stays logged in until there is a file.
    let first = format!(
        "{CGLEAF} --json start --session mine -- sleep 1000 >/share/mine; {CGLEAF} start --session told -- sleep 1000 2>/share/notice; \
         touch /share/ready; until [ -e /share/leave ]; do sleep 1; done"
    );
    let first = login(&guest, &first).spawn().expect("log in");
    wait_until("two sessions", || guest.share().join("ready").exists());
    let read = |name: &str| std::fs::read_to_string(guest.share().join(name)).expect("read");
    let mine: Value = serde_json::from_str(&read("mine")).expect("JSON");
    assert_eq!(mine["result"]["survives_logout"], false, "{mine}");
    let notice = read("notice");
    assert_eq!(notice.lines().count(), 1, "{notice}");
    assert!(
        notice.contains("logout") && notice.contains("enable-linger"),
        "{notice}"
    );

    // In the second one, the helper that an administrator has set up for the user.
    let install = "mkdir -p /usr/libexec; cp /cgleaf/cgleaf-helper /usr/libexec/
        cp /packaging/systemd/system/* /etc/systemd/system/; systemctl daemon-reload
        systemctl start cgleaf-helper@1000.socket";
    finish(guest.root(script(install))).expect(0);
    // By exec: the small process of a start would wait in the login, which is not over while anybody is in it.
    let second = format!(
        "setsid {CGLEAF} exec --status-fd 3 --session kept -- sleep 1000 3>/share/kept 2>/share/silent >/share/silent & \
         until [ -s /share/kept ]; do sleep 1; done"
    );
    finish(login(&guest, &second)).expect(0);
    let kept: Value = serde_json::from_str(&read("kept")).expect("JSON");
    assert_eq!(read("silent"), "", "there is nothing to be told");
    let path = |session: &Value| {
        let path = session["result"]["leaf"]["path"].as_str();
        path.unwrap_or("").trim_start_matches('/').to_owned()
    };
    let (mine, kept) = (path(&mine), path(&kept));
    assert!(mine.contains("user@1000.service") && there(&mine), "{mine}");
    assert!(
        kept.contains("cgleaf-helper@1000.service") && there(&kept),
        "{kept}"
    );
    let listed = finish(login(&guest, &format!("{CGLEAF} --json list")));
    let mut listed = sessions(listed.expect(0));
    listed.sort();
    let running = |id: &str, survives: bool| (id.to_owned(), "running".to_owned(), Some(survives));
    assert_eq!(
        listed,
        [
            running("kept", true),
            running("mine", false),
            running("told", false)
        ]
    );

    std::fs::write(guest.share().join("leave"), "").expect("let it leave");
    cgleaf_tests::frontend::collect(first).expect(0);
    wait_until("the end of the user's manager", || {
        finish(guest.enter(["test", "-e", "/run/user/1000"])).code() == 1
    });
    assert!(!there(&mine), "its leaf went with the manager");
    assert!(there(&kept), "the service's stays");

    // The records went too: what the helper has is enough.
    let again = finish(login(&guest, &format!("{CGLEAF} --json list --all")));
    let unrecorded = ("kept".to_owned(), "running".to_owned(), None);
    assert_eq!(sessions(again.expect(0)), [unrecorded], "{again:?}");
    let gone = finish(login(&guest, &format!("{CGLEAF} destroy mine")));
    assert_eq!(gone.code(), 3, "{gone:?}");
    let ended = finish(login(&guest, &format!("{CGLEAF} destroy kept")));
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(!there(&kept));
}
