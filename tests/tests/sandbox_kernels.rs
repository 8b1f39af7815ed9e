//! The lock-down on the kernels that are in use: what each one gives of it is what is reported, and where a part is missing
//! the rest still holds. The probe and the helper, built without shared libraries, run in a boot image of each.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cgleaf_tests::scratch::skip;

/// What a case came to in the guest: an exit status as a shell has it, and what was said.
type Answers = BTreeMap<String, (i32, String)>;

const DONE: i32 = 0;
const REFUSED: i32 = cgleaf_tests::probe::REFUSED;
/// 128 and SIGSYS.
const KILLED: i32 = 159;

const SCRIPT: &str = r#"#!/bin/sh
M=/sys/fs/cgroup
mkdir $M/scope $M/outside $M/managed
try() {
    name=$1; shift
    said=$(sandbox-probe --mount $M --scope $M/scope "$@" 2>&1); status=$?
    echo "CASE $name $status" $said
}
try enforced enforced
try required --require enforced
try user --uid 1000 enforced
sleep 1000 &
try leaf leaf $M/scope $!
try inside open write $M/scope/cgroup.procs
try outside open write $M/outside/cgroup.procs
try truncate open truncate $M/scope/cgroup.procs
try secret open read /etc/passwd
try socket socket-inet
try execve execve
try kill kill 1
try notify notify /tmp/manager.sock
try managed manager cgleaf-helper serve --mode direct --scope-dir $M/managed
try signal-alone --landlock-only kill 1
try tcp-alone --landlock-only connect
for force in Panic BigAllocation Return Segfault NoVdsoClock HeapDamage; do try $force $force; done
"#;

fn lab(script: &str) -> Command {
    Command::new(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("lab")
            .join(script),
    )
}

fn done(what: &str, output: &Output) {
    assert!(
        output.status.success(),
        "{what}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The stock kernels that could be had, each by its suite.
fn kernels() -> Vec<(String, PathBuf)> {
    let output = lab("fetch-kernels").output().expect("run fetch-kernels");
    if !output.status.success() {
        skip(&format!(
            "no kernels: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
        return Vec::new();
    }
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(words)
        .map(|words| (words[0].clone(), PathBuf::from(&words[2])))
        .collect()
}

/// The probe and the helper as a boot image can run them.
fn static_programs(directory: &Path) -> [PathBuf; 2] {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let own = std::env::current_exe().expect("the test's own path");
    let built = own
        .ancestors()
        .nth(3)
        .expect("TARGET/PROFILE/deps/test")
        .join("static");
    let output = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--locked",
            "--package",
            "cgleaf-tests",
            "--bin",
            "sandbox-probe",
            "--package",
            "cgleaf-helper",
            "--bin",
            "cgleaf-helper",
        ])
        .args(["--target", &target, "--target-dir"])
        .arg(&built)
        .current_dir(
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .parent()
                .expect("the workspace"),
        )
        .env(
            "RUSTFLAGS",
            "-C target-feature=+crt-static -C strip=symbols",
        )
        .output()
        .expect("run cargo");
    done("the static build", &output);
    ["sandbox-probe", "cgleaf-helper"].map(|name| {
        let program = directory.join(name);
        fs::copy(built.join(&target).join("debug").join(name), &program).expect("copy a program");
        program
    })
}

/// Runs the cases under a kernel.
fn boot(kernel: &Path, image: &Path) -> Answers {
    let output = lab("boot-kernel")
        .arg(kernel)
        .arg(image)
        .output()
        .expect("run boot-kernel");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}: {said}{complaint}",
        output.status
    );
    said.lines()
        .filter_map(|line| {
            let (name, rest) = line.trim_end().split_once("CASE ")?.1.split_once(' ')?;
            let (status, said) = rest.split_once(' ').unwrap_or((rest, ""));
            Some((name.to_owned(), (status.parse().ok()?, said.to_owned())))
        })
        .collect()
}

struct Expected {
    /// The effective ABI, which is what can be reported, and the items that it does not give.
    abi: u32,
    missing: &'static [&'static str],
    /// By case: where the answer depends on the kernel.
    answers: &'static [(&'static str, i32)],
}

