//! The node service and real containers: docker's default, the host's cgroup namespace, and a root that nobody can write to.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use cgleaf_tests::frontend::{Answer, finish};
use cgleaf_tests::helper::Unit;
use cgleaf_tests::lab::{Docker, USER, static_programs_dir, unprivileged};
use cgleaf_tests::require;
use cgleaf_tests::scratch::{Scratch, tag, wait_until};
use serde_json::Value;

/// The node's helper and a docker whose containers mount the directory of its socket.
struct Node {
    docker: &'static Docker,
    programs: PathBuf,
    image: String,
    directory: tempfile::TempDir,
    _unit: Unit,
    _scratch: Scratch,
}

impl Node {
    fn start() -> Option<Self> {
        let programs = static_programs_dir()?.to_path_buf();
        let docker = Docker::shared()?;
        let scratch = Scratch::new(0)?;
        let image = format!("node-{}", tag());
        docker
            .image(&image, &[&programs.join("cgleaf")])
            .expect("make an image");
        let directory = tempfile::tempdir().expect("make a folder");
        let open = |path: &std::path::Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
        };
        open(directory.path(), 0o755);
        let socket = directory.path().join("helper.sock");
        let cgroup = scratch.child("cgleaf-helper-node.service", 0);
        let unit = Unit::start(&cgroup, &socket, 0, &["--mode", "node-service"], None);
        open(&socket, 0o666);
        drop(unit.client());
        Some(Self {
            docker,
            programs,
            image,
            directory,
            _unit: unit,
            _scratch: scratch,
        })
    }

    fn container(&self, options: &[&str]) -> Container<'_> {
        let name = format!("node-{}", tag());
        let mount = format!("{}:/run/cgleaf/node:ro", self.directory.path().display());
        let first = ["run", "--detach", "--network", "none", "--name", &name];
        let last = ["-v", &mount, &self.image, "sleep", "100000"];
        let words = first.iter().chain(options).chain(&last);
        finish(self.docker.client(words)).expect(0);
        let cgroup = self
            .docker
            .container_cgroup(&name)
            .expect("the container's cgroup");
        Container {
            node: self,
            name,
            cgroup,
        }
    }

    /// cgleaf on the machine itself, asking the node's helper.
    fn on_the_host(&self, uid: u32, words: &[&str]) -> Answer {
        let runtime = tempfile::tempdir().expect("make a folder");
        std::os::unix::fs::chown(runtime.path(), Some(uid), Some(uid)).expect("chown");
        let mut command = Command::new(self.programs.join("cgleaf"));
        command
            .arg("--socket")
            .arg(self.directory.path().join("helper.sock"))
            .args(words)
            .env("XDG_RUNTIME_DIR", runtime.path());
        unprivileged(&mut command, uid);
        finish(command)
    }
}

struct Container<'a> {
    node: &'a Node,
    name: String,
    /// As this machine sees it.
    cgroup: PathBuf,
}

impl Container<'_> {
    /// A command in it as this user, without a HOME or any other variable.
    fn run(&self, uid: u32, words: &[&str]) -> Answer {
        finish(self.command(uid, &[], words))
    }

    fn command(&self, uid: u32, options: &[&str], words: &[&str]) -> Command {
        let user = uid.to_string();
        let first = ["exec", "--user", &user];
        let environment = ["env", "-i", "PATH=/bin"];
        let name = [self.name.as_str()];
        let all = first
            .iter()
            .chain(options)
            .chain(&name)
            .chain(&environment)
            .chain(words);
        self.node.docker.client(all)
    }

    fn json(&self, uid: u32, words: &[&str]) -> Value {
        let answer = self.run(uid, &[&["cgleaf", "--json"], words].concat());
        answer.expect(0);
        answer.json()["result"].clone()
    }

    /// The sessions that a user in it sees, as (id, state).
    fn sessions(&self, uid: u32) -> Vec<(String, String)> {
        let result = self.json(uid, &["list"]);
        let sessions = result["sessions"].as_array().expect("sessions");
        let text = |session: &Value, name: &str| session[name].as_str().expect("a text").to_owned();
        sessions
            .iter()
            .map(|session| (text(session, "session"), text(session, "state")))
            .collect()
    }

    /// Has `exec` in it become a program of two processes, and waits until it is one.
    fn exec(&self, uid: u32, session: &str) {
        let program = "sleep 3600 & exec sleep 3600";
        let words = [
            "cgleaf",
            "exec",
            "--session",
            session,
            "--",
            "sh",
            "-c",
            program,
        ];
        finish(self.command(uid, &["--detach"], &words)).expect(0);
        wait_until("the session runs", || {
            self.sessions(uid) == [state(session, "running")]
                && self.json(uid, &["show", session])["members"] == 2
        });
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let _ = finish(self.node.docker.client(["rm", "--force", &self.name]));
    }
}

