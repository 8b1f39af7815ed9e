//! `doctor` where something is in its way: it answers, names the tier that `run` uses, and leaves nothing behind.

use std::fs;
use std::io::{BufRead, Write};
use std::os::unix::fs::chown;
use std::path::Path;

use cgleaf_tests::frontend::{Answer, Sandbox, finish};
use cgleaf_tests::require;
use cgleaf_tests::scratch::wait_until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// What doctor says, after it has ended with 0 or 12 as its tier demands.
fn result(doctor: &Answer) -> Value {
    let result = doctor.json()["result"].clone();
    let code = if result["tier"] == "cgroup" { 0 } else { 12 };
    assert_eq!(doctor.code(), code, "{doctor:?}");
    result
}

/// The tier that a run was given, as it tells on stderr.
fn tier_of(run: &Answer) -> Value {
    match run.code() {
        0 if run.stderr.contains("no leaf can be had here") => "group".into(),
        0 => "cgroup".into(),
        125 => Value::Null,
        _ => panic!("run answers {run:?}"),
    }
}

fn text<'a>(result: &'a Value, name: &str) -> &'a str {
    result[name].as_str().unwrap_or_default()
}

/// /proc may show processes alone (a unit's ProcSubset=pid), or nothing at all, or be gone.
#[test]
fn whatever_proc_hides_is_an_answer_and_no_failure() {
    require!(Cgroup2);
    for proc in [
        "mount -t proc -o subset=pid proc /proc",
        "umount -l /proc",
        "mount -t tmpfs none /proc",
        "mount -t tmpfs none /proc/sys",
    ] {
        let Some(sandbox) = Sandbox::new() else {
            return;
        };
        for runtime in [Some(sandbox.runtime().to_owned()), None] {
            let there = |words: &str| {
                let mut command = sandbox.command("unshare");
                let script = format!("{proc} || exit 77; exec cgleaf {words}");
                command.args(["--mount", "sh", "-c", &script]);
                match &runtime {
                    Some(runtime) => command.env("XDG_RUNTIME_DIR", runtime),
                    None => command.env_remove("XDG_RUNTIME_DIR"),
                };
                finish(command)
            };
            let told = result(&there("doctor --json"));
            let run = there("run -- true");
            assert_eq!(told["tier"], tier_of(&run), "{proc}: {told} {run:?}");
            let checks = told["checks"].as_array().expect("checks");
            let kernel = checks.iter().find(|check| check["name"] == "kernel");
            let kernel = kernel.expect("the kernel")["detail"].to_string();
            assert!(kernel.contains("Linux "), "{proc}: {kernel}");
            assert!(!text(&told, "reason").is_empty(), "{proc}: {told}");
            if proc.contains("subset=pid") {
                assert!(text(&told, "advice").contains("ProcSubset=all"), "{told}");
            }
        }
    }
}

/// `run` waits long for a helper that does not answer, and starts nothing then. doctor says so, and who it is.
#[test]
fn a_helper_that_does_not_answer_is_named() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox.run(["run", "--", "true"]).expect(0);
    let helper = sandbox.helper_pid().expect("a helper");
    kill(Pid::from_raw(helper), Signal::SIGSTOP).expect("stop it");
    let mute = sandbox.run(["doctor", "--json"]);
    kill(Pid::from_raw(helper), Signal::SIGCONT).expect("let it go on");
    let told = result(&mute);
    assert_eq!(told["tier"], Value::Null, "{told}");
    let reason = text(&told, "reason");
    assert!(reason.contains("does not answer"), "{reason}");
    let advice = text(&told, "advice");
    assert!(
        advice.contains(&format!("`kill -CONT {helper}`")),
        "{advice}"
    );
    let looked = told["looked"].as_array().expect("sockets");
    let direct = looked.iter().find(|one| one["named_by"] == "direct");
    let why = &direct.expect("its socket")["why_not"];
    assert!(why.to_string().contains("does not answer"), "{why}");
    // It was left alone.
    assert_eq!(sandbox.helper_pid(), Some(helper));
    sandbox.run(["doctor"]).expect(0);
}

