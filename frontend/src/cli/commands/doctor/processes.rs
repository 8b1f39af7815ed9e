//! What the kernel tells about processes, and who gathers orphans.

use std::path::Path;
use std::time::Duration;

use cgleaf_shared::process::{Pid, Pidfd, Proc, State};
use nix::sys::prctl::{get_child_subreaper, set_child_subreaper};

use super::checks::Check;
use super::guard::guarded;

pub(super) fn checks() -> Vec<Check> {
    vec![
        guarded("pidfd", pidfd),
        children(),
        guarded("autogroup", autogroup),
        subreaper(),
        guarded("reaping", reaping),
    ]
}

fn pidfd() -> Check {
    match Pidfd::open(Pid::own()) {
        Ok(_) => Check::new("pidfd", Some(true), "processes can be held by descriptor"),
        Err(error) => Check::new("pidfd", Some(false), error.to_string()),
    }
}

fn children() -> Check {
    let there = Path::new("/proc/thread-self/children").exists();
    let detail = if there {
        "/proc tells the children of a thread"
    } else {
        "/proc does not tell the children of a thread (CONFIG_PROC_CHILDREN): strays are found by a slower scan"
    };
    Check::new("children", Some(there), detail)
}

/// The group tier proves a process group by it.
fn autogroup() -> Check {
    let own = Proc::system()
        .and_then(|proc| proc.process(Pid::own()))
        .and_then(|dir| dir.autogroup());
    match own {
        Ok(found) => Check::new("autogroup", Some(true), format!("{found:?}")),
        Err(error) => Check::new("autogroup", Some(false), error.to_string()),
    }
}

/// The group tier's monitor is one: orphans come to it.
fn subreaper() -> Check {
    let tried = get_child_subreaper().and_then(|was| {
        set_child_subreaper(true)?;
        set_child_subreaper(was)
    });
    match tried {
        Ok(()) => Check::new("subreaper", Some(true), "orphans can be gathered"),
        Err(errno) => Check::new(
            "subreaper",
            Some(false),
            format!("prctl(PR_SET_CHILD_SUBREAPER): {errno}"),
        ),
    }
}

/// A zombie lasts until its parent has seen it: longer than this only if that one never looks.
const A_ZOMBIES_TIME: Duration = Duration::from_millis(50);

/// Whether PID 1 reaps, by the zombies that wait for it. A zombie of our own making would stay for good where it does not.
fn reaping() -> Check {
    let waiting = zombies_of_init();
    if waiting.is_empty() {
        return Check::new("reaping", None, "no zombie waits for PID 1");
    }
    std::thread::sleep(A_ZOMBIES_TIME);
    let still = zombies_of_init();
    let stayed = waiting.iter().filter(|pid| still.contains(pid)).count();
    if stayed == 0 {
        return Check::new("reaping", Some(true), "PID 1 reaps the orphans that end");
    }
    Check::new(
        "reaping",
        Some(false),
        format!(
            "{stayed} zombies wait for PID 1, which does not reap: ends are proven all the same"
        ),
    )
}

fn zombies_of_init() -> Vec<Pid> {
    let Ok(proc) = Proc::system() else {
        return Vec::new();
    };
    let is_one = |pid: &Pid| {
        let stat = proc.process(*pid).and_then(|directory| directory.stat());
        stat.is_ok_and(|stat| stat.state == State::Zombie && stat.parent == Some(Pid::INIT))
    };
    proc.pids()
        .unwrap_or_default()
        .into_iter()
        .filter(is_one)
        .collect()
}
