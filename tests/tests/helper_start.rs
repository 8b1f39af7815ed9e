//! How a helper starts, is found again, and ends.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cgleaf_shared::wire::{Reply, Request, Target};
use cgleaf_tests::frontend::{finish, programs, wait_for};
use cgleaf_tests::helper::{Client, Lair, Other, Unit};
use cgleaf_tests::scratch::{DEADLINE, cgroup_mount, wait_until};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

#[test]
fn one_of_two_gets_the_socket_and_the_other_says_so() {
    let Some(lair) = Lair::new(0) else { return };
    let mut loser = Other(lair.command(&[]).spawn().unwrap());
    assert_eq!(wait_for(&mut loser.0).code(), Some(3));
    assert!(
        lair.said().contains("another helper has"),
        "{}",
        lair.said()
    );
    assert_eq!(lair.cgroups(), ["helper"]);
    assert_eq!(
        u32::try_from(lair.client().status().pid.get()),
        Ok(lair.pid())
    );
}

/// The lock is the socket's; the directory has its own guard.
#[test]
fn two_sockets_do_not_make_two_helpers_of_one_directory() {
    let Some(lair) = Lair::new(0) else { return };
    let other = lair.socket().with_file_name("other.sock");
    let mut command = Command::new(programs().join("cgleaf-helper"));
    command
        .args(["--mode", "direct", "--scope-dir"])
        .arg(lair.scope())
        .arg("--socket")
        .arg(&other)
        .stdin(Stdio::null());
    let answer = finish(command);
    assert_eq!(answer.code(), 1);
    assert!(
        answer.stderr.contains("another helper lives in"),
        "{}",
        answer.stderr
    );
    assert!(!other.exists());
}

#[test]
fn a_dead_helpers_socket_is_replaced_and_anything_else_is_not() {
    let Some(mut lair) = Lair::new(0) else { return };
    lair.kill_helper();
    assert!(lair.socket().exists(), "nobody removed it");
    lair.start(&[]);
    lair.kill_helper();
    fs::remove_file(lair.socket()).unwrap();
    fs::write(lair.socket(), "precious").unwrap();
    let mut refused = Other(lair.command(&[]).spawn().unwrap());
    assert_eq!(wait_for(&mut refused.0).code(), Some(1));
    assert_eq!(fs::read_to_string(lair.socket()).unwrap(), "precious");
}

#[test]
fn a_directory_that_others_may_write_to_is_no_place_for_a_socket() {
    use std::os::unix::fs::PermissionsExt;
    let Some(lair) = Lair::without_helper(0) else {
        return;
    };
    let directory = lair.socket().parent().unwrap().to_path_buf();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    let mut refused = Other(lair.command(&[]).spawn().unwrap());
    assert_eq!(wait_for(&mut refused.0).code(), Some(1));
    assert!(!lair.socket().exists());
}

#[test]
fn without_a_directory_direct_mode_makes_one_and_it_goes_with_the_helper() {
    let Some(lair) = Lair::without_helper(0) else {
        return;
    };
    let Some(mount) = cgroup_mount() else { return };
    let made = |mount: &Path| -> Vec<PathBuf> {
        fs::read_dir(mount)
            .unwrap()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                let name = path.file_name().unwrap().to_string_lossy();
                name.starts_with("cgleaf-0-") && name.ends_with(".scope")
            })
            .collect()
    };
    let (ours, theirs) = pair();
    let mut helper = Other(
        with_descriptor(&["--mode", "direct", "--private"], &theirs)
            .spawn()
            .unwrap(),
    );
    drop(theirs);
    let client = Client::greet(ours).unwrap();
    let path = client.status().scope_paths[0].clone();
    let directory = mount.join(path.relative());
    assert!(
        made(directory.parent().unwrap()).contains(&directory),
        "{path}"
    );
    assert_ne!(path.as_str(), "/");
    assert_eq!(
        fs::read_to_string(directory.join("cgroup.procs")).unwrap(),
        ""
    );
    drop(client);
    assert!(
        wait_for(&mut helper.0).success(),
        "a private one ends with its last client"
    );
    wait_until("the end of its directory", || !directory.exists());
    drop(lair);
}

