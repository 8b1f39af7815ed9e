//! The environments that other tests stand on, and that they go away.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cgleaf_tests::frontend::finish;
use cgleaf_tests::lab::{
    Counter, Docker, FrozenFilesystem, Guest, GuestOptions, USER, User, hostile_program, script,
    unprivileged,
};
use cgleaf_tests::require;
use cgleaf_tests::scratch::wait_until;

const OWN_CGROUP: [&str; 3] = ["sed", "-n", "s/^0:://p"];

fn own_cgroup() -> Vec<&'static str> {
    OWN_CGROUP
        .into_iter()
        .chain(["/proc/self/cgroup"])
        .collect()
}

#[test]
fn a_guest_has_user_managers_login_scopes_and_root() {
    let Some(guest) = Guest::shared() else { return };
    for (user, uid) in [(User::Lab, 1000), (User::Other, 1001)] {
        let manager = format!("/user.slice/user-{uid}.slice/user@{uid}.service/");
        let place = finish(guest.as_user(user, own_cgroup()));
        assert!(place.expect(0).starts_with(&manager), "{place:?}");
        let place = finish(guest.session_as(user, own_cgroup()));
        let slice = format!("/user.slice/user-{uid}.slice/session-");
        assert!(place.expect(0).starts_with(&slice), "{place:?}");
        assert_eq!(
            finish(guest.as_user(user, ["id", "-u"])).expect(0),
            uid.to_string()
        );
    }
    assert!(
        finish(guest.root(own_cgroup()))
            .expect(0)
            .starts_with("/system.slice/")
    );
    finish(guest.session(["sh", "-c", "test -d $XDG_RUNTIME_DIR && exit 7"])).expect(7);
    assert!(guest.cgroup().join("user.slice/user-1000.slice").is_dir());
}

#[test]
fn a_guest_sees_programs_and_shares_files() {
    let Some(guest) = Guest::shared() else { return };
    let counter = Counter::new(&guest.share(), "environments").unwrap();
    let mut chain = guest
        // A unit ends with its first process, and takes along what it finds then.
        .user([
            "sh",
            "-c",
            "/hostile/chain-setsid /share/environments 500; sleep 1000",
        ])
        .spawn()
        .unwrap();
    counter.wait_for_more(50);
    drop(counter);
    chain.kill().unwrap();
    chain.wait().unwrap();
    finish(guest.user(["test", "-x", "/cgleaf/cgleaf"])).expect(0);
}

#[test]
fn without_lingering_the_user_manager_comes_with_a_login() {
    require!(Systemd, Cc);
    let guest = Guest::up(&GuestOptions::new().no_linger()).unwrap();
    finish(guest.enter(["test", "-e", "/run/user/1000"])).expect(1);
    assert_eq!(
        finish(guest.session(["systemctl", "--user", "is-system-running"])).expect(0),
        "running"
    );
    let cgroup = guest.cgroup();
    drop(guest);
    assert!(!cgroup.exists(), "{} is left", cgroup.display());
}

#[test]
fn a_held_guest_goes_when_its_holder_is_killed() {
    require!(Systemd);
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("guest");
    // This one holds the pipe, as a test binary does.
    let mut holder = Command::new("sleep")
        .arg("1000")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // What a process writes to is its stdout; here it is what the script reads.
    let pipe = holder_pipe(holder.id());
    let mut guest = script("guest")
        .arg("-d")
        .arg(&dir)
        .arg("hold")
        .stdin(pipe)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(holder.stdout.take());
    let mut line = String::new();
    BufReader::new(guest.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "ready\n");
    let cgroup = PathBuf::from(fs::read_to_string(dir.join("cgroup")).unwrap().trim());
    assert!(cgroup.is_dir());
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(guest.wait().unwrap().success());
    assert!(!cgroup.exists() && !dir.exists());
}

fn holder_pipe(pid: u32) -> fs::File {
    fs::File::open(format!("/proc/{pid}/fd/1")).unwrap()
}

#[test]
fn a_writer_on_a_frozen_filesystem_is_in_state_d_until_the_thaw() {
    require!(LoopDevices);
    let frozen = FrozenFilesystem::hold().unwrap();
    let mount = frozen.path();
    let mut command = Command::new("dd");
    command
        .args(["if=/dev/zero", "count=1", "status=none"])
        .arg(format!("of={}", mount.join("file").display()));
    let mut writer = unprivileged(&mut command, USER).spawn().unwrap();
    frozen.wait_for_writer(writer.id());
    writer.kill().unwrap();
    assert!(writer.try_wait().unwrap().is_none() && FrozenFilesystem::blocks(writer.id()));
    frozen.thaw();
    assert!(!writer.wait().unwrap().success());
    drop(frozen);
    assert!(!mount.exists());
}

#[test]
fn a_container_runs_a_static_program_in_a_cgroup_that_we_see() {
    require!(Cc);
    let Some(docker) = Docker::shared() else {
        return;
    };
    let chain = hostile_program("chain-plain");
    docker.image("environments", &[Path::new(&chain)]).unwrap();
    let started = [
        "run",
        "-d",
        "--rm",
        "--name",
        "environments",
        "--network",
        "none",
    ];
    let command = [
        "environments",
        "sh",
        "-c",
        "chain-plain /tmp/counter 1000; sleep 1000",
    ];
    finish(docker.client(started.into_iter().chain(command))).expect(0);
    let cgroup = docker.container_cgroup("environments").unwrap();
    assert!(
        cgroup.join("cgroup.procs").is_file(),
        "{}",
        cgroup.display()
    );
    finish(docker.client(["rm", "--force", "environments"])).expect(0);
    wait_until("the container's cgroup to go", || !cgroup.exists());
}
