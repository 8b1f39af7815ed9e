//! How cgroups are laid out, and containers as they are by default: which tier is used and what is said of it.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use cgleaf_tests::frontend::{Answer, Sandbox, finish};
use cgleaf_tests::lab::{Docker, static_programs_dir};
use cgleaf_tests::require;
use cgleaf_tests::scratch::{skip, wait_until};

/// The script in a mount namespace of its own, with nothing at /sys/fs/cgroup but what `mounts` puts there.
fn with_mounts(sandbox: &Sandbox, mounts: &str, script: &str) -> Answer {
    let inside = format!(
        "umount -l /sys/fs/cgroup && mount -t tmpfs none /sys/fs/cgroup || exit 77; {mounts} || exit 77; {script}"
    );
    let mut command = sandbox.command("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", &inside])
        .env_remove("CGLEAF_SCOPE_DIR");
    finish(command)
}

/// A v1 hierarchy without a controller: every kernel with cgroup v1 has it, whatever the machine has mounted.
const V1: &str =
    "mkdir /sys/fs/cgroup/v1 && mount -t cgroup -o none,name=cgleaf-test none /sys/fs/cgroup/v1";

/// What shows the tier: doctor's status and answer, a run's status, what it says on stderr, and that of one that wants a leaf.
const LOOK: &str = "cgleaf doctor >doctor 2>&1; echo doctor $?; cat doctor; cgleaf run -- true 2>said; echo run $?; \
                    sed 's/^/said /' said; cgleaf run --tier cgroup -- touch started 2>/dev/null; echo cgroup $?; \
                    ! test -e started || echo was started";

fn look(sandbox: &Sandbox, mounts: &str, more: &str) -> Option<Answer> {
    let script = format!("cd {} && {LOOK}; {more}", sandbox.runtime().display());
    let answer = with_mounts(sandbox, mounts, &script);
    if answer.code() == 77 {
        skip(&format!("no such mounts here: {}", answer.stderr));
        return None;
    }
    Some(answer)
}

fn has_lines(answer: &Answer, lines: &[&str]) {
    for line in lines {
        let found = answer.stdout.lines().any(|one| one.starts_with(line));
        assert!(
            found,
            "no line '{line}…': {}{}",
            answer.stdout, answer.stderr
        );
    }
}

/// The group tier, with one line that says so, and nothing at all where a leaf was wanted.
fn is_group_tier(answer: &Answer) {
    has_lines(
        answer,
        &["doctor 12", "tier    group", "run 0", "cgroup 125"],
    );
    let said: Vec<&str> = answer
        .stdout
        .lines()
        .filter(|line| line.starts_with("said "))
        .collect();
    assert_eq!(said.len(), 1, "{}", answer.stdout);
    assert!(said[0].contains("no leaf can be had here"), "{said:?}");
    assert!(!answer.stdout.contains("was started"), "{}", answer.stdout);
}

/// B18: cgroup2 is found by mountinfo, wherever it is.
#[test]
fn a_hybrid_machine_has_the_cgroup_tier() {
    require!(Cgroup2);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mounts = format!(
        "{V1} && mkdir /sys/fs/cgroup/elsewhere && mount -t cgroup2 none /sys/fs/cgroup/elsewhere"
    );
    let Some(answer) = look(&sandbox, &mounts, "cgleaf gc; cgleaf helper stop") else {
        return;
    };
    has_lines(
        &answer,
        &[
            "doctor 0",
            "tier    cgroup",
            "ok      layout: cgroup2 beside v1 hierarchies; cgroup2 at /sys/fs/cgroup/elsewhere",
            "run 0",
            "cgroup 0",
            "was started",
        ],
    );
    assert!(!answer.stdout.contains("said "), "{}", answer.stdout);
}

/// B18: v1 alone, and no cgroup file system at all.
#[test]
fn a_machine_without_cgroup2_has_the_group_tier_and_a_line_that_says_why() {
    require!(Root);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    if let Some(answer) = look(&sandbox, V1, "") {
        is_group_tier(&answer);
        has_lines(
            &answer,
            &["NO      layout: v1 hierarchies alone", "advice  "],
        );
    }
    if let Some(answer) = look(&sandbox, "true", "") {
        is_group_tier(&answer);
        has_lines(
            &answer,
            &["NO      layout: no cgroup file system", "advice  "],
        );
    }
}

