//! `cgleaf top`.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use cgleaf_shared::id::SessionId;
use serde_json::{Value, json};

use super::super::args::Top;
use super::super::context::Context;
use super::super::screen::{Key, Screen};
use super::super::table::Table;
use super::view::View;
use crate::error::Result;
use crate::ops::{Memory, Usage};

/// Shows what the living sessions use, again and again on a terminal.
pub(super) fn run(context: &Context, arguments: &Top) -> Result<u8> {
    let live = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if live && !context.output.is_json() && arguments.count.is_none() {
        watch(context, arguments.interval)?;
        return Ok(0);
    }
    let mut before = Sample::take(context)?;
    for _ in 0..arguments.count.unwrap_or(1) {
        std::thread::sleep(arguments.interval);
        let now = Sample::take(context)?;
        let rows = rows(&before, &now);
        let result = json!({ "sessions": rows.iter().map(Row::to_json).collect::<Vec<_>>() });
        context
            .output
            .answer(&result, |out| table(&rows).write(out))?;
        before = now;
    }
    Ok(0)
}

fn watch(context: &Context, interval: Duration) -> Result<()> {
    let mut screen = Screen::open()?;
    let mut before = Sample::take(context)?;
    loop {
        let now = Sample::take(context)?;
        let rows = rows(&before, &now);
        let members: usize = rows.iter().filter_map(|row| row.members).sum();
        let mut text = Vec::new();
        let head = format!("{} sessions, {members} processes; q ends this", rows.len());
        // A vector takes everything that is written to it.
        let _ = writeln!(text, "{head}\n").and_then(|()| table(&rows).write(&mut text));
        screen.draw(&String::from_utf8_lossy(&text))?;
        if screen.wait(interval) == Some(Key::Quit) {
            return Ok(());
        }
        before = now;
    }
}

/// All living sessions at one moment.
struct Sample {
    at: Instant,
    sessions: Vec<(View, Usage)>,
}

impl Sample {
    fn take(context: &Context) -> Result<Self> {
        let reach = context.reach();
        let everything = reach.everything();
        if let Some(error) = everything.unknown() {
            return Err(error.clone());
        }
        let sessions = View::of_all(&reach, everything.sessions)
            .into_iter()
            .filter(|view| !view.look.state.is_over())
            .map(|view| {
                let usage = reach.usage(&view.look);
                (view, usage)
            })
            .collect();
        Ok(Self {
            at: Instant::now(),
            sessions,
        })
    }

    fn cpu_of(&self, id: &SessionId) -> Option<Duration> {
        let (_, usage) = self
            .sessions
            .iter()
            .find(|(view, _)| view.session.id == *id)?;
        usage.cpu
    }
}

/// A session between two samples.
struct Row {
    id: String,
    name: Option<String>,
    state: &'static str,
    members: Option<usize>,
    /// Of one processor, in hundredths; more than 100 where several are used.
    percent: Option<f64>,
    usage: Usage,
    program: String,
}

/// Those that use most come first.
fn rows(before: &Sample, now: &Sample) -> Vec<Row> {
    let time = now.at.duration_since(before.at).as_secs_f64();
    let mut rows: Vec<Row> = now
        .sessions
        .iter()
        .map(|(view, usage)| {
            let id = &view.session.id;
            let used = usage
                .cpu
                .zip(before.cpu_of(id))
                .map(|(now, before)| now.saturating_sub(before).as_secs_f64());
            Row {
                id: id.to_string(),
                name: view.session.name().map(|name| name.as_str().to_owned()),
                state: view.look.state.name(),
                members: view.members,
                percent: used.filter(|_| time > 0.0).map(|used| used * 100.0 / time),
                usage: *usage,
                program: view.argv().join(" "),
            }
        })
        .collect();
    let weight = |row: &Row| {
        (
            row.percent.unwrap_or(0.0),
            row.usage.memory.map_or(0, Memory::bytes),
        )
    };
    rows.sort_by(|one, other| {
        let (one, other) = (weight(one), weight(other));
        other.0.total_cmp(&one.0).then(other.1.cmp(&one.1))
    });
    rows
}

impl Row {
    fn to_json(&self) -> Value {
        json!({
            "session": self.id,
            "name": self.name,
            "state": self.state,
            "members": self.members,
            "cpu_percent": self.percent,
            "cpu_usec": self.usage.cpu.map(|cpu| u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX)),
            "memory": self.usage.memory.map(Memory::bytes),
            "memory_by": self.usage.memory.map(|memory| match memory {
                Memory::Charged(_) => "charged",
                Memory::Resident(_) => "resident",
            }),
        })
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        "SESSION", "NAME", "STATE", "MEMBERS", "CPU%", "TIME", "MEMORY", "PROGRAM",
    ]);
    table.paint_states(2);
    for row in rows {
        table.row(&[
            &row.id,
            row.name.as_deref().unwrap_or("-"),
            row.state,
            &row.members
                .map_or("?".to_owned(), |count| count.to_string()),
            &row.percent
                .map_or("-".to_owned(), |percent| format!("{percent:.1}")),
            &row.usage.cpu.map_or("-".to_owned(), time),
            &row.usage.memory.map_or("-".to_owned(), size),
            &row.program,
        ]);
    }
    table
}

/// Minutes, seconds and hundredths, as top(1) has them.
fn time(cpu: Duration) -> String {
    let hundredths = cpu.as_millis() / 10;
    let (minutes, rest) = (hundredths / 6000, hundredths % 6000);
    format!("{minutes}:{:02}.{:02}", rest / 100, rest % 100)
}

/// In units of 1024; with `~` where shared pages were counted several times.
fn size(memory: Memory) -> String {
    let bytes = memory.bytes();
    let mark = match memory {
        Memory::Charged(_) => "",
        Memory::Resident(_) => "~",
    };
    let (unit, shift) = match bytes {
        0..1_048_576 => ("K", 10),
        1_048_576..1_073_741_824 => ("M", 20),
        _ => ("G", 30),
    };
    let tenths = (bytes * 10) >> shift;
    format!("{mark}{}.{}{unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(time(Duration::from_millis(83_457)), "1:23.45");
        assert_eq!(time(Duration::ZERO), "0:00.00");
        assert_eq!(size(Memory::Charged(1536)), "1.5K");
        assert_eq!(size(Memory::Resident(3 << 20)), "~3.0M");
        assert_eq!(size(Memory::Charged(5 << 30)), "5.0G");
    }
}
