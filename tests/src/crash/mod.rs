//! The series of kills: frontends or helpers are killed (SIGKILL) at random moments of a mixed load of commands, and after each
//! kill what must hold is looked at from outside, on the cgroup tree and in /proc.
//!
//! It is a library so that the same series runs in direct mode here, and in a guest as a user beneath systemd, by the program
//! `crash-series`.

mod load;
mod look;
mod place;

pub use place::{Mode, Place};

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use load::{Load, Op};
use look::Watch;

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// The command that a user typed, whatever it is just doing.
    Frontend,
    /// Whoever keeps the sessions.
    Helper,
}

/// How many sessions there may be before all of them are ended, so that later rounds are not slower than the first.
const MANY: usize = 12;
/// A round whose victim was faster than its killer does not count; so many of them mean that something is wrong.
const ROUNDS_FOR_A_KILL: usize = 10;

/// What a series came to.
#[derive(Debug, Default)]
pub struct Report {
    /// How many victims were killed before they had ended by themselves.
    pub kills: usize,
    /// The same by what they were just doing.
    pub by_command: BTreeMap<&'static str, usize>,
    /// The exit statuses of the commands that nobody killed.
    pub statuses: BTreeMap<(&'static str, i32), usize>,
    /// How many living sessions were found again, over all rounds.
    pub found: usize,
    /// How many sessions were ended by destroy.
    pub destroyed: usize,
}

impl Report {
    fn count(&mut self, (op, status): (Op, i32)) {
        *self.statuses.entry((op.name(), status)).or_default() += 1;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} kills; {} living sessions found again, {} destroyed; killed: {:?}; statuses of the others: {:?}",
            self.kills, self.found, self.destroyed, self.by_command, self.statuses
        )
    }
}

/// Runs a series until so many victims were killed, looks after each, and ends with nothing left.
///
/// # Panics
/// Where something does not hold.
pub fn series(place: &Place, victim: Victim, kills: usize) -> Report {
    let load = Load::new(place);
    let watch = Watch::new(place, &load);
    let mut report = Report::default();
    load.some_sessions();
    for round in 0.. {
        if report.kills >= kills {
            break;
        }
        assert!(
            round < kills * ROUNDS_FOR_A_KILL,
            "hardly anybody is killed: {report}"
        );
        match victim {
            Victim::Frontend => kill_frontends(&load, &mut report),
            Victim::Helper => kill_helper(place, &load, &mut report),
        }
        report.found += watch.recovered();
        if place.leaves().len() >= MANY {
            report.destroyed += watch.destroy_all();
            load.some_sessions();
        }
    }
    assert!(
        report.found > 0,
        "no session ever lived through a kill: {report}"
    );
    report.destroyed += watch.destroy_all();
    watch.nothing_is_left();
    report
}

/// Two commands at once, each killed at a moment of its own, and one that nobody kills.
fn kill_frontends(load: &Load<'_>, report: &mut Report) {
    let (killed, undisturbed) = std::thread::scope(|threads| {
        let both = [(), ()].map(|()| threads.spawn(|| load.one_killed(load.any())));
        let op = load.any();
        let undisturbed = (op, load.one(op));
        let killed: Vec<_> = both
            .into_iter()
            .filter_map(|one| one.join().expect("a killer"))
            .collect();
        (killed, undisturbed)
    });
    for command in killed {
        report.kills += 1;
        *report.by_command.entry(command).or_default() += 1;
    }
    report.count(undisturbed);
}

/// Three users go on with their work while the helper is killed.
fn kill_helper(place: &Place, load: &Load<'_>, report: &mut Report) {
    let over = AtomicBool::new(false);
    let done: Vec<(Op, i32)> = std::thread::scope(|threads| {
        let work = || {
            let mut done = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let op = load.any();
                done.push((op, load.one(op)));
            }
            done
        };
        let users = [(), (), ()].map(|()| threads.spawn(work));
        std::thread::sleep(load.moment());
        let start = Instant::now();
        let helpers = loop {
            let helpers = place.helpers();
            if !helpers.is_empty() || start.elapsed() > Duration::from_secs(30) {
                break helpers;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        for helper in helpers {
            if look::kill(helper) {
                report.kills += 1;
                *report.by_command.entry("helper").or_default() += 1;
            }
        }
        over.store(true, Ordering::Relaxed);
        users
            .into_iter()
            .flat_map(|user| user.join().expect("a user"))
            .collect()
    });
    done.into_iter().for_each(|one| report.count(one));
}