/// Where nothing can be written doctor says what `run` says: nothing is started.
#[test]
fn doctor_names_no_tier_where_nothing_can_be_started() {
    require!(Root);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let ask = |words: &[&str]| {
        let mut command = sandbox.command("setpriv");
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(sandbox.program())
            .args(words)
            .env_remove("CGLEAF_SCOPE_DIR")
            .env_remove("XDG_RUNTIME_DIR")
            .env("XDG_STATE_HOME", "/proc/self");
        finish(command)
    };
    let run = ask(&["run", "--", "true"]);
    let doctor = ask(&["--json", "doctor"]);
    doctor.expect(12);
    let result = doctor.json()["result"].clone();
    // Whatever `run` makes of such a place, doctor has it from `run`.
    match run.code() {
        0 => assert_eq!(result["tier"], "group", "{result}"),
        125 => {
            assert_eq!(result["tier"], serde_json::Value::Null, "{result}");
            let advice = result["advice"].as_str().expect("an advice");
            assert!(advice.contains("XDG_STATE_HOME"), "{advice}");
        }
        other => panic!("run answers {other}: {run:?}"),
    }
}

/// What is changed in a place, or for a command in it.
type Change = dyn Fn(&Sandbox, &mut Command);

/// Where it is known what keeps a leaf away, the advice ends that, and says nothing of services and containers.
#[test]
fn the_advice_goes_by_the_cause_where_that_is_known() {
    require!(Cgroup2);
    let advised = |change: &Change| {
        let sandbox = Sandbox::new()?;
        let mut command = sandbox.cgleaf(["doctor", "--json"]);
        change(&sandbox, &mut command);
        let answer = finish(command);
        answer.expect(12);
        let advice = answer.json()["result"]["advice"].clone();
        Some(advice.as_str().expect("an advice").to_owned())
    };
    let no_cgroup = |_: &Sandbox, command: &mut Command| {
        command.env("CGLEAF_SCOPE_DIR", "/tmp");
    };
    let limit = |sandbox: &Sandbox, _: &mut Command| {
        std::fs::write(sandbox.scope().join("cgroup.max.descendants"), "0").expect("a limit");
    };
    let long_path = |sandbox: &Sandbox, command: &mut Command| {
        command.env("XDG_RUNTIME_DIR", sandbox.other_runtime(&"x".repeat(90)));
    };
    let open_to_others = |sandbox: &Sandbox, _: &mut Command| {
        let run = sandbox.runtime().join("cgleaf/run");
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&run)
            .expect("make it");
        std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o755)).expect("chmod");
    };
    let cases: [(&Change, &str); 4] = [
        (&no_cgroup, "unset CGLEAF_SCOPE_DIR"),
        (&limit, "cgroup.max.descendants"),
        (&long_path, "XDG_RUNTIME_DIR to a shorter path"),
        (&open_to_others, "cgleaf/run`: others may use it"),
    ];
    for (change, words) in cases {
        let Some(advice) = advised(change) else {
            return;
        };
        assert!(advice.contains(words), "{words}: {advice}");
        assert!(!advice.contains("Delegate=yes"), "{words}: {advice}");
    }
}

/// A user without an entry in passwd(5), as `docker run --user 12345` gives one: HOME is `/`, or nowhere, or somebody else's.
#[test]
fn a_home_that_is_not_ours_to_write_is_done_without() {
    require!(Root);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let uid = (1_000_000 + std::process::id()).to_string();
    let made = Path::new("/tmp").join(format!("cgleaf-{uid}"));
    let others = sandbox.other_runtime("home");
    for home in [
        Path::new("/"),
        Path::new("/nonexistent/home"),
        Path::new("/proc/self"),
        &others,
    ] {
        let ask = |words: &[&str]| {
            let mut command = sandbox.command("setpriv");
            command
                .args(["--reuid", &uid, "--regid", &uid, "--clear-groups"])
                .arg(sandbox.program())
                .args(words)
                .env_remove("CGLEAF_SCOPE_DIR")
                .env_remove("XDG_RUNTIME_DIR")
                .env_remove("XDG_STATE_HOME")
                .env("HOME", home);
            finish(command)
        };
        let answers = [
            ask(&["start", "--session", "s", "--", "sleep", "1000"]),
            ask(&["destroy", "s"]),
            ask(&["run", "--", "true"]),
        ];
        let doctor = ask(&["doctor"]);
        let codes = answers.each_ref().map(Answer::code);
        let kept = std::fs::read_dir(&made).map(|names| names.count());
        let _ = std::fs::remove_dir_all(&made);
        assert_eq!(codes, [0, 0, 0], "{}: {answers:?}", home.display());
        assert!(kept.is_ok_and(|count| count > 0), "{}", made.display());
        has_lines(
            &doctor,
            &[&format!(
                "ok      records: {}/sessions, since HOME",
                made.display()
            )],
        );
    }
}

struct Image {
    docker: &'static Docker,
}