/// Who is confined more than PID 1 has a helper of his own, which doctor starts once and takes away again.
#[test]
fn a_private_helper_of_doctors_goes_with_it() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut command = sandbox.command("unshare");
    command.args(["--user", "--map-root-user"]);
    command.arg(sandbox.program()).args(["doctor", "--json"]);
    let doctor = finish(command);
    let told = result(&doctor);
    assert_eq!(told["tier"], "cgroup", "{told}");
    let socket = told["helper"]["socket"].as_str().expect("the helper");
    assert!(socket.contains("/private-"), "{socket}");
    assert!(text(&told, "reason").contains(socket), "{told}");
    let left = fs::read_dir(sandbox.runtime().join("cgleaf/run")).expect("sockets");
    let left: Vec<_> = left.map(|entry| entry.expect("one").file_name()).collect();
    assert_eq!(left, [""; 0], "files that stay");
    wait_until("its cgroups to go", || cgroups_in(sandbox.scope()) == 0);
}

fn cgroups_in(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).expect("the scope directory");
    let directories = entries.filter(|entry| entry.as_ref().is_ok_and(|one| one.path().is_dir()));
    directories.count()
}

/// A limit on files' sizes (RLIMIT_FSIZE) is an error to cgleaf and not its end, and the program has it as cgleaf had it.
#[test]
fn a_limit_on_file_sizes_is_told_and_passed_on() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let limited = |bytes: &str, words: &[&str]| {
        let mut command = sandbox.command("prlimit");
        command.arg(format!("--fsize={bytes}")).arg("--");
        command.arg(sandbox.program()).args(words);
        finish(command)
    };
    for words in [
        &["run", "--", "true"][..],
        &["run", "--tier", "group", "--", "true"],
        &["exec", "--", "true"],
        &["start", "--", "true"],
    ] {
        let answer = limited("0", words);
        answer.expect(125);
        assert!(answer.stderr.contains("File too large"), "{answer:?}");
    }
    let told = result(&limited("0", &["doctor", "--json"]));
    assert_eq!(told["tier"], Value::Null, "{told}");
    assert!(text(&told, "advice").contains("LimitFSIZE="), "{told}");
    // 128 + SIGXFSZ, as without cgleaf.
    let big = format!(
        "head -c 200000 /dev/zero >{}/big",
        sandbox.runtime().display()
    );
    for words in [
        ["run", "--", "bash", "-c", &big],
        ["exec", "--", "bash", "-c", &big],
    ] {
        limited("100000", &words).expect(128 + Signal::SIGXFSZ as i32);
    }
    let ignored = "trap '' XFSZ; exec cgleaf run -- grep ^SigIgn /proc/self/status";
    let told = finish(sandbox.bash(ignored));
    let mask = told.expect(0).rsplit('\t').next().expect("a mask");
    let mask = u64::from_str_radix(mask, 16).expect("hexadecimal");
    assert_ne!(mask & (1 << (Signal::SIGXFSZ as u32 - 1)), 0, "{told:?}");
}

