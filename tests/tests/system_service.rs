//! The system service under a real systemd: what a user's program cannot do to its leaf, what outlives a logout, and that
//! nobody who has become another user gets away. And root, who finds another user's helper.

use cgleaf_tests::frontend::{Answer, finish};
use cgleaf_tests::lab::{Guest, GuestOptions};
use cgleaf_tests::packaging::folder;
use cgleaf_tests::require;
use cgleaf_tests::scratch::wait_until;

fn root(guest: &Guest, script: &str) -> Answer {
    finish(guest.root(["sh", "-c", script]))
}

/// In a login session of its own, which ends with it.
fn login(guest: &Guest, script: &str) -> Answer {
    finish(guest.session(["sh", "-c", script]))
}

/// A guest whose user has the system service, and no user manager while he is not logged in.
fn served() -> Guest {
    let options = GuestOptions::new()
        .no_linger()
        .bind(folder().join("systemd/system"), "/units");
    let guest = Guest::up(&options).expect("boot a guest");
    let installed = root(
        &guest,
        "cp /cgleaf/cgleaf-helper /usr/libexec/ && cp /units/* /etc/systemd/system/ && systemctl daemon-reload && \
         systemctl start cgleaf-helper@1000.socket",
    );
    installed.expect(0);
    guest
}

/// Nothing of cgleaf's stays in the login's own scope, which would keep the login from ending.
const START: &str = "/cgleaf/cgleaf run --quiet --session s --leftovers keep -- sh -c 'sleep 3600 & sleep 3601 &' >/dev/null 2>&1";

/// What a program tries that wants out.
const ESCAPE: &str = r#"/cgleaf/cgleaf run -- sh -c '
own=$(sed -n s/^0:://p /proc/self/cgroup)
mount=$(sed -n "s/.* \([^ ]*\) [^ ]* [^-]*- cgroup2 .*/\1/p" /proc/self/mountinfo | head -n 1)
leaf=$mount$own
[ -e $leaf/cgroup.kill ] && echo "in $own"
for file in cgroup.procs cgroup.freeze cgroup.kill ../cgleaf-s.leaf/cgroup.procs ../helper/cgroup.procs ../cgroup.procs; do
    (echo $$ >$leaf/$file) 2>/dev/null && echo "wrote $file"
done
mkdir $leaf/own 2>/dev/null && echo "made a cgroup"
grep -q "::$own\$" /proc/self/cgroup && echo "still there"'"#;

#[test]
fn a_program_cannot_write_its_leaf_and_a_session_outlives_the_logout() {
    require!(Systemd, Cc);
    let guest = served();
    login(&guest, START).expect(0);
    let tried = login(&guest, ESCAPE);
    let lines: Vec<&str> = tried.expect(0).lines().collect();
    assert!(
        lines[0].contains("/user-1000.slice/cgleaf-helper@1000.service/"),
        "{tried:?}"
    );
    assert_eq!(lines[1..], ["still there"], "{tried:?}");

    // Records and user manager go; the session and the helper's own list stay.
    wait_until("the user's manager to end", || {
        root(&guest, "test ! -e /run/user/1000").code() == 0
    });
    let shown = login(&guest, "/cgleaf/cgleaf --json show s");
    shown.expect(0);
    let result = shown.json()["result"].clone();
    assert_eq!(
        (&result["state"], &result["members"]),
        (&"running".into(), &2.into())
    );
    login(&guest, "/cgleaf/cgleaf freeze s && /cgleaf/cgleaf thaw s").expect(0);
    login(&guest, "/cgleaf/cgleaf destroy s").expect(0);
    root(&guest, "pgrep -x -f 'sleep 360[01]'").expect(1);
}

#[test]
fn who_became_root_in_a_session_is_frozen_and_ended_with_it() {
    require!(Systemd, Cc);
    let guest = served();
    let setuid = "cp /usr/bin/setpriv /usr/local/bin/as && chmod 4755 /usr/local/bin/as";
    root(&guest, setuid).expect(0);
    let program = "as --reuid 0 --regid 0 --clear-groups sleep 3602 & sleep 3603 &";
    let start = format!(
        "/cgleaf/cgleaf run --quiet --session s --leftovers keep -- sh -c '{program}' >/dev/null 2>&1"
    );
    login(&guest, &start).expect(0);
    let uids = "grep -h ^Uid: /proc/$(pgrep -x -f 'sleep 3602')/status";
    wait_until("it is root's", || {
        root(&guest, uids).stdout.split_whitespace().nth(1) == Some("0")
    });
    login(&guest, "kill -KILL $(pgrep -x -f 'sleep 3602')").expect(1);
    login(&guest, "/cgleaf/cgleaf freeze s").expect(0);
    let frozen = "cat /sys/fs/cgroup/user.slice/user-1000.slice/cgleaf-helper@1000.service/cgleaf-s.leaf/cgroup.events";
    assert!(root(&guest, frozen).stdout.contains("frozen 1"));
    login(&guest, "/cgleaf/cgleaf destroy s").expect(0);
    root(&guest, "pgrep -x -f 'sleep 360[23]'").expect(1);
}

/// `su` without `-` leaves root with the user's XDG_RUNTIME_DIR, and so with the socket of a helper that is not root's.
#[test]
fn root_does_not_trust_another_users_helper() {
    require!(Systemd, Cc);
    let guest = Guest::up(&GuestOptions::new()).expect("boot a guest");
    finish(guest.user(["sh", "-c", START])).expect(0);
    let as_root = |words: &str| {
        let script = format!("XDG_RUNTIME_DIR=/run/user/1000 /cgleaf/cgleaf --json {words}");
        root(&guest, &script)
    };
    // By itself it looks among its own helpers, and finds nothing of his.
    let list = as_root("list");
    list.expect(0);
    assert_eq!(list.json()["result"]["sessions"], serde_json::json!([]));
    as_root("destroy s").expect(3);
    // Told to ask that one, it sees who listens there.
    let socket = "--socket /run/user/1000/cgleaf/run/scope.sock";
    for command in ["destroy s", "freeze s", "signal s KILL"] {
        let refused = as_root(&format!("{socket} {command}"));
        refused.expect(7);
        let message = refused.json()["error"]["message"].to_string();
        assert!(
            message.contains("runs as uid 1000, this is uid 0"),
            "{message}"
        );
    }
    let lives = root(&guest, "pgrep -c -x -f 'sleep 360[01]'");
    assert_eq!(lives.expect(0), "2");
    finish(guest.user(["/cgleaf/cgleaf", "destroy", "s"])).expect(0);
}
