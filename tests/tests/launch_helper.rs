//! The helper that a frontend finds or starts: made of nothing of its first caller, one for all of them, and replaced when
//! it is gone.

use std::fs;
use std::path::Path;

use cgleaf_tests::frontend::{Sandbox, collect, finish};
use cgleaf_tests::scratch::{copy_program, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn read(pid: i32, file: &str) -> String {
    let bytes = fs::read(format!("/proc/{pid}/{file}")).expect("read /proc");
    String::from_utf8_lossy(&bytes).replace('\0', "\n")
}

fn field<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .map_or("", str::trim)
}

/// The first command on a machine comes back at once, although the helper that it started stays.
#[test]
fn the_first_command_of_all_comes_back() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let answer = finish(sandbox.bash("out=$(cgleaf run -- echo hi); echo \"got $out\""));
    assert_eq!(answer.expect(0), "got hi");
    assert!(sandbox.helper_pid().is_some());
}

#[test]
fn nothing_of_its_first_caller_is_in_the_helper() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let script = "cd /usr; umask 000; ulimit -S -n 64; ulimit -c unlimited; trap '' HUP INT PIPE CHLD; exec 7</dev/null 8>&1
        export LD_LIBRARY_PATH=/odd ODD=1 CGLEAF_MARK=outer LANG=xx
        env --block-signal=TERM --block-signal=USR1 cgleaf run -- true";
    finish(sandbox.bash(script)).expect(0);
    let helper = sandbox.helper_pid().expect("a helper");
    let link = |name: &str| fs::read_link(format!("/proc/{helper}/{name}")).expect("readlink");
    assert_eq!(link("cwd"), Path::new("/"));
    for stdio in ["fd/0", "fd/1"] {
        assert_eq!(link(stdio), Path::new("/dev/null"));
    }
    let names: Vec<String> = read(helper, "environ")
        .lines()
        .filter_map(|entry| Some(entry.split_once('=')?.0.to_owned()))
        .collect();
    assert!(
        names
            .iter()
            .all(|name| ["PATH", "XDG_RUNTIME_DIR"].contains(&name.as_str())),
        "{names:?}"
    );
    let status = read(helper, "status");
    assert_eq!(
        field(&status, "Umask:"),
        "0022",
        "its own: a user must be able to look into his leaf"
    );
    assert_eq!(field(&status, "SigPnd:").trim_matches('0'), "");
    // It blocks what it reads by a signalfd: HUP, INT, TERM. It ignores SIGPIPE, as every program in Rust does.
    assert_eq!(field(&status, "SigBlk:").trim_start_matches('0'), "4003");
    assert_eq!(field(&status, "SigIgn:").trim_start_matches('0'), "1000");
    let limits = read(helper, "limits");
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .expect("a limit");
    let words: Vec<&str> = files.split_whitespace().collect();
    assert_eq!(
        words[3], words[4],
        "the soft limit is the hard one: {files}"
    );
    let own_session = nix::unistd::getsid(None).expect("getsid");
    let its_session = nix::unistd::getsid(Some(Pid::from_raw(helper))).expect("getsid");
    assert_ne!(own_session, its_session);
    let open: Vec<String> = fs::read_dir(format!("/proc/{helper}/fd"))
        .expect("list")
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .map(|path| path.display().to_string())
        .collect();
    assert!(
        !open.iter().any(|path| path.starts_with("/usr")),
        "{open:?}"
    );
}

/// What the helper, or the lack of one, said on stderr is the frontend's to tell.
#[test]
fn a_helper_that_does_not_start_says_why() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut command = sandbox.cgleaf(["run", "--tier", "cgroup", "--", "true"]);
    command.env("CGLEAF_SCOPE_DIR", "/sys/fs");
    let answer = finish(command);
    answer.expect(125);
    assert!(answer.stderr.contains("/sys/fs"), "{answer:?}");
    assert!(answer.stderr.contains("cgleaf doctor"), "{answer:?}");
    assert_eq!(sandbox.record_files(), Vec::<String>::new());
}

#[test]
fn frontends_that_start_at_once_share_one_helper() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let children: Vec<_> = (0..8)
        .map(|_| {
            sandbox
                .cgleaf(["run", "--", "true"])
                .stderr(std::process::Stdio::piped())
                .spawn()
                .expect("start cgleaf")
        })
        .collect();
    for child in children {
        collect(child).expect(0);
    }
    let helpers = fs::read_to_string(sandbox.scope().join("helper/cgroup.procs")).expect("read");
    assert_eq!(helpers.lines().count(), 1, "{helpers}");
}

/// A helper that was killed: its sessions go on, and the next one has them.
#[test]
fn the_next_helper_takes_the_sessions_over() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox
        .run(["start", "--session", "s", "--", "sleep", "1000"])
        .expect(0);
    let first = sandbox.helper_pid().expect("a helper");
    kill(Pid::from_raw(first), Signal::SIGKILL).expect("kill it");
    wait_until("its end", || sandbox.helper_pid() != Some(first));
    sandbox.run(["run", "--", "true"]).expect(0);
    assert!(sandbox.helper_pid().is_some_and(|pid| pid != first));
    let listed = sandbox.run(["--json", "list"]).json();
    assert_eq!(listed["result"]["sessions"][0]["session"], "s", "{listed}");
    assert_eq!(
        listed["result"]["sessions"][0]["state"], "running",
        "{listed}"
    );
    sandbox.run(["destroy", "s"]).expect(0);
    assert_eq!(sandbox.leaves(), Vec::<String>::new());
}

/// From inside a sandbox the helper is private: nobody else finds it, and it ends with its session.
#[test]
fn a_sandboxed_caller_gets_a_helper_of_its_own() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut command = sandbox.command("setpriv");
    command
        .args(["--no-new-privs", "--"])
        .arg(sandbox.program())
        .args(["run", "--session", "p", "--", "sh", "-c", "exit 4"]);
    finish(command).expect(4);
    assert!(!sandbox.runtime().join("cgleaf/run/direct.sock").exists());
    let socket = sandbox.record("p").expect("a record")["helper"]["socket"].clone();
    assert!(
        socket
            .as_str()
            .is_some_and(|path| path.contains("/private-")),
        "{socket}"
    );
    wait_until("the private helper's end", || {
        sandbox.helper_pid().is_none()
    });
}

/// Where no helper is installed, the frontend's own file is it.
#[test]
fn the_frontend_alone_is_enough() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let alone = sandbox.other_runtime("alone").join("cgleaf");
    copy_program(&sandbox.program(), &alone);
    let mut command = sandbox.command(&alone);
    command.args(["run", "--", "sh", "-c", "grep 0:: /proc/self/cgroup"]);
    let answer = finish(command);
    assert!(answer.expect(0).contains(".leaf"), "{answer:?}");
    let helper = sandbox.helper_pid().expect("a helper");
    assert!(
        read(helper, "cmdline").contains("helper\nserve"),
        "{}",
        read(helper, "cmdline")
    );
}