/// doctor is a process too: where it is one too many for a trial beside it, it says all the same what `run` gives.
#[test]
fn few_processes_left_are_as_many_for_doctor_as_for_run() {
    require!(Root);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut tiers = Vec::new();
    for most in [1, 3, 4, 5_u32] {
        let ask = |number: u32, words: &[&str]| {
            // A user whom nobody else is: what has ended may not be reaped yet, and counts.
            let uid = 1_100_000 + std::process::id() * 16 + most * 2 + number;
            let runtime = tempfile::tempdir().expect("a runtime directory");
            chown(runtime.path(), Some(uid), Some(uid)).expect("chown");
            let mut command = sandbox.command("unshare");
            command
                .args(["--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c"])
                // A PID 1 that reaps.
                .arg("prlimit --nproc=$0 setpriv --reuid $1 --regid $1 --clear-groups cgleaf \"${@:2}\"; exit $?")
                .args([most.to_string(), uid.to_string()])
                .args(words)
                .env_remove("CGLEAF_SCOPE_DIR")
                .env("XDG_RUNTIME_DIR", runtime.path());
            finish(command)
        };
        let run = ask(0, &["run", "--", "true"]);
        let told = result(&ask(1, &["doctor", "--json"]));
        // Just where it is enough, `run` may be refused for what it has tried before and nobody has reaped yet; doctor waits for that.
        let tier = tier_of(&run);
        assert!(
            told["tier"] == tier || tier.is_null(),
            "{most}: {told} {run:?}"
        );
        if told["tier"].is_null() {
            assert!(text(&told, "advice").contains("ulimit -u"), "{told}");
        }
        tiers.push(told["tier"].clone());
    }
    assert!(tiers[0].is_null(), "one process is not enough: {tiers:?}");
    assert_eq!(tiers[3], "group", "{tiers:?}");
}

/// The limit on cgroups may be reached before there is a helper to speak of it.
#[test]
fn a_limit_on_cgroups_is_named_by_its_file() {
    for (file, most) in [("cgroup.max.descendants", "0"), ("cgroup.max.depth", "0")] {
        let Some(sandbox) = Sandbox::new() else {
            return;
        };
        let limit = sandbox.scope().join(file);
        fs::write(&limit, most).expect("a limit");
        // Given, and to be made.
        for directory in [sandbox.scope().to_owned(), sandbox.scope().join("new")] {
            let ask = |words: &[&str]| {
                let mut command = sandbox.cgleaf(words);
                command.env("CGLEAF_SCOPE_DIR", &directory);
                finish(command)
            };
            let named = format!("{} = {most} leaves no room", limit.display());
            let run = ask(&["run", "--", "true"]);
            assert_eq!(run.code(), 0, "{run:?}");
            assert!(run.stderr.contains(&named), "{run:?}");
            let told = result(&ask(&["doctor", "--json"]));
            assert!(text(&told, "reason").contains(&named), "{told}");
            assert!(text(&told, "advice").contains("raise that limit"), "{told}");
        }
    }
}

/// Where a helper is there and the limit is reached, `run` starts nothing, and doctor says no other.
#[test]
fn a_limit_that_is_reached_is_the_same_for_doctor_as_for_run() {
    // How many sessions there are first, and whether doctor is in one itself.
    for (file, most, sessions, inside) in [
        ("cgroup.max.descendants", "1", 0, false),
        ("cgroup.max.descendants", "3", 2, false),
        ("cgroup.max.depth", "1", 0, true),
    ] {
        let Some(sandbox) = Sandbox::new() else {
            return;
        };
        let limit = sandbox.scope().join(file);
        fs::write(&limit, most).expect("a limit");
        for _ in 0..sessions {
            sandbox.run(["start", "--", "sleep", "1000"]).expect(0);
        }
        let ask = |words: &str| {
            let around = if inside { "cgleaf run -- " } else { "" };
            finish(sandbox.bash(&format!("{around}cgleaf {words}; exit $?")))
        };
        let run = ask("run -- true");
        let named = format!("{} = {most} is reached", limit.display());
        assert_eq!(run.code(), 125, "{run:?}");
        assert!(run.stderr.contains(&named), "{run:?}");
        let doctor = ask("doctor --json");
        let told = result(&doctor);
        assert_eq!(told["tier"], Value::Null, "{told}");
        assert!(text(&told, "reason").contains(&named), "{told}");
        // No end of another session gives room beneath one that lies too deep.
        for said in [text(&told, "advice"), &run.stderr] {
            assert_eq!(said.contains("cgleaf gc"), !inside, "{said}");
        }
        let raise = format!("`echo max >{}`", limit.display());
        assert!(text(&told, "advice").contains(&raise), "{told}");
        fs::write(&limit, "max").expect("raise it");
        assert_eq!(result(&ask("doctor --json"))["tier"], "cgroup");
    }
}

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
