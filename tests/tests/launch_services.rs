//! Services of a real systemd that run as one user, as CI runners do, each with a directory of its own for leaves; and what becomes
//! of a program where no manager answers.

use std::process::Command;

use cgleaf_tests::frontend::{Answer, finish};
use cgleaf_tests::lab::{Guest, GuestOptions};
use cgleaf_tests::require;
use cgleaf_tests::scratch::wait_until;

const DELEGATED: &str = "--property=Delegate=yes";

/// A script in a service of the system that runs as the guest's user; `own` names the service's cgroup for leaves.
fn service(guest: &Guest, name: &str, own: bool, more: &[&str], script: &str) -> Command {
    let unit = format!("--unit={name}");
    let directory = format!("--setenv=CGLEAF_SCOPE_DIR=/sys/fs/cgroup/system.slice/{name}.service");
    let mut words = vec!["systemd-run", "--quiet", "--collect", &unit];
    words.extend(["--property=User=lab", "--setenv=PATH=/cgleaf:/usr/bin:/bin"]);
    if own {
        words.push(&directory);
    }
    words.extend(more);
    words.extend(["--", "sh", "-c", script]);
    guest.enter(words)
}

fn told(answer: &Answer) -> usize {
    let lines = answer.stderr.lines();
    lines
        .filter(|line| line.contains("kept by its processes"))
        .count()
}

/// Where programs ran, in the order of the answer.
fn places(answer: &Answer) -> Vec<&str> {
    answer
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("0::"))
        .collect()
}

const WHERE: &str = "grep 0:: /proc/self/cgroup";

/// The second of two runners, whether its user has a manager that could be asked, or not.
#[test]
fn each_runner_has_its_leaves_in_its_own_service() {
    let Some(guest) = Guest::shared() else { return };
    for (number, runtime) in ["/run/user/1000", "/nowhere"].into_iter().enumerate() {
        let environment = format!("--setenv=XDG_RUNTIME_DIR={runtime}");
        let of = |what: &str| format!("{what}{number}");
        let (first, session) = (of("first"), of("first-session"));
        if number == 0 {
            // A helper of the manager's is there too.
            let words = ["/cgleaf/cgleaf", "run", "--", "true"];
            finish(guest.user(words)).expect(0);
        }
        let script = format!("exec cgleaf run --session {session} -- sleep 1000");
        let started = service(guest, &first, true, &[DELEGATED, &environment], &script);
        finish(started).expect(0);
        let leaf = format!("system.slice/{first}.service/cgleaf-{session}.leaf");
        let leaf = guest.cgroup().join(leaf).join("cgroup.procs");
        let is_in_it = || std::fs::read_to_string(&leaf).is_ok_and(|pids| !pids.is_empty());
        wait_until("the first runner's session", is_in_it);

        let second = of("second");
        let script = format!(
            "for how in run exec; do cgleaf $how -- {WHERE} || exit; done; cgleaf doctor --json; cgleaf list --json"
        );
        let ways = [DELEGATED, &environment, "--pipe", "--wait"];
        let answer = finish(service(guest, &second, true, &ways, &script));
        answer.expect(0);
        let places = places(&answer);
        assert_eq!(places.len(), 2, "{answer:?}");
        let there = format!("/system.slice/{second}.service/cgleaf-");
        assert!(
            places.iter().all(|one| one.starts_with(&there)),
            "{answer:?}"
        );
        assert_eq!(told(&answer), 0, "{answer:?}");
        assert!(answer.stdout.contains("\"tier\":\"cgroup\""), "{answer:?}");
        let stays = format!("what is started here stays in /system.slice/{second}.service");
        assert!(answer.stdout.contains(&stays), "{answer:?}");
        assert!(answer.stdout.contains(&session), "list has it: {answer:?}");

        // Without delegation, and without a name: the group tier, in the service that it is in.
        for own in [true, false] {
            let third = of("third");
            let script = format!(
                "for how in run exec; do sh -c \"cgleaf $how -- {WHERE}\" || exit; done; \
                 cgleaf run --tier cgroup -- true; echo $?"
            );
            let answer = finish(service(guest, &third, own, &ways[1..], &script));
            assert!(answer.expect(0).ends_with("125"), "{answer:?}");
            assert_eq!(told(&answer), 2, "{answer:?}");
            let own = format!("0::/system.slice/{third}.service\n").repeat(2);
            assert!(answer.stdout.starts_with(&own), "{answer:?}");
        }
        let end = ["/cgleaf/cgleaf", "destroy", &session];
        let runtime = format!("XDG_RUNTIME_DIR={runtime}");
        let user = [
            "setpriv",
            "--reuid=1000",
            "--regid=1000",
            "--clear-groups",
            "env",
            &runtime,
        ];
        finish(guest.enter(user.iter().chain(&end))).expect(0);
    }
}

