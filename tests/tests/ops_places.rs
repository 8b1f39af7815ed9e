//! Places that are not the usual one.

use std::fs;

use cgleaf_tests::frontend::{Sandbox, finish};
use cgleaf_tests::scratch::{Scratch, Sleeper};

/// B38: a container whose root cgroup has processes. The second run works as the first does, nobody is moved, and no
/// controller is enabled.
#[test]
fn a_container_with_processes_in_its_root_runs_twice() {
    let (Some(sandbox), Some(container)) = (Sandbox::new(), Scratch::new(0)) else {
        return;
    };
    let foreign = Sleeper::new(0);
    let procs = container.path().join("cgroup.procs");
    fs::write(&procs, foreign.pid().to_string()).unwrap();
    let control = |name: &str| fs::read_to_string(container.path().join(name)).unwrap();
    let before = ["cgroup.subtree_control", "cgroup.type"].map(control);

    let mount = sandbox.runtime().join("cgroup");
    fs::create_dir(&mount).unwrap();
    let inside = format!(
        "mount -t cgroup2 none {} && for i in 1 2; do cgleaf run -- true; echo $?; done; cgleaf gc; cgleaf helper stop",
        mount.display()
    );
    let script = format!(
        "echo $$ >{} && exec unshare --cgroup --mount sh -c '{inside}'",
        procs.display()
    );
    let mut command = sandbox.bash(&script);
    command.env_remove("CGLEAF_SCOPE_DIR");
    let answer = finish(command);
    let codes: Vec<&str> = answer
        .stdout
        .lines()
        .filter(|line| line.len() == 1)
        .collect();
    assert_eq!(codes, ["0", "0"], "{answer:?}");

    assert_eq!(
        ["cgroup.subtree_control", "cgroup.type"].map(control),
        before
    );
    assert!(
        control("cgroup.procs")
            .lines()
            .any(|pid| pid == foreign.pid().to_string())
    );
    let leaves: Vec<_> = walk(container.path())
        .into_iter()
        .filter(|name| name.ends_with(".leaf"))
        .collect();
    assert_eq!(leaves, Vec::<String>::new());
    assert_eq!(sandbox.record_files(), Vec::<String>::new());
}

/// The names of all cgroups beneath one.
fn walk(dir: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.push(entry.file_name().into_string().unwrap());
            found.extend(walk(&entry.path()));
        }
    }
    found
}