fn state(session: &str, state: &str) -> (String, String) {
    (session.to_owned(), state.to_owned())
}

const HOST_CGROUPS: &str = "--cgroupns=host";

/// exec, list, ps, freeze and destroy from inside.
fn works_from_inside(container: &Container<'_>, neighbour: &Container<'_>, uid: u32) {
    let session = format!("s{uid}");
    container.exec(uid, &session);
    let leaf = container.cgroup.join(format!("cgleaf-{session}.leaf"));
    assert!(leaf.is_dir(), "{} is missing", leaf.display());

    // The numbers are the container's own.
    let result = container.json(uid, &["ps", &session]);
    let members = result["members"].as_array().expect("members");
    assert_eq!((members.len(), &result["complete"]), (2, &true.into()));
    for member in members {
        let pid = member["pid"].as_i64().expect("a pid");
        let inside = container.run(uid, &["cat", &format!("/proc/{pid}/cmdline")]);
        assert_eq!(inside.expect(0), "sleep\u{0}3600\u{0}", "{result}");
    }

    container.json(uid, &["freeze", &session]);
    assert_eq!(container.sessions(uid), [state(&session, "frozen")]);
    let events = fs::read_to_string(leaf.join("cgroup.events")).expect("read the events");
    assert!(events.contains("frozen 1"), "{events}");

    // Nobody else has it: neither the other user of the container nor anyone of another one, root or of that uid.
    let others = [
        (container, USER - uid),
        (neighbour, uid),
        (neighbour, USER - uid),
    ];
    for (place, other) in others {
        assert_eq!(place.sessions(other), [], "uid {other} in {}", place.name);
        // The other user of one container, when it is its root, may see files, and still no session.
        for words in [&["freeze"][..], &["thaw"], &["destroy"]] {
            let answer = place.run(other, &[&["cgleaf"], words, &[session.as_str()]].concat());
            answer.expect(3);
        }
    }
    assert_eq!(container.sessions(uid), [state(&session, "frozen")]);

    let result = container.json(uid, &["destroy", &session]);
    assert_eq!(
        (&result["destroyed"], &result["killed"]),
        (&true.into(), &2.into())
    );
    assert!(!leaf.exists());
    assert_eq!(container.sessions(uid), []);
}

#[test]
fn sessions_are_controlled_from_inside_and_by_nobody_else() {
    require!(Cgroup2, Downloads, Cc);
    let Some(node) = Node::start() else { return };
    let neighbour = node.container(&[]);
    for options in [&[][..], &[HOST_CGROUPS], &["--read-only"]] {
        let container = node.container(options);
        for uid in [0, USER] {
            works_from_inside(&container, &neighbour, uid);
        }
    }
}

#[test]
fn a_container_stops_and_goes_with_its_leaves_frozen_or_not() {
    require!(Cgroup2, Downloads, Cc);
    let Some(node) = Node::start() else { return };
    for options in [&[][..], &[HOST_CGROUPS]] {
        for frozen in [false, true] {
            let container = node.container(options);
            container.exec(USER, "s");
            if frozen {
                container.json(USER, &["freeze", "s"]);
            }
            let docker = |words: &[&str]| finish(node.docker.client(words));
            docker(&["stop", "--time", "1", &container.name]).expect(0);
            wait_until("the members' end", || !container.cgroup.exists());
            docker(&["rm", &container.name]).expect(0);
        }
    }
    // And one that is removed as it runs.
    let container = node.container(&[]);
    container.exec(0, "s");
    container.json(0, &["freeze", "s"]);
    finish(node.docker.client(["rm", "--force", &container.name])).expect(0);
    wait_until("the members' end", || !container.cgroup.exists());
}

#[test]
fn a_process_of_the_host_is_refused() {
    require!(Cgroup2, Downloads, Cc);
    let Some(node) = Node::start() else { return };
    for uid in [0, USER] {
        let answer = node.on_the_host(uid, &["run", "--tier", "cgroup", "--", "true"]);
        answer.expect(125);
        assert!(
            answer.stderr.contains("place not served"),
            "{}",
            answer.stderr
        );
    }
    // Root outside sees what is in the containers, so that it can be cleaned up; a user outside does not.
    let container = node.container(&[]);
    container.exec(USER, "s");
    let seen = |uid| {
        let answer = node.on_the_host(uid, &["--json", "list"]);
        answer.expect(0);
        answer.json()["result"]["sessions"].as_array().map(Vec::len)
    };
    assert_eq!((seen(0), seen(USER)), (Some(1), Some(0)));
}