const ALL: Expected = Expected {
    abi: 6,
    missing: &[],
    answers: &[
        ("required", DONE),
        ("leaf", DONE),
        ("outside", REFUSED),
        ("truncate", REFUSED),
        ("secret", REFUSED),
        ("signal-alone", REFUSED),
        ("tcp-alone", REFUSED),
    ],
};

fn expected(suite: &str) -> Expected {
    match suite {
        // 5.10: no landlock, and no cgroup.kill for the leaf's end.
        "bullseye" => Expected {
            abi: 0,
            missing: &[
                "landlock_files",
                "landlock_ioctl",
                "landlock_tcp",
                "landlock_scopes",
            ],
            answers: &[
                ("required", 1),
                ("leaf", REFUSED),
                ("outside", DONE),
                ("secret", DONE),
            ],
        },
        // 6.1: ABI 2 knows directories and no truncation.
        "bookworm" => Expected {
            abi: 2,
            missing: &[
                "landlock_files",
                "landlock_ioctl",
                "landlock_tcp",
                "landlock_scopes",
            ],
            answers: &[
                ("required", 1),
                ("leaf", DONE),
                ("outside", REFUSED),
                ("truncate", DONE),
                ("secret", REFUSED),
                ("tcp-alone", DONE),
            ],
        },
        // 6.12 and the newest, which has later rights that are not handled.
        _ => ALL,
    }
}

/// The system call filter is the same under all of them.
const EVERYWHERE: &[(&str, i32)] = &[
    ("inside", DONE),
    ("socket", KILLED),
    ("execve", KILLED),
    ("kill", KILLED),
    ("notify", DONE),
    ("managed", DONE),
    ("BigAllocation", DONE),
    ("Return", DONE),
    ("NoVdsoClock", DONE),
    ("Panic", 128 + nix::libc::SIGABRT),
    ("HeapDamage", 128 + nix::libc::SIGABRT),
    ("Segfault", 128 + nix::libc::SIGSEGV),
];

#[test]
fn each_kernel_enforces_what_it_is_said_to() {
    let kernels = kernels();
    if kernels.is_empty() {
        return;
    }
    let directory = Temporary::new();
    let (script, image) = (directory.0.join("script"), directory.0.join("image.gz"));
    fs::write(&script, SCRIPT).expect("write the script");
    let programs = static_programs(&directory.0);
    let made = lab("make-initramfs")
        .arg(&image)
        .arg(&script)
        .args(&programs)
        .output();
    done("make-initramfs", &made.expect("run make-initramfs"));
    for (suite, kernel) in kernels {
        judge(&suite, &boot(&kernel, &image));
    }
}

/// A directory that goes away with the test.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Self {
        let path =
            std::env::temp_dir().join(format!("cgleaf-kernels-{}", cgleaf_tests::scratch::tag()));
        fs::create_dir(&path).expect("make a directory");
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn judge(suite: &str, answers: &Answers) {
    let expected = expected(suite);
    for (case, status) in expected.answers.iter().chain(EVERYWHERE) {
        let answer = answers
            .get(*case)
            .unwrap_or_else(|| panic!("{suite}: no answer for {case}"));
        assert_eq!(answer.0, *status, "{suite}, {case}: {}", answer.1);
    }
    // Connected before the lock-down, the service manager is told after it, also where the kernel knows rights of landlock
    // (resolving unix sockets) that would cut it off.
    assert_eq!(answers["notify"].1, "WATCHDOG=1", "{suite}");
    let said = &answers["managed"].1;
    let told = "READY=1 STATUS=Serving 0 sessions, WATCHDOG=1, STATUS=Serving 1 session, STOPPING=1, exit status: 0";
    assert!(said.ends_with(told), "{suite}: {said}");
    let report = &answers["enforced"].1;
    assert!(
        report.contains(&format!("landlock ABI {}", expected.abi)),
        "{suite}: {report}"
    );
    for item in [
        "landlock_files",
        "landlock_ioctl",
        "landlock_tcp",
        "landlock_scopes",
    ] {
        let missing = report.contains(&format!("not {item}"));
        assert_eq!(
            missing,
            expected.missing.contains(&item),
            "{suite}, {item}: {report}"
        );
    }
    for item in ["capabilities", "no_new_privs", "seccomp"] {
        assert!(
            !report.contains(&format!("not {item}")),
            "{suite}: {report}"
        );
        assert!(
            !answers["user"].1.contains(&format!("not {item}")),
            "{suite}: {report}"
        );
    }
}
