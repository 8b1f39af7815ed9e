//! `adopt`: a process that runs already, and what it started, in a session of its own.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use cgleaf_tests::frontend::{Sandbox, finish, instrumented_programs};
use cgleaf_tests::lab::{Counter, hostile_program};
use cgleaf_tests::require;
use cgleaf_tests::scratch::wait_until;
use cgleaf_tests::session::is_dead;
use cgleaf_tests::steps::Stage;

/// A program outside of every session, and whether it leads a process group; killed and reaped with this value.
struct Outside(Child, bool);

impl Outside {
    /// In a process group of its own, or in the test's.
    fn start(words: &[&str], own_group: bool) -> Self {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if own_group {
            command.process_group(0);
        }
        Self(command.spawn().unwrap(), own_group)
    }

    fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }

    fn children(&self) -> Vec<i32> {
        let pid = self.pid();
        let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let text = text.unwrap_or_default();
        text.split_whitespace()
            .map(|pid| pid.parse().unwrap())
            .collect()
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        if self.1 {
            // With what it started and nobody took in. It is not reaped yet, so that the group's number is its own.
            let group = nix::unistd::Pid::from_raw(self.pid());
            let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn state(pid: i32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.trim_start().chars().next().unwrap_or('?')
}

#[test]
fn a_process_and_its_children_are_taken_in_and_go_on() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let script = "sleep 1000 & sleep 1000 & wait";
    let program = Outside::start(&["sh", "-c", script], true);
    wait_until("its children", || program.children().len() == 2);
    let children = program.children();
    let mut bystander = Outside::start(&["sleep", "1000"], true);

    let answer = sandbox.run([
        "--json",
        "adopt",
        "--name",
        "taken",
        &program.pid().to_string(),
    ]);
    answer.expect(0);
    let result = answer.json()["result"].clone();
    assert_eq!(
        (&result["name"], &result["complete"]),
        (&"taken".into(), &true.into())
    );
    let session = result["session"].as_str().unwrap();
    let mut members = sandbox.members(session);
    members.sort_unstable();
    let mut wanted = children.clone();
    wanted.push(program.pid());
    wanted.sort_unstable();
    assert_eq!(members, wanted);
    for pid in &wanted {
        wait_until("everybody goes on", || state(*pid) == 'S');
    }
    let shown = sandbox.run(["--json", "show", "taken"]).json()["result"].clone();
    assert_eq!(
        (&shown["state"], &shown["leader"]["pid"]),
        (&"running".into(), &program.pid().into())
    );
    // A name of a living session, a process that is in one, one that is not there.
    let again = program.pid().to_string();
    sandbox.run(["adopt", "--name", "taken", &again]).expect(2);
    sandbox.run(["adopt", "--name", "other", &again]).expect(7);
    sandbox
        .run(["adopt", "--name", "other", "2147483647"])
        .expect(2);
    sandbox.run(["adopt", "--name", "other", "1"]).expect(2);
    assert_eq!(sandbox.leaves(), [session]);

    sandbox.run(["destroy", "taken"]).expect(0);
    assert!(children.into_iter().all(is_dead));
    assert!(bystander.0.try_wait().unwrap().is_none());
}

/// It was stopped before, so that it is stopped afterwards.
#[test]
fn what_stood_still_before_stands_still_afterwards() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let program = Outside::start(&["sleep", "1000"], true);
    let pid = nix::unistd::Pid::from_raw(program.pid());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    wait_until("the stop", || state(program.pid()) == 'T');
    sandbox
        .run(["adopt", "--name", "stopped", &program.pid().to_string()])
        .expect(0);
    assert_eq!(state(program.pid()), 'T');
    sandbox.run(["destroy", "stopped"]).expect(0);
}

/// Without a group of its own only what hangs together by parentage is found, and that is said.
#[test]
fn a_job_of_a_script_is_taken_in_without_the_script() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut script = Outside::start(
        &["sh", "-c", "sh -c 'sleep 1000 & wait' & sleep 1000 & wait"],
        true,
    );
    wait_until("its children", || script.children().len() == 2);
    let job = *script
        .children()
        .iter()
        .find(|pid| {
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .unwrap()
                .trim()
                == "sh"
        })
        .unwrap();
    let answer = sandbox.run(["--json", "adopt", "--name", "job", &job.to_string()]);
    answer.expect(0);
    let result = answer.json()["result"].clone();
    assert_eq!(result["complete"], false);
    assert!(answer.stderr.contains("process group"), "{answer:?}");
    assert_eq!(result["moved"].as_array().unwrap().len(), 2);
    sandbox.run(["destroy", "job"]).expect(0);
    assert!(is_dead(job));
    assert!(script.0.try_wait().unwrap().is_none(), "the script goes on");
    assert_eq!(
        script
            .children()
            .iter()
            .filter(|pid| !is_dead(**pid))
            .count(),
        1
    );
}

