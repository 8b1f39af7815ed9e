//! The commands on sessions of the group tier.

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
}
