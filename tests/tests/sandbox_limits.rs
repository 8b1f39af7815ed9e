//! What an administrator limits of a user holds for that user's sessions. A guest's cgroup2 has no pids controller, so this
//! boots a whole system with a kernel of its own.

use std::fs;
use std::path::{Path, PathBuf};

use cgleaf_tests::frontend::finish;
use cgleaf_tests::lab::{script, static_programs_dir};
use cgleaf_tests::packaging::folder;
use cgleaf_tests::require;
use cgleaf_tests::scratch::skip;

const LIMIT: u64 = 100;

/// The system service keeps the session; its program starts processes until it may not any more.
const SCRIPT: &str = r#"#!/bin/sh
slice=/sys/fs/cgroup/user.slice/user-1000.slice
leaf=$slice/cgleaf-helper@1000.service/cgleaf-many.leaf
as_user() { /as-lab systemd-run --user --quiet --pipe --wait --collect "$@"; }
refused() { sed -n 's/^max //p' $slice/pids.events; }

systemctl start cgleaf-helper@1000.socket
systemctl set-property --runtime user-1000.slice TasksMax=LIMIT
echo "CASE place $(as_user cgleaf run -- grep ^0:: /proc/self/cgroup)"
echo "CASE before $(refused)"
as_user cgleaf start --session many -- sh -c 'while :; do sleep 1000 & done'
tries=0
while [ "$(refused)" = 0 ] && [ $tries -lt 600 ]; do tries=$((tries + 1)); sleep 0.2; done
echo "CASE refused $(refused)"
echo "CASE tasks $(cat $slice/pids.current)"
echo "CASE members $(wc -l <$leaf/cgroup.procs)"
cgleaf --socket /run/cgleaf/1000/helper.sock --quiet destroy many
echo "CASE destroyed $?"
echo "CASE again $(as_user cgleaf run -- echo again)"
"#;

/// What a script of the lab prints: the path of what it fetched. None, and a word about it, where that cannot be had.
fn fetched(name: &str) -> Option<String> {
    let answer = finish({
        let mut command = script(name);
        command.arg("trixie");
        command
    });
    if answer.code() != 0 {
        skip(&format!("{name}: {}", answer.stderr));
        return None;
    }
    Some(answer.stdout.trim().to_owned())
}

fn made(directory: &Path, programs: &Path, root: &str) -> PathBuf {
    let script_file = directory.join("script");
    fs::write(&script_file, SCRIPT.replace("LIMIT", &LIMIT.to_string())).expect("write");
    let disk = directory.join("disk");
    let mut command = script("make-disk");
    command.arg(&disk).arg(root).arg(&script_file);
    command.arg(programs.join("cgleaf"));
    let put = |from: &Path, to: &str| format!("{}:{to}", from.display());
    command.arg(put(
        &programs.join("cgleaf-helper"),
        "/usr/libexec/cgleaf-helper",
    ));
    for unit in ["cgleaf-helper@.service", "cgleaf-helper@.socket"] {
        let from = folder().join("systemd/system").join(unit);
        command.arg(put(&from, &format!("/usr/lib/systemd/system/{unit}")));
    }
    let output = command.output().expect("run make-disk");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    disk
}

#[test]
fn a_task_limit_on_the_users_slice_holds_for_members() {
    require!(Cgroup2, Downloads, Cc);
    let Some(programs) = static_programs_dir() else {
        return;
    };
    let (Some(root), Some(kernel)) = (fetched("fetch-root"), fetched("fetch-kernels")) else {
        return;
    };
    let kernel = kernel.rsplit(' ').next().expect("a path").to_owned();
    let directory = tempfile::tempdir().expect("make a folder");
    let disk = made(directory.path(), programs, &root);
    // Emulated, and so slow: the script's own deadline is what counts.
    let output = script("boot-disk")
        .args(["--timeout", "1200"])
        .arg(kernel)
        .arg(disk)
        .output()
        .expect("run boot-disk");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let case = |name: &str| {
        said.lines()
            .find_map(|line| line.trim().strip_prefix(&format!("CASE {name} ")))
            .unwrap_or_else(|| panic!("no {name} in {said}"))
            .to_owned()
    };
    let number = |name: &str| case(name).parse::<u64>().expect("a number");
    assert!(
        case("place").contains("/user-1000.slice/cgleaf-helper@1000.service/cgleaf-"),
        "{said}"
    );
    assert_eq!(number("before"), 0, "{said}");
    assert!(number("refused") > 0, "{said}");
    assert!(number("tasks") <= LIMIT, "{said}");
    // All that the slice may have, but for its manager, the helper and the like.
    let members = number("members");
    assert!((LIMIT / 2..LIMIT).contains(&members), "{said}");
    assert_eq!(case("destroyed"), "0", "{said}");
    assert_eq!(case("again"), "again", "{said}");
}
