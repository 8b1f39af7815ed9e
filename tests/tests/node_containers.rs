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

    // What has ended by itself leaves its leaf, which goes with a record or without a place for one.
    let over = format!("over{uid}");
    let words = ["cgleaf", "exec", "--session", &over, "--", "true"];
    container.run(uid, &words).expect(0);
    let leaf = container.cgroup.join(format!("cgleaf-{over}.leaf"));
    assert!(leaf.is_dir(), "{} is missing", leaf.display());
    let gone = container.run(uid, &["cgleaf", "--json", "gc"]);
    gone.expect(0);
    assert_eq!(gone.stderr, "");
    let removed = gone.json()["result"]["removed"].clone();
    let removed = removed.as_array().expect("what was removed");
    assert!(removed.contains(&over.as_str().into()), "{gone:?}");
    assert!(!leaf.exists());
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
    let seen = node.on_the_host(0, &["--json", "list"]);
    seen.expect(0);
    let sessions = seen.json()["result"]["sessions"].as_array().map(Vec::len);
    assert_eq!(sessions, Some(1));
    // He is told so: an empty list would say that there is none.
    let refused = node.on_the_host(USER, &["list"]);
    refused.expect(6);
    assert_eq!(refused.stdout, "");
    assert!(refused.stderr.contains("place not served"), "{refused:?}");
}

/// What a frontend in a container is sent is a file that tells of its own leaf, open for reading; no directory, so that nothing
/// can be opened from it, and nothing else of the machine's cgroup tree.
#[test]
fn what_is_received_opens_no_path_of_the_host() {
    require!(Cgroup2, Downloads, Cc);
    let Some(node) = Node::start() else { return };
    for options in [&[][..], &[HOST_CGROUPS]] {
        let container = node.container(options);
        for uid in [0, USER] {
            let session = format!("r{uid}");
            let words = [
                "cgleaf",
                "run",
                "--session",
                &session,
                "--",
                "sleep",
                "3600",
            ];
            finish(container.command(uid, &["--detach"], &words)).expect(0);
            let leaf = container.cgroup.join(format!("cgleaf-{session}.leaf"));
            let program = || pids(&leaf).into_iter().find(|pid| comm(*pid) == "sleep");
            wait_until("the program", || program().is_some());
            let frontend = pids(&container.cgroup)
                .into_iter()
                .find(|pid| comm(*pid) == "cgleaf")
                .expect("the frontend");
            let of_cgroups = cgroup_descriptors(frontend);
            assert_eq!(of_cgroups.len(), 1, "{of_cgroups:?}");
            let (number, file) = &of_cgroups[0];
            assert!(file.ends_with("/cgroup.events"), "{file}");
            let info = fs::read_to_string(format!("/proc/{frontend}/fdinfo/{number}"));
            let info = info.expect("read what is known of it");
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
            let flags = i32::from_str_radix(flags.expect("flags").trim(), 8).expect("octal");
            assert_eq!(flags & libc::O_ACCMODE, libc::O_RDONLY, "{info}");
            let inside = inside(frontend);
            let it = format!("/proc/{inside}/fd/{number}");
            let read = container.run(uid, &["cat", &it]);
            assert!(read.expect(0).contains("populated 1"), "{read:?}");
            for script in [
                format!("cat {it}/../cgroup.procs"),
                format!("cat {it}/cgroup.procs"),
                format!("cd {it}"),
                format!("cd -P {it}/.."),
                format!("echo 1 >{it}"),
            ] {
                let refused = container.run(uid, &["sh", "-c", &script]);
                assert_ne!(refused.code(), 0, "uid {uid}, {script}: {refused:?}");
            }
            container.json(uid, &["destroy", &session]);
        }
    }
}

fn pids(cgroup: &std::path::Path) -> Vec<i32> {
    let text = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

fn comm(pid: i32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    text.trim().to_owned()
}

/// The number by which its own pid namespace knows a process.
fn inside(pid: i32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("read the status");
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let last = numbers.and_then(|line| line.split_whitespace().last());
    last.expect("NSpid").to_owned()
}

/// A process's descriptors of cgroup files and directories, with their paths.
fn cgroup_descriptors(pid: i32) -> Vec<(String, String)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("list the descriptors");
    let all = entries.map(|entry| entry.expect("an entry").path());
    all.filter_map(|path| {
        let number = path.file_name()?.to_str()?.to_owned();
        let target = fs::read_link(&path).ok()?.display().to_string();
        let kind = nix::sys::statfs::statfs(&path).ok()?.filesystem_type();
        (kind == nix::sys::statfs::CGROUP2_SUPER_MAGIC).then_some((number, target))
    })
    .collect()
}