/// Whoever adopts is in a session of another helper than it names, and so is what it is to adopt.
#[test]
fn nothing_is_adopted_out_of_another_helpers_session() {
    let (Some(theirs), Some(ours)) = (Sandbox::new(), Sandbox::new()) else {
        return;
    };
    ours.run(["run", "--", "true"]).expect(0);
    let socket = ours.runtime().join("cgleaf/run/direct.sock");
    let script = format!(
        "sleep 1000 & cgleaf --socket {} adopt --name y $!; echo $?; grep ^0:: /proc/$!/cgroup; kill $!",
        socket.display()
    );
    let words = ["run", "--session", "inside", "--", "bash", "-c", &script];
    let mut command = theirs.cgleaf(words);
    command.env("CGLEAF_SOCKET", "");
    let answer = finish(command);
    let mut lines = answer.expect(0).lines();
    assert_eq!(lines.next(), Some("7"), "{answer:?}");
    let cgroup = lines.next().expect("where it is");
    assert!(
        cgroup.ends_with("/cgleaf-inside.leaf"),
        "not moved: {cgroup}"
    );
    assert!(answer.stderr.contains("nothing was adopted"), "{answer:?}");
    assert!(answer.stderr.contains("cgleaf-inside.leaf"), "{answer:?}");
    assert!(!answer.stderr.contains("no helper has"), "{answer:?}");
    assert!(ours.leaves().is_empty(), "{:?}", ours.leaves());
}

/// A fork chain is never the process that was named for long. It ends up inside whole, or it is said that it may not
/// have; and nobody is left stopped.
#[test]
fn a_running_fork_chain_is_taken_in_whole_or_that_is_not_claimed() {
    require!(Cgroup2, Cc);
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let (mut whole, mut not_claimed) = (0, 0);
    for round in 0..30 {
        let counter = Counter::new(sandbox.runtime(), &format!("counter{round}")).unwrap();
        // The shell leads the group and stays; the chain hangs beneath it, and loses its parent with the first link.
        let chain = hostile_program("chain-plain");
        let script = format!(
            "{} {} 3000 & sleep 1000",
            chain.display(),
            counter.path().display()
        );
        let shell = Outside::start(&["sh", "-c", &script], true);
        counter.wait_for_more(5);
        let name = format!("chain{round}");
        let answer = sandbox.run(["--json", "adopt", "--name", &name, &shell.pid().to_string()]);
        match answer.code() {
            0 => {
                whole += 1;
                counter.wait_for_more(5);
                sandbox.run(["destroy", &name]).expect(0);
                assert!(counter.stands_still(), "round {round}: a link was outside");
            }
            5 => {
                not_claimed += 1;
                // Nobody is left stopped.
                counter.wait_for_more(5);
                sandbox.run(["destroy", &name]);
            }
            _ => panic!("{answer:?}"),
        }
    }
    println!("{whole} taken in whole, {not_claimed} not claimed");
    assert!(whole > 0);
}

/// One that ends while it is being adopted, and whether it is reaped: both times there is a reason, and nothing is left.
#[test]
fn one_that_ends_meanwhile_is_not_adopted_and_that_is_said() {
    let Some(sandbox) = Sandbox::with(instrumented_programs()) else {
        return;
    };
    for is_reaped in [false, true] {
        let mut outside = Outside::start(&["sleep", "300"], true);
        let words = ["adopt", "--name", "ends", &outside.pid().to_string()];
        let said = sandbox.runtime().join("said");
        let mut adopt = sandbox.cgleaf(words);
        adopt.stderr(fs::File::create(&said).expect("a file"));
        let not_held = |_| false;
        let mut stage = Stage::new(&sandbox.runtime().join("steps"), vec![adopt], &not_held);
        while stage.at(0) != Some("create:claimed") {
            assert_eq!(stage.ended(0), None, "{:?}", fs::read_to_string(&said));
            stage.step(0);
        }
        outside.0.kill().expect("kill it");
        wait_until("its end", || is_dead(outside.pid()));
        if is_reaped {
            outside.0.wait().expect("reap it");
            outside.1 = false;
        }
        while stage.ended(0).is_none() {
            stage.step(0);
        }
        let said = fs::read_to_string(&said).expect("what it said");
        assert_eq!(stage.ended(0), Some(7), "{said}");
        let reason = format!("nothing was adopted: process {}", outside.pid());
        assert!(said.contains(&reason), "{said}");
        assert!(sandbox.record_files().is_empty() && sandbox.leaves().is_empty());
        if !is_reaped {
            let again = sandbox.run(["adopt", "--name", "ends", &outside.pid().to_string()]);
            assert_eq!(again.code(), 2, "{again:?}");
            assert!(again.stderr.contains("has ended"), "{again:?}");
        }
    }
}
