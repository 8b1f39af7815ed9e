//! What `doctor` advises where there is no leaf to be had: the cause, and what changes it.

use std::fs;
use std::io::{BufRead, Write};
use std::os::unix::fs::chown;

use cgleaf_tests::doctor::{result, text, tier_of};
use cgleaf_tests::frontend::{Answer, Sandbox, finish};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// As some user, without what of this test's surroundings leads to other places.
fn as_user(sandbox: &Sandbox, uid: u32, script: &str) -> Answer {
    let runtime = tempfile::tempdir().expect("a runtime directory");
    chown(runtime.path(), Some(uid), Some(uid)).expect("chown");
    let mut command = sandbox.command("setpriv");
    command
        .args(["--reuid", &uid.to_string(), "--regid", &uid.to_string()])
        .args(["--clear-groups", "bash", "-c", script])
        .env_remove("CGLEAF_SCOPE_DIR")
        .env("XDG_RUNTIME_DIR", runtime.path());
    finish(command)
}

/// "It must be this user's" is said of what is not, and of nothing else.
#[test]
fn a_scope_directory_is_taken_for_what_it_is() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let uid = 1_200_000 + std::process::id();
    let scope = sandbox.scope().display().to_string();
    let root = sandbox.scope().parent().expect("the hierarchy's root");
    let advice = |directory: &str| {
        let script =
            format!("echo $$; exec env CGLEAF_SCOPE_DIR='{directory}' cgleaf doctor --json");
        let answer = as_user(&sandbox, uid, &script);
        let (_, json) = answer.stdout.split_once('\n').expect("a number");
        let told: Value = serde_json::from_str(json).expect("JSON");
        assert_eq!(told["result"]["tier"], "group", "{told}");
        text(&told["result"], "advice").to_owned()
    };
    let said = advice(&root.display().to_string());
    assert!(
        said.contains("unset CGLEAF_SCOPE_DIR") && !said.contains("chown"),
        "{said}"
    );
    let said = advice(&format!("{scope}/none"));
    assert!(
        said.contains("there is no cgroup") && !said.contains("chown"),
        "{said}"
    );
    let unit = sandbox.scope().join("a.slice");
    fs::create_dir(&unit).expect("a slice");
    let said = advice(&unit.display().to_string());
    assert!(
        said.contains("not this user's") && !said.contains("chown"),
        "{said}"
    );
    fs::remove_dir(&unit).expect("rmdir");
    chown(&scope, Some(uid), None).expect("chown");
    let said = advice(&scope);
    let others = format!("`chown {uid} {scope}/cgroup.procs {scope}/cgroup.subtree_control`");
    assert!(said.contains(&others), "{said}");
}

/// From the hierarchy's root nobody but root may move a process: what is advised does it, with the number of the shell.
#[test]
fn a_shell_outside_of_its_users_cgroup_is_put_into_it() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let uid = 1_300_000 + std::process::id();
    let scope = sandbox.scope().display();
    let script = format!(
        "chown -R {uid} '{scope}'
        exec setpriv --reuid {uid} --regid {uid} --clear-groups bash -c '
            export CGLEAF_SCOPE_DIR={scope}
            cgleaf doctor --json; echo; read -r; cgleaf doctor --json; exit 0'"
    );
    let runtime = tempfile::tempdir().expect("a runtime directory");
    chown(runtime.path(), Some(uid), Some(uid)).expect("chown");
    let (mut theirs, ours) = std::io::pipe()
        .map(|(read, write)| (write, read))
        .expect("a pipe");
    let mut command = sandbox.bash(&script);
    command.env("XDG_RUNTIME_DIR", runtime.path()).stdin(ours);
    command.stdout(std::process::Stdio::piped());
    let mut child = command.spawn().expect("a shell");
    drop(command);
    let mut lines = std::io::BufReader::new(child.stdout.take().expect("stdout")).lines();
    let mut next = || -> Value {
        let line = lines
            .by_ref()
            .map(|line| line.expect("a line"))
            .find(|line| !line.is_empty());
        serde_json::from_str(&line.expect("an answer")).expect("JSON")
    };
    let told = next()["result"].clone();
    assert_eq!(told["tier"], "group", "{told}");
    let advice = text(&told, "advice");
    let command = advice.split('`').nth(1).expect("a command");
    assert!(
        command.contains(&format!("echo {} >", child.id())),
        "{advice}"
    );
    finish(sandbox.bash(command)).expect(0);
    theirs.write_all(b"\n").expect("go on");
    let told = next()["result"].clone();
    assert_eq!(told["tier"], "cgroup", "{told}");
    child.wait().expect("its end");
}

