//! The examples for containers: the compose file as it stands, with a real docker; the kubernetes files against the schemas
//! that kubernetes publishes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cgleaf_tests::lab::{Docker, static_programs_dir};
use cgleaf_tests::packaging::{done, fetched, folder, said};
use cgleaf_tests::require;
use cgleaf_tests::scratch::wait_until;

struct Compose<'a> {
    docker: &'a Docker,
    program: PathBuf,
    node: tempfile::TempDir,
}

impl Compose<'_> {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(["--project-name", "cgleaf-example", "--file"])
            .arg(folder().join("containers/compose.yaml"))
            .args(words)
            .env("DOCKER_HOST", self.docker.host())
            .env("CGLEAF_NODE_DIR", self.node.path());
        command
    }

    fn done(&self, words: &[&str]) -> String {
        let output = self.command(words).output().expect("run docker compose");
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A command in the container of the service `app`.
    fn app(&self, words: &[&str]) -> String {
        self.done(&[&["exec", "-T", "app"], words].concat())
    }
}

impl Drop for Compose<'_> {
    fn drop(&mut self) {
        let _ = self.command(&["down", "--timeout", "1"]).output();
    }
}

/// By the commands at the head of the example, in a folder that is laid out as the archive is.
fn make_images(docker: &Docker, programs: &Path) {
    docker.image("debian", &[]).expect("make an image");
    let archive = tempfile::tempdir().expect("make a folder");
    for (place, name) in [("usr/bin", "cgleaf"), ("usr/libexec", "cgleaf-helper")] {
        let place = archive.path().join(place);
        std::fs::create_dir_all(&place).expect("make a folder");
        std::fs::copy(programs.join(name), place.join(name)).expect("copy a program");
    }
    let example =
        std::fs::read_to_string(folder().join("containers/compose.yaml")).expect("read it");
    let commands: Vec<&str> = example
        .lines()
        .filter_map(|line| line.strip_prefix("#   "))
        .filter(|line| line.contains("docker build"))
        .collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    let mut shell = docker.shell(&commands.join("\n"));
    shell.current_dir(archive.path());
    done(shell);
}

fn states(list: &str) -> Vec<(String, String)> {
    let answer: serde_json::Value =
        serde_json::from_str(list).unwrap_or_else(|error| panic!("{error}: {list}"));
    let sessions = answer["result"]["sessions"]
        .as_array()
        .expect("sessions")
        .clone();
    let text = |session: &serde_json::Value, name: &str| {
        session[name].as_str().unwrap_or_default().to_owned()
    };
    sessions
        .iter()
        .map(|session| (text(session, "session"), text(session, "state")))
        .collect()
}

#[test]
fn the_compose_example_runs() {
    require!(Cgroup2, Downloads);
    let Some(programs) = static_programs_dir() else {
        return;
    };
    let Some(program) = fetched("fetch-compose", &[]) else {
        return;
    };
    let Some(docker) = Docker::shared() else {
        return;
    };
    make_images(docker, programs);
    let node = tempfile::tempdir().expect("make a folder");
    // As /run/cgleaf/node is: root's, for all to look into.
    std::fs::set_permissions(
        node.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .expect("chmod");
    let compose = Compose {
        docker,
        program,
        node,
    };
    compose.done(&["up", "--detach", "--quiet-pull"]);
    wait_until("the helper listens", || {
        compose.node.path().join("helper.sock").exists()
    });

    let place = compose.app(&[
        "cgleaf",
        "run",
        "--",
        "sh",
        "-c",
        "grep ^0:: /proc/self/cgroup",
    ]);
    assert!(
        place.trim().starts_with("0::/cgleaf-") && place.trim().ends_with(".leaf"),
        "{place}"
    );
    compose.app(&[
        "cgleaf",
        "start",
        "--session",
        "job",
        "--",
        "sh",
        "-c",
        "sleep 3600 & exec sleep 3600",
    ]);
    let running = [("job".to_owned(), "running".to_owned())];
    assert_eq!(states(&compose.app(&["cgleaf", "list", "--json"])), running);
    assert_eq!(states(&host_list(programs, compose.node.path())), running);
    // Another user of the container has sessions of its own.
    let id = compose.done(&[
        "exec", "-T", "--user", "1000", "app", "cgleaf", "run", "--", "id", "-u",
    ]);
    assert_eq!(id.trim(), "1000");
    let others = compose.done(&[
        "exec", "-T", "--user", "1000", "app", "cgleaf", "list", "--json",
    ]);
    assert_eq!(states(&others), []);

    let doctor = compose.app(&["cgleaf", "doctor"]);
    assert!(doctor.starts_with("tier    cgroup"), "{doctor}");
    // What cannot be seen from inside is not said to be missing.
    assert!(!doctor.contains("no cgroup.kill"), "{doctor}");

    // The helper's end is no session's end, and its successor has the session.
    compose.done(&["restart", "--timeout", "1", "helper"]);
    compose.app(&["cgleaf", "freeze", "job"]);
    assert_eq!(
        states(&compose.app(&["cgleaf", "list", "--json"])),
        [("job".to_owned(), "frozen".to_owned())]
    );
    compose.app(&["cgleaf", "destroy", "job"]);
    assert_eq!(states(&host_list(programs, compose.node.path())), []);
    let cgroup = docker
        .container_cgroup("cgleaf-example-app-1")
        .expect("the container's cgroup");
    let leaves: Vec<_> = std::fs::read_dir(&cgroup)
        .expect("read the container's cgroup")
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().ends_with(".leaf"))
        .collect();
    assert!(leaves.is_empty(), "{leaves:?}");
}

/// What root sees on the machine itself.
fn host_list(programs: &Path, node: &Path) -> String {
    let runtime = tempfile::tempdir().expect("make a folder");
    let output = Command::new(programs.join("cgleaf"))
        .args(["--json", "--socket"])
        .arg(node.join("helper.sock"))
        .arg("list")
        .env("XDG_RUNTIME_DIR", runtime.path())
        .output()
        .expect("run cgleaf");
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn validate(validator: &Path, file: &Path) -> Output {
    Command::new(validator)
        .args(["--strict", "--kubernetes-version", "1.32"])
        .arg(file)
        .output()
        .expect("run kubernetes-validate")
}

#[test]
fn the_kubernetes_examples_fit_the_published_schemas() {
    require!(Downloads);
    let Some(programs) = fetched(
        "fetch-python",
        &["kubernetes-validate", "kubernetes-validate==1.37.0"],
    ) else {
        return;
    };
    let validator = programs.join("kubernetes-validate");
    let examples = folder().join("containers/kubernetes");
    let mut seen = 0;
    for entry in std::fs::read_dir(&examples).expect("read the examples") {
        let path = entry.expect("an entry").path();
        let output = validate(&validator, &path);
        assert!(
            output.status.success(),
            "{}: {}",
            path.display(),
            said(&output)
        );
        seen += 1;
    }
    assert_eq!(seen, 2);

    // The tool does find what is wrong.
    let wrong = tempfile::NamedTempFile::with_suffix(".yaml").expect("make a file");
    let text = std::fs::read_to_string(examples.join("daemonset.yaml")).expect("read the example");
    std::fs::write(wrong.path(), text.replace("hostPID:", "hostPid:")).expect("write");
    assert!(!validate(&validator, wrong.path()).status.success());
}
