//! The caller ends while it is moved, and its number is a stranger's by the time the kernel reads it: made to happen in a pid
//! namespace of its own, with strace(1) holding the helper just before its write to cgroup.procs.

use std::process::{Command, Stdio};

use cgleaf_tests::frontend::{finish, programs};
use cgleaf_tests::helper::{Lair, client_program};
use cgleaf_tests::scratch::skip;

/// In: the helper, the test client, the scope directory, the socket.
const SCRIPT: &str = r#"
set -u
helper=$1 client=$2 scope=$3 socket=$4
leaf=$scope/cgleaf-one.leaf
strace -f -qq -o /dev/null -e trace=write -e inject=write:delay_enter=2000000 \
    "$helper" serve --mode direct --scope-dir "$scope" --socket "$socket" 2>/dev/null &
until [ -S "$socket" ]; do sleep 0.05; done
"$client" "$socket" enrol=one &
caller=$!
until [ -d "$leaf" ]; do :; done
kill -9 $caller
wait $caller
while :; do
    echo $((caller - 1)) >/proc/sys/kernel/ns_last_pid
    sleep 1000 &
    stranger=$!
    [ $stranger = $caller ] && break
    kill $stranger
    wait $stranger
done 2>/dev/null
until grep -qx $stranger "$leaf/cgroup.procs"; do sleep 0.05; done
echo "a stranger is in the leaf"
"$client" "$socket" state=one kill=one remove=one exit
kill -0 $stranger && echo "the stranger lives"
kill $stranger
wait $stranger
"$client" "$socket" state=one remove=one list exit
"#;

#[test]
fn a_stranger_with_the_callers_number_is_never_killed() {
    let Some(lair) = Lair::without_helper(0) else {
        return;
    };
    for tool in ["strace", "unshare"] {
        if Command::new(tool)
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .is_err()
        {
            return skip(tool);
        }
    }
    let mut command = Command::new("unshare");
    command
        .args([
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
            "bash",
            "-c",
            SCRIPT,
            "reuse",
        ])
        .arg(programs().join("cgleaf-helper"))
        .arg(client_program())
        .arg(lair.scope())
        .arg(lair.socket())
        .stdin(Stdio::null());
    let answer = finish(command);
    let lines: Vec<&str> = answer.stdout.lines().map(str::trim_end).collect();
    assert_eq!(
        lines,
        [
            "a stranger is in the leaf",
            "poisoned true populated true",
            "refused Poisoned",
            "removed false",
            "the stranger lives",
            "poisoned true populated false",
            "removed true",
            "sessions",
        ],
        "{}",
        answer.stderr
    );
}
