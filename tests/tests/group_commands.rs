//! The commands on sessions of the group tier.

use std::os::unix::process::CommandExt;

use cgleaf_tests::frontend::Sandbox;
use cgleaf_tests::scratch::wait_until;

#[test]
fn a_started_session_is_listed_and_ended_with_its_setsid_child() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let script = "setsid sleep 1000 & sleep 1000";
    let start = [
        "start",
        "--tier",
        "group",
        "--session",
        "g",
        "--",
        "sh",
        "-c",
        script,
    ];
    sandbox.run(start).expect(0);
    let listed = sandbox.run(["--json", "list"]).json()["result"]["sessions"][0].clone();
    assert_eq!(
        (&listed["tier"], &listed["state"]),
        (&"group".into(), &"running".into())
    );
    let shown = sandbox.run(["--json", "ps", "g"]).json()["result"].clone();
    assert_eq!(shown["complete"], false, "{shown}");
    let pids: Vec<i64> = shown["members"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|member| member["pid"].as_i64())
        .collect();
    assert!(!pids.is_empty(), "{shown}");
    sandbox.run(["freeze", "g"]).expect(12);
    let answer = sandbox.run(["--json", "destroy", "g"]);
    answer.expect(0);
    assert_eq!(answer.json()["result"]["tier"], "group");
    for pid in pids {
        // A zombie is dead, and its parent takes it away when it comes to it.
        wait_until("what was a member is reaped", || {
            !std::path::Path::new(&format!("/proc/{pid}")).exists()
        });
    }
    sandbox.run(["destroy", "g"]).expect(4);
    let again = sandbox.run(["--json", "destroy", "--if-exists", "g"]);
    assert_eq!(again.json()["result"]["tier"], "group", "{again:?}");
}

/// signal, wait, show, gc and `--if-exists`: by the program's own answers.
#[test]
fn a_started_session_is_signalled_waited_for_and_collected() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let script = "trap 'exit 7' TERM; echo >\"$0\"; while :; do sleep .01; done";
    let ready = sandbox.runtime().join("ready");
    let start = ["start", "--tier", "group", "--session", "g", "--name", "n"];
    let ready_path = ready.display().to_string();
    let words = [&start[..], &["--", "sh", "-c", script, &ready_path]].concat();
    sandbox.run(words).expect(0);
    wait_until("the trap", || ready.exists());
    sandbox.run(["wait", "--timeout", "10ms", "n"]).expect(11);
    let kept = sandbox.run(["--json", "gc"]).json()["result"].clone();
    assert_eq!(kept["kept"][0]["session"], "g", "{kept}");
    let sent = sandbox.run(["--json", "signal", "n", "TERM"]);
    sent.expect(0);
    assert_eq!(sent.json()["result"]["complete"], false, "{sent:?}");
    sandbox.run(["wait", "n"]).expect(7);
    let shown = sandbox.run(["--json", "show", "g"]).json()["result"].clone();
    assert_eq!(
        (&shown["tier"], &shown["state"], &shown["exit"]["code"]),
        (&"group".into(), &"ended".into(), &7.into()),
        "{shown}"
    );
    assert_eq!(shown["leaf"], serde_json::Value::Null);
    let gone = sandbox.run(["--json", "gc"]).json()["result"].clone();
    assert_eq!(gone["removed"][0], "g", "{gone}");
    sandbox.run(["destroy", "--if-exists", "g"]).expect(0);
    sandbox.run(["destroy", "g"]).expect(3);
}

/// `exec` in a job of its own: what left its group is named, and a later destroy that may ends it.
#[test]
fn an_exec_whose_child_left_is_partial_and_names_it() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let script = "setsid sleep 1000 & exec sleep 1000";
    let mut command = sandbox.command("setsid");
    command.arg(sandbox.program());
    command.args(["exec", "--quiet", "--tier", "group", "--session", "g", "--"]);
    command.args(["sh", "-c", script]);
    command.stdout(std::process::Stdio::null());
    let mut leader = command.spawn().expect("start cgleaf exec");
    let stray = || {
        let members = sandbox.run(["--json", "ps", "g"]).json()["result"]["members"].clone();
        let members = members.as_array().cloned().unwrap_or_default();
        let own = i64::from(leader.id());
        let mut sleepers = members.iter().filter(|member| member["argv"][0] == "sleep");
        sleepers.find_map(|member| member["pid"].as_i64().filter(|pid| *pid != own))
    };
    let mut pid = None;
    wait_until("the child in its own POSIX session", || {
        pid = stray();
        pid.is_some()
    });
    let answer = sandbox.run(["--json", "destroy", "g"]);
    answer.expect(5);
    let details = answer.json()["error"]["details"].clone();
    assert_eq!(details["tier"], "group", "{details}");
    assert_eq!(details["strays"][0]["pid"].as_i64(), pid, "{details}");
    assert_eq!(details["killed"], 1, "the stray was not: {details}");
    let kept = sandbox.run(["--json", "gc"]).json()["result"].clone();
    assert_eq!(kept["kept"][0]["session"], "g", "{kept}");
    leader.wait().expect("the leader was ended");
    let pid = i32::try_from(pid.expect("a pid")).expect("a pid");
    assert!(
        !cgleaf_tests::session::is_dead(pid),
        "a mark names and never kills"
    );
    let _ = nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(pid),
        nix::sys::signal::Signal::SIGKILL,
    );
    wait_until("its end", || cgleaf_tests::session::is_dead(pid));
    // What the destroy could not prove then is proven now.
    let gone = sandbox.run(["--json", "gc"]).json()["result"].clone();
    assert_eq!(gone["removed"][0], "g", "{gone}");
}

/// Without a group of its own no destroy ever proves the end: gc takes it as it takes those that ended by themselves.
#[test]
fn gc_takes_a_shells_job_that_a_destroy_has_ended() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let words = [
        "exec",
        "--quiet",
        "--tier",
        "group",
        "--session",
        "j",
        "--name",
        "n",
    ];
    let mut command = sandbox.cgleaf(words);
    command.args(["--", "sleep", "300"]).process_group(0);
    let mut leader = command.spawn().expect("start cgleaf exec");
    wait_until("the program", || {
        let line = std::fs::read(format!("/proc/{}/cmdline", leader.id()));
        line.is_ok_and(|line| line.starts_with(b"sleep"))
    });
    let partial = sandbox.run(["destroy", "n"]);
    partial.expect(5);
    assert!(partial.stderr.contains("`cgleaf gc`"), "{partial:?}");
    leader.wait().expect("its end");
    sandbox.run(["wait", "--timeout", "30s", "n"]).expect(0);
    let gone = sandbox.run(["--json", "gc"]).json()["result"].clone();
    assert_eq!(gone["removed"][0], "j", "{gone}");
    let again = ["run", "--tier", "group", "--name", "n", "--", "true"];
    sandbox.run(again).expect(0);
}
