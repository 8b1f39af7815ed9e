//! What the kernel tells about processes, and who gathers orphans.

use std::path::Path;
use std::time::Duration;

use cgleaf_shared::process::{Autogroup, Pid, Pidfd, Proc, ReadError, State};
use nix::sys::prctl::{get_child_subreaper, set_child_subreaper};

use super::checks::{Check, unknown};
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
    const PATH: &str = "/proc/thread-self/children";
    let there = Path::new(PATH).exists();
    if !there && !Path::new("/proc/thread-self").exists() {
        return unknown("children", &format!("there is no {PATH}"));
    }
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
        Ok(found) => Check::new("autogroup", Some(true), told(found)),
        Err(error) => Check::new("autogroup", Some(false), error.to_string()),
    }
}

fn told(autogroup: Autogroup) -> String {
    match autogroup {
        Autogroup::Id(id) => format!("this process is in autogroup {id}"),
        Autogroup::Default => {
            "this process is in the one that the kernel shares out by default".to_owned()
        }
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

/// How often, and after how long each time, zombies are looked for again: one that is gone at the last look was reaped, if late.
const LOOKS: u32 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// Whether PID 1 reaps, by the zombies that wait for it. A zombie of our own making would stay for good where it does not.
fn reaping() -> Check {
    let waiting = match zombies_of_init() {
        Ok(waiting) => waiting,
        Err(error) => return unknown("reaping", &error.to_string()),
    };
    if waiting.is_empty() {
        return if hides_processes() {
            unknown("reaping", "/proc hides processes (hidepid)")
        } else {
            Check::new("reaping", None, "no zombie waits for PID 1")
        };
    }
    for look in 1..=LOOKS {
        std::thread::sleep(BETWEEN_LOOKS);
        let still = zombies_of_init().unwrap_or_default();
        let stayed = waiting.iter().filter(|pid| still.contains(pid)).count();
        if let Some(check) = what_the_zombies_say(look, waiting.len(), stayed) {
            return check;
        }
    }
    Check::new("reaping", None, "not to be told")
}

/// What it means that so many of those that were there first are there still; `None`: look again. PID 1 is one process: where it
/// has reaped one of them it reaps, and the others in their turn.
fn what_the_zombies_say(look: u32, waiting: usize, stayed: usize) -> Option<Check> {
    if stayed < waiting {
        let detail = if look == 1 {
            "PID 1 reaps the orphans that end"
        } else {
            "PID 1 reaps the orphans that end, if late: ends are proven all the same"
        };
        return Some(Check::new("reaping", Some(true), detail));
    }
    if look < LOOKS {
        return None;
    }
    let zombies = if stayed == 1 {
        "1 zombie has"
    } else {
        &format!("{stayed} zombies have")
    };
    let waited = (BETWEEN_LOOKS * LOOKS).as_millis();
    Some(Check::new(
        "reaping",
        Some(false),
        format!(
            "{zombies} waited {waited} ms for PID 1, which reaps late or not at all: ends are proven all the same"
        ),
    ))
}

/// Whether /proc hides processes (hidepid); what cannot be told counts as no.
pub(super) fn hides_processes() -> bool {
    let told = Proc::system().and_then(|proc| proc.hides_processes());
    told.unwrap_or(false)
}

fn zombies_of_init() -> Result<Vec<Pid>, ReadError> {
    let proc = Proc::system()?;
    let is_one = |pid: &Pid| {
        let stat = proc.process(*pid).and_then(|directory| directory.stat());
        stat.is_ok_and(|stat| stat.state == State::Zombie && stat.parent == Some(Pid::INIT))
    };
    Ok(proc.pids()?.into_iter().filter(is_one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that is late is none that does not.
    #[test]
    fn only_a_zombie_that_stays_says_that_nobody_reaps() {
        let says = |look, waiting, stayed| {
            what_the_zombies_say(look, waiting, stayed).map(|check| check.to_string())
        };
        assert_eq!(says(1, 2, 2), None);
        assert_eq!(says(LOOKS - 1, 2, 2), None);
        assert!(says(1, 2, 1).unwrap().starts_with("ok "));
        assert!(says(LOOKS, 2, 0).unwrap().contains("late"));
        assert!(says(LOOKS, 2, 2).unwrap().starts_with("NO "));
        assert!(says(LOOKS, 1, 1).unwrap().contains("1 zombie has waited"));
    }
}
