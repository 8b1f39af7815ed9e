//! What landlock leaves within reach: each attempt under the whole lock-down, as root, which owns every file it tries.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use cgleaf_tests::probe::{Probe, Tried, judge};
use cgleaf_tests::scratch::{Scratch, cgroup_mount};

const PROBE: &str = env!("CARGO_BIN_EXE_sandbox-probe");

/// A scope directory and a cgroup just outside it, both root's.
struct Places {
    scratch: Scratch,
    scope: PathBuf,
    outside: PathBuf,
}

impl Places {
    fn new() -> Option<Self> {
        let scratch = Scratch::new(0)?;
        let (scope, outside) = (scratch.child("scope", 0), scratch.child("outside", 0));
        Some(Self {
            scratch,
            scope,
            outside,
        })
    }

    fn probe(&self) -> Probe {
        Probe::new(
            PROBE,
            &cgroup_mount().expect("there is a scratch cgroup in it"),
            &self.scope,
        )
        .arg("--require")
    }

    fn open(&self, how: &str, path: impl AsRef<Path>) -> Tried {
        self.probe().arg("open").arg(how).arg(path.as_ref()).run()
    }
}

fn done() -> Tried {
    Tried::Done("done".to_owned())
}

fn refused() -> Tried {
    Tried::Refused("EACCES".to_owned())
}

#[test]
fn control_files_are_written_in_the_scope_and_not_just_outside() {
    let Some(places) = Places::new() else { return };
    assert_eq!(
        places.open("write", places.scope.join("cgroup.procs")),
        done()
    );
    assert_eq!(
        places.open("write", places.outside.join("cgroup.procs")),
        refused()
    );
    assert_eq!(
        places.open("write", places.scratch.path().join("cgroup.procs")),
        refused()
    );
    assert_eq!(
        places.open("write", places.scope.join("../outside/cgroup.kill")),
        refused()
    );
}

#[test]
fn leaves_are_made_and_removed_in_the_scope_and_not_just_outside() {
    let Some(places) = Places::new() else { return };
    let make = |dir: &Path| places.probe().arg("mkdir").arg(dir.join("x")).run();
    let remove = |dir: &Path| places.probe().arg("rmdir").arg(dir.join("x")).run();
    assert_eq!(make(&places.scope), done());
    assert_eq!(remove(&places.scope), done());
    assert_eq!(make(&places.outside), refused());
    fs::create_dir(places.outside.join("x")).expect("make it as the test");
    assert_eq!(remove(&places.outside), refused());
}

#[test]
fn the_node_service_writes_beneath_the_mount_and_nowhere_else() {
    let Some(places) = Places::new() else { return };
    let open = |path: &Path| {
        places
            .probe()
            .arg("--node")
            .arg("open")
            .arg("write")
            .arg(path)
            .run()
    };
    assert_eq!(open(&places.outside.join("cgroup.procs")), done());
    assert_eq!(open(Path::new("/proc/sys/kernel/core_pattern")), refused());
    assert_eq!(open(Path::new("/etc/hostname")), refused());
}

/// std's own way to write a file truncates it: under these rules that is an error on a control file of the scope too.
#[test]
fn truncation_is_refused() {
    let Some(places) = Places::new() else { return };
    assert_eq!(
        places.open("truncate", places.scope.join("cgroup.procs")),
        refused()
    );
}

#[test]
fn the_cgroup_tree_and_proc_are_read_and_nothing_else() {
    let Some(places) = Places::new() else { return };
    assert_eq!(
        places.open("read", places.outside.join("cgroup.events")),
        done()
    );
    assert_eq!(places.open("read", "/proc/1/status"), done());
    assert_eq!(places.open("read", "/proc/1/cgroup"), done());
    for path in [
        "/etc/shadow",
        "/etc/passwd",
        "/",
        "/tmp",
        "/dev/null",
        "/sys/kernel",
        "/root",
    ] {
        assert_eq!(places.open("read", path), refused(), "{path}");
    }
    // What a landlocked process may not see of others, whatever its uid: nothing may be decided by these.
    for path in ["/proc/1/environ", "/proc/1/ns/cgroup"] {
        assert_eq!(places.open("read", path), refused(), "{path}");
    }
}

#[test]
fn root_without_capabilities_still_cannot_set_the_machine_up_anew() {
    let Some(places) = Places::new() else { return };
    for path in [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/vm/overcommit_memory",
        "/etc/passwd",
    ] {
        assert_eq!(places.open("write", path), refused(), "{path}");
    }
}

#[test]
fn no_file_is_made_anywhere() {
    let Some(places) = Places::new() else { return };
    let directory = std::env::temp_dir();
    let file = directory.join(format!("cgleaf-test-{}", cgleaf_tests::scratch::tag()));
    assert_eq!(places.open("create", &file), refused());
    assert_eq!(places.open("tmpfile", &directory), refused());
    assert!(!file.exists());
}

#[test]
fn of_the_socket_directory_only_removing_is_left() {
    let Some(places) = Places::new() else { return };
    let directory = std::env::temp_dir().join(format!(
        "cgleaf-test-socket-{}",
        cgleaf_tests::scratch::tag()
    ));
    fs::create_dir(&directory).expect("make the socket directory");
    let socket = directory.join("scope.sock");
    let listener = UnixListener::bind(&socket).expect("bind");
    let with_dir = || places.probe().arg("--socket-dir").arg(&directory);
    let outcomes = [
        with_dir()
            .arg("open")
            .arg("create")
            .arg(directory.join("x"))
            .run(),
        with_dir().arg("mkdir").arg(directory.join("x")).run(),
        places.probe().arg("unlink").arg(&socket).run(),
        with_dir().arg("unlink").arg(&socket).run(),
    ];
    drop(listener);
    fs::remove_dir_all(&directory).expect("remove the socket directory");
    assert_eq!(outcomes, [refused(), refused(), refused(), done()]);
}

/// A rule holds for a directory and not for its name: one that is removed and made again is out of reach.
#[test]
fn a_scope_directory_that_is_made_again_is_out_of_reach() {
    let Some(places) = Places::new() else { return };
    let mut probe = places.probe().arg("serve");
    let mut child = probe
        .command()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start the probe");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("read from the probe");
    assert_eq!(line, "ready\n");
    fs::remove_dir(&places.scope).expect("remove the scope directory");
    fs::create_dir(&places.scope).expect("make it again");
    let mut input = child.stdin.take().expect("piped");
    writeln!(input, "open write {}/cgroup.procs", places.scope.display()).expect("tell the probe");
    drop(input);
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut output, &mut rest).expect("read from the probe");
    let ended = std::process::Output {
        status: child.wait().expect("wait"),
        stdout: rest,
        stderr: Vec::new(),
    };
    assert_eq!(judge(&ended), refused());
}