/// A socketpair.
fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )
    .unwrap()
}

/// A helper that inherits its first client.
fn with_descriptor(arguments: &[&str], theirs: &OwnedFd) -> Command {
    let mut command = Command::new(programs().join("cgleaf-helper"));
    command.args(arguments).stdin(Stdio::null());
    inherit(&mut command, theirs);
    command
}

/// Has a helper inherit its first client.
fn inherit(command: &mut Command, theirs: &OwnedFd) {
    command.args(["--client-fd", &theirs.as_raw_fd().to_string()]);
    nix::fcntl::fcntl(
        theirs,
        nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()),
    )
    .unwrap();
}

#[test]
fn idle_it_ends_and_takes_its_sockets_name_with_it() {
    let Some(lair) = Lair::without_helper(0) else {
        return;
    };
    let (ours, theirs) = pair();
    let mut command = lair.command(&["--idle-exit", "0"]);
    inherit(&mut command, &theirs);
    let mut helper = Other(command.spawn().unwrap());
    drop(theirs);
    let first = Client::greet(ours).unwrap();
    let mut program = lair.enrolled(&["enrol=one"]);
    assert!(program.line().starts_with("enrolled"));
    let target = Target::from(&first.open("one").attestation);
    drop(first);
    let client = lair.client();
    client.destroy(&target);
    assert!(
        helper.0.try_wait().unwrap().is_none(),
        "it stays for a client"
    );
    drop(client);
    assert!(wait_for(&mut helper.0).success());
    assert!(!lair.socket().exists());
    assert_eq!(lair.cgroups(), [""; 0], "the directory is as it was given");
}

/// Its name is random, so that nobody will ever want its lock: a directory would fill with them.
#[test]
fn a_private_helper_takes_its_lock_with_it() {
    let Some(lair) = Lair::without_helper(0) else {
        return;
    };
    let (ours, theirs) = pair();
    let mut command = lair.command(&["--private"]);
    inherit(&mut command, &theirs);
    let mut helper = Other(command.spawn().unwrap());
    drop(theirs);
    let first = Client::greet(ours).unwrap();
    let lock = lair.socket().with_extension("sock.lock");
    assert!(lock.exists(), "{}", lock.display());
    drop(first);
    assert!(wait_for(&mut helper.0).success());
    assert!(!lair.socket().exists());
    assert!(!lock.exists(), "{}", lock.display());
    wait_until("its directories to go", || lair.cgroups().is_empty());
}

/// A session keeps it, also where no client is left: the child of a program whose own connection has ended.
#[test]
fn it_stays_for_a_session_without_a_client() {
    let Some(lair) = Lair::without_helper(0) else {
        return;
    };
    let (ours, theirs) = pair();
    let mut command = lair.command(&["--idle-exit", "0"]);
    inherit(&mut command, &theirs);
    let mut helper = Other(command.spawn().unwrap());
    drop(theirs);
    let first = Client::greet(ours).unwrap();
    let mut program = lair.enrolled(&["enrol=one", "fork", "exit"]);
    assert!(program.line().starts_with("enrolled"));
    assert!(wait_for(&mut program.child).success());
    drop(first);
    // It has looked for a reason to end, and found none: it answers.
    let client = lair.client();
    let target = Target::from(&client.open("one").attestation);
    client.destroy(&target);
    drop(client);
    assert!(wait_for(&mut helper.0).success());
}