impl Image {
    fn new() -> Option<Self> {
        let programs = static_programs_dir()?;
        let docker = Docker::shared()?;
        let files = [programs.join("cgleaf"), programs.join("cgleaf-helper")];
        let files: Vec<&Path> = files.iter().map(AsRef::as_ref).collect();
        docker.image("layouts", &files).expect("make an image");
        Some(Self { docker })
    }

    fn run(&self, options: &[&str], script: &str) -> Command {
        let first = ["run", "--rm", "--network", "none"];
        self.docker.client(
            first
                .iter()
                .chain(options)
                .copied()
                .chain(["layouts", "sh", "-c", script]),
        )
    }
}

/// B37: one notice and the group tier, in the container's own cgroup namespace and in the machine's.
#[test]
fn a_default_container_has_the_group_tier_and_says_so_once() {
    require!(Cgroup2, Downloads);
    let Some(image) = Image::new() else { return };
    for options in [&[][..], &["--cgroupns=host"][..]] {
        let answer = finish(image.run(options, &format!("cd /tmp && {LOOK}")));
        is_group_tier(&answer);
        has_lines(
            &answer,
            &["--      layout: cgroup2 alone; cgroup2 at /sys/fs/cgroup, read-only"],
        );
        assert!(
            answer.stdout.contains("cgleaf-helper-node.socket"),
            "{}",
            answer.stdout
        );
    }
}

/// With a cgroup namespace of its own a container does not see where it is in the machine's tree: it is not served from there.
#[test]
fn a_container_with_a_namespace_of_its_own_keeps_out_of_the_machines_tree() {
    require!(Cgroup2, Downloads);
    let Some(image) = Image::new() else { return };
    let options = [
        "--cgroupns=private",
        "-v",
        "/sys/fs/cgroup:/sys/fs/cgroup:rw",
    ];
    let answer = finish(image.run(&options, &format!("cd /tmp && {LOOK}")));
    is_group_tier(&answer);
    assert!(answer.stdout.contains("has the root /.."), "{answer:?}");
}

/// B37: where the machine's whole tree can be written, nothing is written outside the container's own cgroup.
#[test]
fn a_container_that_may_write_everywhere_keeps_to_its_own_cgroup() {
    require!(Cgroup2, Downloads);
    let Some(image) = Image::new() else { return };
    let name = "keeps-to-its-own";
    let options = ["--detach", "--name", name, "--cgroupns=host"];
    let options = [&options[..], &["-v", "/sys/fs/cgroup:/sys/fs/cgroup:rw"]].concat();
    finish(image.run(&options, "exec sleep 1000")).expect(0);
    let inside = |words: &[&str]| {
        let command = ["exec", name, "cgleaf"];
        finish(image.docker.client(command.iter().chain(words).copied()))
    };
    inside(&[
        "start",
        "--tier",
        "cgroup",
        "--session",
        "kept",
        "--",
        "sleep",
        "1000",
    ])
    .expect(0);
    let leaf = inside(&["show", "--json", "kept"]).json()["result"]["leaf"]["path"].clone();
    let own = image.docker.container_cgroup(name).expect("its cgroup");
    let own = own.display().to_string();
    let leaf = leaf.as_str().expect("a path").to_owned();
    let beneath = leaf.rsplit_once("/cgleaf-").expect("a leaf").0;
    // The tree of the daemon is the machine's cgroup2, mounted elsewhere.
    let id = own.rsplit('/').next().expect("an id");
    assert!(beneath.contains(id), "{leaf} does not lie in {own}");
    inside(&["destroy", "kept"]).expect(0);
    finish(image.docker.client(["rm", "--force", name])).expect(0);
    wait_until("the container's cgroup to go", || !Path::new(&own).exists());
}

/// B27: the container's first process reaps nothing. What ended is a zombie for good, and is over all the same.
#[test]
fn beneath_a_first_process_that_never_reaps_an_end_is_an_end() {
    require!(Cgroup2, Downloads);
    let Some(image) = Image::new() else { return };
    let name = "never-reaps-its-own";
    let first = "exec sleep 1000";
    finish(image.run(&["--detach", "--name", name], first)).expect(0);
    let inside = |script: &str| finish(image.docker.client(["exec", name, "sh", "-c", script]));
    let started =
        inside("cgleaf start --quiet --session s -- sh -c 'setsid sleep 300 & exec sleep 300'");
    started.expect(0);
    let destroyed = inside("cgleaf destroy s --json");
    assert_eq!(
        destroyed.json()["result"]["destroyed"],
        true,
        "{destroyed:?}"
    );
    inside("grep -q '^State:.Z' /proc/[0-9]*/status").expect(0);
    let doctor = inside("cgleaf doctor");
    assert!(
        doctor.stdout.contains("NO      reaping: "),
        "{}",
        doctor.stdout
    );
    finish(image.docker.client(["rm", "--force", name])).expect(0);
}