/// A manager that was killed leaves the file of its socket.
#[test]
fn a_manager_that_does_not_answer_is_none() {
    require!(Systemd, Cc);
    let guest = Guest::up(&GuestOptions::new().no_linger()).expect("a guest");
    let script =
        "touch /share/logged-in; until [ -e /share/go ]; do sleep 1; done; test -S /run/user/1000/systemd/private || exit 9
        for CGLEAF_SCOPE_DIR in '' /sys/fs/cgroup/system.slice/runner.service; do
            export CGLEAF_SCOPE_DIR
            for how in run exec start; do /cgleaf/cgleaf $how -- true; echo $how $?; done
            for how in run exec start; do /cgleaf/cgleaf $how --tier cgroup --status-fd 1 -- true; echo cgroup $how $?; done
        done";
    let child = guest
        .session(["sh", "-c", script])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("log in");
    wait_until("a login", || guest.share().join("logged-in").exists());
    // A helper that cannot move anybody out of a login, so that a manager would have to.
    let runtime = "--setenv=XDG_RUNTIME_DIR=/run/user/1000";
    let script = "exec cgleaf run -- sh -c 'touch /share/runs; exec sleep 1000'";
    finish(service(
        &guest,
        "runner",
        true,
        &[DELEGATED, runtime],
        script,
    ))
    .expect(0);
    wait_until("a runner", || guest.share().join("runs").exists());
    let kill = "kill -KILL $(systemctl show --property=MainPID --value user@1000.service)
        until [ \"$(systemctl is-active user@1000.service)\" != active ]; do sleep 1; done; touch /share/go";
    finish(guest.enter(["sh", "-c", kill])).expect(0);
    let answer = cgleaf_tests::frontend::collect(child);
    answer.expect(0);
    for how in ["run", "exec", "start"] {
        for line in [format!("{how} 0"), format!("cgroup {how} 125")] {
            let count = answer.stdout.lines().filter(|one| *one == line).count();
            assert_eq!(count, 2, "{line}: {answer:?}");
        }
    }
    let refused = "\"code\":\"UNSUPPORTED\"";
    assert_eq!(answer.stdout.matches(refused).count(), 6, "{answer:?}");
    assert_eq!(told(&answer), 6, "{answer:?}");
    assert!(!answer.stderr.contains("Failed to connect"), "{answer:?}");
}

/// From a service in the user's own slice the way leads through a scope of his manager's: its limits are left behind, which is said.
#[test]
fn who_leaves_a_service_of_the_users_slice_is_told() {
    let Some(guest) = Guest::shared() else { return };
    for how in ["run", "exec", "start"] {
        let unit = format!("--unit=in-the-slice-{how}");
        let words = [
            "systemd-run",
            "--quiet",
            "--collect",
            "--pipe",
            "--wait",
            &unit,
            "--slice=user-1000.slice",
            "--property=User=lab",
            "--setenv=XDG_RUNTIME_DIR=/run/user/1000",
            "/cgleaf/cgleaf",
            how,
            "--",
            "true",
        ];
        let answer = finish(guest.enter(words));
        answer.expect(0);
        let leaves = format!("leaves in-the-slice-{how}.service");
        assert_eq!(answer.stderr.matches(&leaves).count(), 1, "{answer:?}");
    }
}

/// Whose sessions they are is decided by where they lie: who is root in a user namespace of his own is still that user.
#[test]
fn root_of_a_user_namespace_does_not_outlive_his_users_logout() {
    require!(Systemd, Cc);
    let guest = Guest::up(&GuestOptions::new().no_linger()).expect("a guest");
    let script = "/cgleaf/cgleaf run --leftovers keep --session plain -- sh -c 'setsid sleep 1000 &'
        unshare -Ur sh -c '/cgleaf/cgleaf run --leftovers keep --session mapped -- sh -c \"setsid sleep 1000 &\"
            /cgleaf/cgleaf start --session started -- sleep 1000; /cgleaf/cgleaf list --json; /cgleaf/cgleaf doctor | grep lingering:'
        /cgleaf/cgleaf destroy plain mapped started";
    let answer = finish(guest.session(["sh", "-c", script]));
    answer.expect(0);
    let survives = answer.stdout.matches("\"survives_logout\":false").count();
    assert_eq!(survives, 3, "{answer:?}");
    for session in ["plain", "mapped", "started"] {
        let told = format!("session {session} ends after your last logout");
        assert_eq!(answer.stderr.matches(&told).count(), 1, "{answer:?}");
    }
    let lingering = "NO      lingering: sessions end with the last logout";
    assert!(answer.stdout.contains(lingering), "{answer:?}");
}