#[test]
fn a_signal_ends_the_helper_and_no_session() {
    let Some(mut lair) = Lair::new(0) else { return };
    let mut program = lair.enrolled(&["enrol=one"]);
    assert!(program.line().starts_with("enrolled"));
    let pid = nix::unistd::Pid::from_raw(i32::try_from(lair.pid()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let mut helper = lair.helper.take().unwrap();
    assert!(wait_for(&mut helper).success());
    assert!(
        program.child.try_wait().unwrap().is_none(),
        "the session goes on"
    );
    lair.start(&[]);
    let client = lair.client();
    client.destroy(&Target::from(&client.open("one").attestation));
}

/// What a service manager does, without one: the listening socket as descriptor 3, LISTEN_PID, NOTIFY_SOCKET.
#[test]
fn a_service_takes_its_socket_from_the_manager_and_tells_it_what_it_does() {
    let Some(lair) = Lair::without_helper(0) else {
        return;
    };
    let path = lair.socket();
    let notify_path = path.with_file_name("notify");
    let notify = UnixDatagram::bind(&notify_path).unwrap();
    notify.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut helper = Unit::start(
        lair.scope(),
        &path,
        0,
        &["--mode", "user-service"],
        Some(&notify_path),
    );
    let said = || {
        let mut text = [0; 256];
        let length = loop {
            match notify.recv(&mut text) {
                Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
                other => break other.expect("a word of the helper's"),
            }
        };
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    assert!(said().starts_with("READY=1"));
    let client = helper.client();
    assert_eq!(client.welcome.as_ref().unwrap().mode, "user-service");
    assert!(
        matches!(client.call(&Request::Stop), Reply::Refused(_)),
        "a unit is stopped by its manager"
    );
    let scope = client.status().scope_paths[0].clone();
    assert!(lair.scope().ends_with(scope.relative()), "{scope}");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(helper.child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert!(said().starts_with("STOPPING=1"));
    assert!(wait_for(&mut helper.child).success());
    assert!(path.exists(), "the manager's socket stays");
}

/// The watchdog is fed after the lock-down too, also while nobody asks for anything.
#[test]
fn a_watchdog_is_fed() {
    let Some(lair) = Lair::without_helper(0) else {
        return;
    };
    let path = lair.socket();
    let notify_path = path.with_file_name("notify");
    let notify = UnixDatagram::bind(&notify_path).unwrap();
    notify.set_read_timeout(Some(DEADLINE)).unwrap();
    let _helper = Unit::with_environment(
        lair.scope(),
        &path,
        0,
        &["--mode", "node-service"],
        &[
            ("NOTIFY_SOCKET", notify_path.as_os_str()),
            ("WATCHDOG_USEC", std::ffi::OsStr::new("100000")),
        ],
    );
    let mut fed = 0;
    while fed < 3 {
        let mut text = [0; 256];
        match notify.recv(&mut text) {
            Ok(length) => fed += usize::from(&text[..length] == b"WATCHDOG=1"),
            Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
            Err(why) => panic!("the watchdog was fed {fed} times: {why}"),
        }
    }
}

#[test]
fn a_start_that_fails_leaves_no_socket_and_says_why() {
    let Some(lair) = Lair::without_helper(0) else {
        return;
    };
    let fails = |command: &mut Command, why: &str| {
        assert_eq!(command.status().unwrap().code(), Some(1));
        assert!(lair.said().contains(why), "{}", lair.said());
        assert!(!lair.socket().exists());
    };
    fails(
        lair.command(&[]).env("NOTIFY_SOCKET", "/no/such/socket"),
        "NOTIFY_SOCKET",
    );
    assert_eq!(lair.cgroups(), [""; 0], "nothing stays of it");
    fs::write(lair.scope().join("cgroup.max.depth"), "0").unwrap();
    let limit = lair.scope().join("cgroup.max.depth");
    fails(
        &mut lair.command(&[]),
        &format!("{} = 0 leaves no room", limit.display()),
    );
    // The same where the directory itself is to be made: only the limit that is reached is named.
    fs::write(&limit, "7").unwrap();
    let most = lair.scope().join("cgroup.max.descendants");
    fs::write(&most, "0").unwrap();
    let mut command = lair.command(&[]);
    command.arg("--scope-dir").arg(lair.scope().join("new"));
    fails(&mut command, &format!(": {} = 0 leaves", most.display()));
}

#[test]
fn a_usage_error_is_two_and_help_is_not() {
    let helper = programs().join("cgleaf-helper");
    let run = |arguments: &[&str]| Command::new(&helper).args(arguments).output().unwrap();
    assert_eq!(run(&["--mode", "no-such"]).status.code(), Some(2));
    assert_eq!(
        run(&["--mode", "direct"]).status.code(),
        Some(1),
        "nothing to serve"
    );
    let help = run(&["--help"]);
    assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("--take-over"));
    assert!(run(&["--version"]).status.success());
}
