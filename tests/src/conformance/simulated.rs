//! Runs of the real engine over the simulated kernel, as traces.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use cgleaf::group::guards::Guards;
use cgleaf::group::trace::Event;
use cgleaf::trace::Field;

use super::{Kind, begin};
use crate::sim::explore::{Answered, Seeded, random_run};
use crate::sim::kernel::Property;
use crate::sim::world::{Config, Reaping};

thread_local! {
    static LINES: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A simulated engine has done something: a line, if somebody keeps them in this thread.
pub(crate) fn observe(actor: &str, event: &Event) {
    LINES.with(|lines| {
        if let Some(lines) = &mut *lines.borrow_mut() {
            let mut line = serde_json::json!({"actor": actor, "event": event.name()});
            for (name, value) in event.fields() {
                line[name] = match value {
                    Field::Flag(value) => value.into(),
                    Field::Word(value) => value.into(),
                    Field::Number(value) => value.into(),
                };
            }
            lines.push_str(&format!("{line}\n"));
        }
    });
}

/// Runs this, and keeps the lines that engines write in this thread meanwhile.
fn keep<T>(run: impl FnOnce() -> T) -> (T, String) {
    LINES.with(|lines| *lines.borrow_mut() = Some(String::new()));
    let result = run();
    let lines = LINES.with(|lines| lines.borrow_mut().take());
    (result, lines.unwrap_or_default())
}

/// A world of any kind that the traces' model has too.
fn world(random: &mut Seeded) -> Config {
    Config {
        reaping: [Reaping::Prompt, Reaping::Late, Reaping::Never][random.below(3)],
        forks: u8::try_from(random.below(12)).unwrap_or(0),
        hostile: u8::try_from(random.below(4)).unwrap_or(0),
        own_proc: random.below(8) != 0,
        readable: random.below(5) != 0,
        rebooted: random.below(12) == 0,
        ended: random.below(8) == 0,
        collectors: u8::from(random.below(4) == 0),
        ..Config::PLAIN
    }
}

/// Without what a destroy did that began when a gc had removed the record: in the simulation nobody reads one.
fn without_impossible(lines: &str) -> String {
    let mut over = false;
    let mut too_late = Vec::new();
    let mut kept = String::new();
    for line in lines.lines() {
        let read: serde_json::Value = serde_json::from_str(line).expect("a line");
        over |= read["answer"] == "over";
        if over && read["event"] == "Begin" {
            too_late.push(read["actor"].clone());
        }
        if !too_late.contains(&read["actor"]) {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// One random run; its answers, or which property it broke.
pub fn run<G: Guards>(
    random: &mut Seeded,
    dir: &Path,
    name: &str,
) -> (PathBuf, Result<Vec<Answered>, Property>) {
    let config = world(random);
    let eager = 1 + random.below(7);
    let (answers, lines) = keep(|| random_run::<G>(&config, random, eager));
    let file = begin(dir, name, Kind::Group);
    let header = fs::read_to_string(&file).expect("the header");
    fs::write(&file, header + &without_impossible(&lines)).expect("write a trace");
    (file, answers)
}
