//! Places that are not the usual one.

use std::fs;

use cgleaf_tests::frontend::{Answer, Sandbox, finish};
use cgleaf_tests::scratch::{Scratch, Sleeper, cgroup_mount};
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

/// What cannot be told for want of descriptors is neither a session of unknown state nor a fault of cgleaf's, however few there are.
#[test]
fn too_few_descriptors_are_told_as_that() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut leader = sandbox.background("s", ["sleep", "1000"]);
    let with = |number: u32, words: &str| {
        let script = format!("ulimit -n {number}; exec cgleaf {words}");
        finish(sandbox.bash(&script))
    };
    let says_so = |answer: &Answer| {
        assert!(answer.stderr.contains("ulimit -n"), "{answer:?}");
        assert!([6, 8].contains(&answer.code()), "{answer:?}");
    };
    let is_whole = |number: u32| {
        let listed = with(number, "list");
        let whole = listed.code() == 0;
        if whole {
            let line = listed.stdout.lines().nth(1).unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(words[2..4], ["running", "1"], "{number}: {listed:?}");
        } else {
            says_so(&listed);
        }
        whole
    };
    // Fewer are not enough for the dynamic linker.
    let enough = (5..40).find(|number| is_whole(*number));
    assert!(enough.is_some_and(|number| number > 5), "{enough:?}");
    let ends = |number: u32| {
        let destroyed = with(number, "destroy s");
        let done = destroyed.code() == 0;
        if !done {
            says_so(&destroyed);
        }
        done
    };
    let enough = (5..40).find(|number| ends(*number));
    assert!(enough.is_some_and(|number| number > 5), "{enough:?}");
    assert_eq!(leader.wait(), 137);
}

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

/// What docker does with a bind mount of the machine's tree and a cgroup namespace of the container's own: `/` of /proc is not `/`
/// of the mount. Nothing is written in what lies around the container, not even for a moment.
#[test]
fn a_mount_of_a_tree_around_the_namespace_is_not_written_to() {
    let (Some(sandbox), Some(around)) = (Sandbox::new(), Scratch::new(0)) else {
        return;
    };
    let container = around.child("container", 0);
    let watch = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).unwrap();
    let changes = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_DELETE;
    watch.add_watch(around.path(), changes).unwrap();
    let script = format!(
        "echo $$ >{}/cgroup.procs && exec unshare --cgroup --mount sh -c 'mount --bind {} {} && \
         cgleaf doctor --json; echo; cgleaf run --tier cgroup -- true; echo run $?; cgleaf run --tier group -- true; echo run $?'",
        container.display(),
        around.path().display(),
        cgroup_mount().expect("a cgroup2 mount").display(),
    );
    let mut command = sandbox.bash(&script);
    command.env_remove("CGLEAF_SCOPE_DIR");
    let answer = finish(command);
    assert!(
        answer.stdout.contains("run 125\nrun 0\n"),
        "the cgroup tier is refused, the group tier serves: {answer:?}"
    );
    assert!(answer.stderr.contains("has the root /.. "), "{answer:?}");
    assert!(answer.stdout.contains("has the root /.. "), "{answer:?}");
    let made = watch.read_events();
    assert!(
        matches!(made, Err(Errno::EAGAIN)),
        "something was made in the tree around it: {made:?}"
    );
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