/// A helper that cannot be executed, or does not start, is named with its path, and no cgroup's owner is to blame.
#[test]
fn a_helper_that_does_not_start_is_named() {
    for (harm, said, advised) in [
        (
            "chmod 644 $0",
            "cgleaf-helper: Permission denied",
            "`chmod 755 ",
        ),
        // The machine of an ELF header.
        (
            "printf '\\377\\377' | dd of=$0 bs=1 seek=18 conv=notrunc status=none",
            "cgleaf-helper: Exec format error",
            "another machine's",
        ),
        (
            "truncate -s 3000 $0",
            "cgleaf-helper ended without a word",
            "--version`",
        ),
        (
            "printf '#!/bin/sh\\necho $$ >$0.pid\\nexec sleep 100' >$0",
            "neither answers nor ends",
            "--version`",
        ),
    ] {
        let programs = tempfile::tempdir().expect("a directory");
        let helper = programs.path().join("cgleaf-helper");
        let Some(sandbox) = Sandbox::with(programs.path().to_owned()) else {
            return;
        };
        // By others than this process, which forks in other threads: nobody is to have it open for writing (ETXTBSY).
        let from = cgleaf_tests::frontend::programs();
        let copy = format!("cp \"$1\"/cgleaf \"$1\"/cgleaf-helper \"$2\" && {harm}");
        let mut command = sandbox.command("bash");
        command
            .args(["-c", &copy])
            .arg(&helper)
            .arg(from)
            .arg(programs.path());
        finish(command).expect(0);
        let told = result(&sandbox.run(["doctor", "--json"]));
        let named = format!("{}{}", programs.path().display(), "/cgleaf-helper");
        let reason = text(&told, "reason");
        assert!(
            reason.contains(&named) && reason.contains(said),
            "{harm}: {told}"
        );
        let advice = text(&told, "advice");
        assert!(
            advice.contains(advised) && advice.contains(&named),
            "{harm}: {told}"
        );
        if said.starts_with("cgleaf-helper") {
            let run = sandbox.run(["run", "--", "true"]);
            assert_eq!(told["tier"], tier_of(&run), "{harm}: {told} {run:?}");
        } else if said.starts_with("neither") {
            let pid = fs::read_to_string(format!("{named}.pid")).expect("its pid");
            let pid: i32 = pid.trim().parse().expect("a number");
            kill(Pid::from_raw(pid), Signal::SIGKILL).expect("end it");
        }
    }
}

/// Neither a namespace of users nor a /proc of another namespace of pids makes a container.
#[test]
fn namespaces_alone_are_no_container() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for (unshare, advised) in [
        ("unshare --user", "another uid"),
        ("unshare --pid --fork", "`mount -t proc proc /proc`"),
        (
            "unshare --mount sh -c 'umount -l /proc; exec \"$0\" \"$@\"'",
            "`mount -t proc proc /proc`",
        ),
    ] {
        let ask = |words: &str| {
            let mut command = sandbox.bash(&format!("{unshare} cgleaf {words}; exit $?"));
            command.env("container", "some");
            finish(command)
        };
        let told = result(&ask("doctor --json"));
        let run = ask("run -- true");
        assert_eq!(told["tier"], tier_of(&run), "{unshare}: {told} {run:?}");
        let advice = text(&told, "advice");
        assert!(advice.contains(advised), "{unshare}: {told}");
        assert!(!advice.contains("/run/cgleaf/node"), "{unshare}: {told}");
        let checks = told["checks"].to_string();
        if told["tier"].is_null() {
            assert!(!checks.contains("in no service"), "{told}");
            assert!(run.stderr.contains("mount -t proc"), "{run:?}");
        }
    }
}

/// No helper can tell who has that uid, whatever cgroup is delegated to him: he has the group tier.
#[test]
fn whom_no_helper_serves_is_advised_to_be_another() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let nobody = 65534;
    let scope = sandbox.scope().display().to_string();
    finish(sandbox.bash(&format!("chown -R {nobody} '{scope}'"))).expect(0);
    for directory in ["", &scope] {
        // It is in its cgroup, so that nothing else is in the way.
        let inside = |words: &str| {
            let script = format!(
                "echo $$ >'{scope}/cgroup.procs'; CGLEAF_SCOPE_DIR='{directory}' exec setpriv --reuid {nobody} --regid {nobody} \
                 --clear-groups cgleaf {words}"
            );
            let runtime = tempfile::tempdir().expect("a runtime directory");
            chown(runtime.path(), Some(nobody), Some(nobody)).expect("chown");
            let mut command = sandbox.bash(&script);
            command.env("XDG_RUNTIME_DIR", runtime.path());
            finish(command)
        };
        let run = inside("run -- true");
        assert_eq!(tier_of(&run), "group", "{run:?}");
        let told = result(&inside("doctor --json"));
        assert_eq!(told["tier"], "group", "{told}");
        let advice = text(&told, "advice");
        assert!(
            advice.contains("as another uid") && !advice.contains("Delegate"),
            "{told}"
        );
    }
}

/// So few that no helper can serve, or that nothing can be started.
#[test]
fn few_descriptors_are_named_as_what_is_lacking() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for most in [8, 20] {
        let limited = |words: &str| {
            finish(sandbox.bash(&format!("ulimit -n {most}; cgleaf {words}; exit $?")))
        };
        let told = result(&limited("doctor --json"));
        let run = limited("run -- true");
        assert_eq!(told["tier"], tier_of(&run), "{told} {run:?}");
        assert!(text(&told, "advice").contains("ulimit -n"), "{told}");
    }
}
