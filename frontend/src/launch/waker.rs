//! Whoever stands in for a program stops when the program does, and sees nothing then. A child of its own looks at the program
//! meanwhile, and continues it once the program goes on or has ended, by `kill -CONT` or in a destroy, or whoever keeps its session is gone.

use std::time::Duration;

use cgleaf_shared::process::{Pid, Pidfd};
use nix::sys::prctl::{set_name, set_pdeathsig};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::getppid;

use super::signals::is_stopped;
use crate::sys::{self, Forked};

/// Between two looks at a program that is stopped: nothing tells of its going on but `/proc`. Its end is told at once.
const LOOK: Duration = Duration::from_millis(100);

/// The child that looks. It ends with this value, and with its parent.
#[derive(Debug)]
pub(super) struct Waker(Pid);

impl Waker {
    /// Begins to look, at the program and at whoever keeps its session; `None` where no process can be had.
    pub(super) fn new(program: Pid, keeper: Option<Pid>) -> Option<Waker> {
        let parent = nix::unistd::getpid();
        match sys::fork().ok()? {
            Forked::Child => watch(program, keeper, parent),
            Forked::Parent(child) => Some(Waker(child)),
        }
    }

    /// Who it is.
    pub(super) fn pid(&self) -> Pid {
        self.0
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        let child = nix::unistd::Pid::from_raw(self.0.get());
        let _ = kill(child, Signal::SIGKILL);
        while waitpid(child, None) == Err(nix::Error::EINTR) {}
    }
}

/// Continues the parent again and again from then on: once might be just before it stops.
fn watch(program: Pid, keeper: Option<Pid>, parent: nix::unistd::Pid) -> ! {
    let _ = set_pdeathsig(Signal::SIGKILL);
    let _ = set_name(c"cgleaf-waker");
    let held = Pidfd::open(program).ok();
    let keeper = keeper.and_then(|pid| Pidfd::open(pid).ok());
    let is_kept = || {
        keeper
            .as_ref()
            .is_none_or(|it| it.is_alive().unwrap_or(true))
    };
    while getppid() == parent {
        if !is_stopped(program) || !is_kept() {
            let _ = kill(parent, Signal::SIGCONT);
            std::thread::sleep(LOOK);
        } else if held.as_ref().is_none_or(|it| it.wait(Some(LOOK)).is_err()) {
            std::thread::sleep(LOOK);
        }
    }
    sys::exit_now(0)
}
