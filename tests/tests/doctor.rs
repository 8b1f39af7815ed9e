//! `doctor` where something is in its way: it answers, names the tier that `run` uses, and leaves nothing behind.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;

use cgleaf_tests::doctor::{result, text, tier_of};
use cgleaf_tests::frontend::{Sandbox, finish};
use cgleaf_tests::require;
use cgleaf_tests::scratch::wait_until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

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
