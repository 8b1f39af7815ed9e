//! Real runs of the cgroup tier as traces: the helper's and the commands' events, by programs that were built with the
//! features `trace` and `steps`. Each has a place and a helper of its own, and one session, `s`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{Kind, adopt, begin, events, kill_traced};
use crate::frontend::{Answer, Sandbox, finish, instrumented_programs, wait_for};
use crate::scratch::wait_until;
use crate::steps::Stage;

/// One run.
pub struct Run {
    sandbox: Sandbox,
    file: PathBuf,
}

/// Somebody who was started in the background.
pub struct Actor(pub(super) Child);

impl Actor {
    fn name(&self, role: &str) -> String {
        format!("{role}-{}", self.0.id())
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Run {
    /// Begins one. None (and a word about it) where this machine cannot do it.
    #[must_use]
    pub fn new(dir: &Path, name: &str) -> Option<Self> {
        let sandbox = Sandbox::with(instrumented_programs())?;
        let file = begin(dir, name, Kind::Cgroup);
        Some(Self { sandbox, file })
    }

    /// Its trace.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.sandbox.cgleaf(words);
        command.env("CGLEAF_TRACE", &self.file);
        command
    }

    pub(super) fn cgleaf(&self, words: &[&str]) -> Answer {
        finish(self.command(words))
    }

    fn spawn(&self, words: &[&str]) -> Actor {
        let mut command = self.command(words);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Actor(command.spawn().expect("start cgleaf"))
    }

    /// A program that `exec` started and that runs.
    fn background(&self, script: &str) -> Actor {
        let actor = self.spawn(&["exec", "--session", "s", "--", "sh", "-c", script]);
        let create = actor.name("create");
        wait_until("the program", || {
            events(&self.file, &create).contains(&"Exec".to_owned())
        });
        actor
    }

    fn kill_helper(&self) {
        let pid = self.sandbox.helper_pid().expect("a helper");
        kill_traced(
            &self.file,
            &format!("helper-{pid}"),
            "HelperDies",
            &[],
            || {
                let _ = nix::sys::signal::kill(
                    nix::unistd::Pid::from_raw(pid),
                    nix::sys::signal::Signal::SIGKILL,
                );
                wait_until("the helper's end", || {
                    self.sandbox.helper_pid() != Some(pid)
                });
            },
        );
    }
}

/// What a run is about.
pub type Scenario = (&'static str, fn(&Run));

/// Runs in which nobody dies.
pub const SCENARIOS: [Scenario; 18] = [
    ("run", run),
    ("run, with leftovers", run_leftovers),
    ("exec, destroy", exec_destroy),
    ("start, destroy", start_destroy),
    ("run, destroy", run_destroy),
    ("freeze, thaw, destroy", freeze_thaw_destroy),
    ("frozen, destroy", frozen_destroy),
    ("two destroys, gc", two_destroys_gc),
    ("gc before and after", gc_before_and_after),
    ("destroyed before it is claimed", if_exists),
    ("an id that is taken", taken),
    ("a stray with the mark", marked_stray),
    ("an unknown id", unknown),
    ("adopt, destroy", adopt::destroy),
    ("adopt, freeze, thaw, gc, destroy", adopt::freeze_gc),
    ("adopt, destroyed before it looks", |run| {
        adopt::destroyed(run, "create:enrolled");
    }),
    ("adopt, destroyed after it has looked", |run| {
        adopt::destroyed(run, "create:looked");
    }),
    ("adopt, destroyed when all are in", |run| {
        adopt::destroyed(run, "create:running");
    }),
];

fn run(run: &Run) {
    run.cgleaf(&["run", "--session", "s", "--", "true"])
        .expect(0);
}

fn run_leftovers(run: &Run) {
    let script = "sleep 1000 >/dev/null 2>&1 & exit 3";
    run.cgleaf(&["run", "--session", "s", "--", "sh", "-c", script])
        .expect(3);
}

fn exec_destroy(run: &Run) {
    let _program = run.background("sleep 1000 & exec sleep 1000");
    run.cgleaf(&["destroy", "s"]).expect(0);
}

fn start_destroy(run: &Run) {
    run.cgleaf(&["start", "--session", "s", "--", "sleep", "1000"])
        .expect(0);
    run.cgleaf(&["destroy", "s"]).expect(0);
}

fn run_destroy(run: &Run) {
    let mut runs = run.spawn(&["run", "--session", "s", "--", "sleep", "1000"]);
    let create = runs.name("create");
    wait_until("the program", || {
        events(&run.file, &create).contains(&"Exec".to_owned())
    });
    run.cgleaf(&["destroy", "s"]).expect(0);
    wait_for(&mut runs.0);
}

fn freeze_thaw_destroy(run: &Run) {
    let _program = run.background("exec sleep 1000");
    run.cgleaf(&["freeze", "s"]).expect(0);
    run.cgleaf(&["thaw", "s"]).expect(0);
    run.cgleaf(&["destroy", "s"]).expect(0);
}

fn frozen_destroy(run: &Run) {
    let _program = run.background("exec sleep 1000");
    run.cgleaf(&["freeze", "s"]).expect(0);
    run.cgleaf(&["destroy", "s"]).expect(0);
}

fn two_destroys_gc(run: &Run) {
    let _program = run.background("sleep 1000 & exec sleep 1000");
    let mut both = [run.spawn(&["destroy", "s"]), run.spawn(&["destroy", "s"])];
    run.cgleaf(&["gc"]).expect(0);
    for one in &mut both {
        let code = wait_for(&mut one.0).code();
        assert!(matches!(code, Some(0 | 4)), "{code:?}");
    }
    run.cgleaf(&["gc"]).expect(0);
}

fn gc_before_and_after(run: &Run) {
    let _program = run.background("exec sleep 1000");
    run.cgleaf(&["gc"]).expect(0);
    run.cgleaf(&["destroy", "s"]).expect(0);
    run.cgleaf(&["gc"]).expect(0);
}

fn if_exists(run: &Run) {
    run.cgleaf(&["destroy", "--if-exists", "s"]).expect(0);
    run.cgleaf(&["exec", "--session", "s", "--", "true"])
        .expect(125);
}

fn taken(run: &Run) {
    let _program = run.background("exec sleep 1000");
    run.cgleaf(&["exec", "--session", "s", "--", "true"])
        .expect(125);
    run.cgleaf(&["destroy", "s"]).expect(0);
}

fn marked_stray(run: &Run) {
    let program = run.background("sleep 1000 & exec sleep 1000");
    wait_until("two members", || run.sandbox.members("s").len() == 2);
    let leader = program.0.id().cast_signed();
    let members = run.sandbox.members("s");
    let child = members.iter().find(|pid| **pid != leader).expect("a child");
    let outside = run.sandbox.scope().join("elsewhere");
    fs::create_dir(&outside).expect("a cgroup");
    fs::write(outside.join("cgroup.procs"), child.to_string()).expect("move it");
    run.cgleaf(&["destroy", "s"]).expect(5);
}

fn unknown(run: &Run) {
    run.cgleaf(&["destroy", "s"]).expect(3);
}

/// The steps of the code (`frontend/src/steps.rs`) at which a create can be killed.
const CREATE_STEPS: [&str; 5] = [
    "create:claimed",
    "create:enrolled",
    "create:looked",
    "create:running",
    "create:exec",
];

/// Those at which a destroy can.
const DESTROY_STEPS: [&str; 5] = [
    "destroy:begun",
    "destroy:find",
    "destroy:found",
    "destroy:looked",
    "destroy:ended",
];

/// Has `words` run to a step of that name, does something there, and lets it go on unless that killed it.
pub(super) fn stop_at(run: &Run, words: &[&str], step: &str, there: impl FnOnce(&mut Stage<'_>)) {
    let mut command = run.command(words);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let socket = run.sandbox.runtime().join("steps");
    let mut stage = Stage::new(&socket, vec![command], &|_| false);
    while stage.at(0) != Some(step) {
        assert!(stage.ended(0).is_none(), "{words:?} ended before {step}");
        stage.step(0);
    }
    there(&mut stage);
    while stage.ended(0).is_none() {
        stage.step(0);
    }
}

/// Who is killed where, and the run.
pub type Crash = (String, Box<dyn Fn(&Run) + Send + Sync>);

/// Runs in which a create, a destroy or the helper is killed, at each of its steps.
#[must_use]
pub fn crashes() -> Vec<Crash> {
    let mut all: Vec<Crash> = Vec::new();
    for command in ["exec", "run", "start"] {
        for step in CREATE_STEPS {
            all.push((
                format!("{command} is killed at {step}"),
                Box::new(move |run| create_killed(run, command, step)),
            ));
        }
    }
    for step in adopt::STEPS {
        all.push((
            format!("an adoption is killed at {step}"),
            Box::new(move |run| adopt::killed(run, step)),
        ));
    }
    for step in DESTROY_STEPS {
        all.push((
            format!("a destroy is killed at {step}"),
            Box::new(move |run| destroy_killed(run, step)),
        ));
        all.push((
            format!("the helper is killed at {step}"),
            Box::new(move |run| helper_killed(run, step)),
        ));
    }
    all
}

fn create_killed(run: &Run, command: &str, step: &str) {
    let words = [command, "--session", "s", "--", "sleep", "1000"];
    stop_at(run, &words, step, |stage| {
        let actor = format!("create-{}", stage.pid(0).expect("it runs"));
        kill_traced(&run.file, &actor, "EngineDies", &["Exec"], || stage.kill(0));
    });
    // Whatever it left: nothing of it runs, or the destroy ends it; and then nobody knows of it any more.
    let code = run.cgleaf(&["destroy", "s"]).code();
    assert!(matches!(code, 0 | 3 | 4), "{command}, {step}: {code}");
    run.cgleaf(&["gc"]).expect(0);
}

fn destroy_killed(run: &Run, step: &str) {
    let _program = run.background("sleep 1000 & exec sleep 1000");
    stop_at(run, &["destroy", "s"], step, |stage| {
        let actor = format!("destroy-{}", stage.pid(0).expect("it runs"));
        kill_traced(&run.file, &actor, "EngineDies", &["Answer"], || {
            stage.kill(0);
        });
    });
    let code = run.cgleaf(&["destroy", "s"]).code();
    assert!(matches!(code, 0 | 4), "{step}: {code}");
    assert!(!run.sandbox.leaf("s").exists(), "{step}");
}

fn helper_killed(run: &Run, step: &str) {
    let _program = run.background("sleep 1000 & exec sleep 1000");
    stop_at(run, &["destroy", "s"], step, |_| run.kill_helper());
    let code = run.cgleaf(&["destroy", "s"]).code();
    assert!(matches!(code, 0 | 4), "{step}: {code}");
    assert!(!run.sandbox.leaf("s").exists(), "{step}");
}

/// A create and a destroy that take turns, step by step, as `choose` (of so many) says.
pub fn taking_turns(run: &Run, mut choose: impl FnMut(usize) -> usize) {
    let mut creates = run.command(&["exec", "--session", "s", "--", "sleep", "1000"]);
    let mut destroys = run.command(&["destroy", "--if-exists", "s"]);
    for command in [&mut creates, &mut destroys] {
        command.stdout(Stdio::null()).stderr(Stdio::null());
    }
    let leaf = run.sandbox.leaf("s").join("cgroup.events");
    let is_held = |actor: usize| {
        actor == 0 && fs::read_to_string(&leaf).is_ok_and(|text| text.contains("frozen 1"))
    };
    let socket = run.sandbox.runtime().join("steps");
    let mut stage = Stage::new(&socket, vec![creates, destroys], &is_held);
    loop {
        stage.look();
        let ready = stage.ready();
        if ready.is_empty() {
            break;
        }
        let actor = ready[choose(ready.len())];
        if stage.at(actor) == Some("create:exec") {
            let create = format!("create-{}", stage.pid(0).expect("it runs"));
            stage.go(actor);
            wait_until("the program, or its end", || {
                stage.look();
                events(&run.file, &create).contains(&"Exec".to_owned())
                    || stage.ended(0).is_some()
                    || is_held(0)
            });
        } else {
            stage.step(actor);
        }
    }
    wait_until("the destroy's answer", || {
        stage.look();
        stage.ended(1).is_some()
    });
    assert_eq!(stage.ended(1), Some(0), "{:?}", stage.taken());
    wait_until("the create's end", || {
        stage.look();
        stage.ended(0).is_some()
    });
}
