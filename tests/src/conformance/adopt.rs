//! Real runs in which a program that runs already is adopted, as traces.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use super::kill_traced;
use super::leaf::{Actor, Run, stop_at};
use crate::frontend::wait_for;
use crate::scratch::wait_until;

/// A program that runs already, in a group of its own; it ends with this value.
fn outside() -> Actor {
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 1000 & exec sleep 1000"]);
    command.process_group(0).stdin(Stdio::null());
    let actor = Actor(command.spawn().expect("a program"));
    let pid = actor.0.id();
    let children = format!("/proc/{pid}/task/{pid}/children");
    wait_until("its child", || {
        fs::read_to_string(&children).is_ok_and(|text| !text.trim().is_empty())
    });
    actor
}

impl Actor {
    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// Its whole group, which nobody adopted.
    fn end_group(mut self) {
        let group = nix::unistd::Pid::from_raw(self.0.id().cast_signed());
        nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL).expect("SIGKILL");
        self.0.wait().expect("its end");
    }
}

pub(super) fn destroy(run: &Run) {
    let mut program = outside();
    run.cgleaf(&["adopt", "--name", "s", &program.pid()])
        .expect(0);
    run.cgleaf(&["destroy", "s"]).expect(0);
    wait_for(&mut program.0);
}

pub(super) fn freeze_gc(run: &Run) {
    let mut program = outside();
    run.cgleaf(&["adopt", "--name", "s", &program.pid()])
        .expect(0);
    run.cgleaf(&["freeze", "s"]).expect(0);
    run.cgleaf(&["gc"]).expect(0);
    run.cgleaf(&["thaw", "s"]).expect(0);
    run.cgleaf(&["destroy", "s"]).expect(0);
    run.cgleaf(&["gc"]).expect(0);
    wait_for(&mut program.0);
}

/// A destroy comes while an adoption stands at a step: either all is ended, or nobody was touched.
pub(super) fn destroyed(run: &Run, step: &str) {
    let mut program = outside();
    stop_at(run, &["adopt", "--name", "s", &program.pid()], step, |_| {
        run.cgleaf(&["destroy", "s"]).expect(0);
    });
    if step == "create:running" {
        wait_for(&mut program.0);
    } else {
        assert!(
            program.0.try_wait().expect("a child").is_none(),
            "{step}: killed, though it was never taken in"
        );
        program.end_group();
    }
}

/// The steps at which an adoption can be killed.
pub(super) const STEPS: [&str; 4] = [
    "create:claimed",
    "create:enrolled",
    "create:looked",
    "create:running",
];

pub(super) fn killed(run: &Run, step: &str) {
    let program = outside();
    let words = ["adopt", "--name", "s", &program.pid()];
    stop_at(run, &words, step, |stage| {
        let actor = format!("adopt-{}", stage.pid(0).expect("it runs"));
        // With its last write it has come to its end.
        kill_traced(run.file(), &actor, "EngineDies", &["WriteRunning"], || {
            stage.kill(0);
        });
    });
    let code = run.cgleaf(&["destroy", "s"]).code();
    assert!(matches!(code, 0 | 3 | 4), "{step}: {code}");
    run.cgleaf(&["gc"]).expect(0);
    if step == "create:running" {
        let mut program = program;
        wait_for(&mut program.0);
    } else {
        program.end_group();
    }
}
