//! Short tables for people: columns as wide as they need be, the last one cut to the terminal's width.

use std::io::{self, IsTerminal, Write};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::colour::{self, Paint};
use super::output::one_line;

/// A table about to be written.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
    /// The column that has sessions' states.
    states: Option<usize>,
}

impl Table {
    /// With these column names.
    pub(super) fn new(head: &[&str]) -> Self {
        Self {
            rows: vec![head.iter().map(|name| (*name).to_owned()).collect()],
            states: None,
        }
    }

    /// Says which column has sessions' states, to be coloured where colours are wanted. Not the last one, which may be cut.
    pub(super) fn paint_states(&mut self, column: usize) {
        self.states = Some(column);
    }

    /// Adds a row. No byte of it is one that a terminal would obey, and none begins a new line.
    pub(super) fn row(&mut self, cells: &[&str]) {
        self.rows
            .push(cells.iter().map(|cell| one_line(cell)).collect());
    }

    /// Writes it. On a terminal the last column ends where the terminal does; elsewhere nothing is cut.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        self.write_within(out, terminal_width(), colour::on_stdout())
    }

    fn write_within(
        &self,
        out: &mut dyn Write,
        width: Option<usize>,
        colours: bool,
    ) -> io::Result<()> {
        let columns = self.rows.first().map_or(0, Vec::len);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                self.rows
                    .iter()
                    .map(|row| row[column].width())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        for (index, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            let mut painted = None;
            for (column, cell) in row.iter().enumerate() {
                if self.states == Some(column)
                    && let Some(paint) = Paint::of_state(cell)
                {
                    painted = Some((line.len()..line.len() + cell.len(), paint));
                }
                line.push_str(cell);
                if column + 1 < columns {
                    let pad = widths[column] - cell.width() + 2;
                    line.extend(std::iter::repeat_n(' ', pad));
                }
            }
            let line = line.trim_end();
            let mut line = width.map_or_else(|| line.to_owned(), |width| cut(line, width));
            match painted {
                _ if !colours => {}
                _ if index == 0 => line = Paint::HEAD.on(&line),
                // A terminal so narrow that the state is cut has no room for colours either.
                Some((range, paint))
                    if line
                        .get(range.clone())
                        .is_some_and(|cell| !cell.contains('…')) =>
                {
                    let cell = paint.on(&line[range.clone()]);
                    line.replace_range(range, &cell);
                }
                _ => {}
            }
            writeln!(out, "{line}")?;
        }
        Ok(())
    }
}

/// The beginning of a text that fits, with an ellipsis where something is missing.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let mut kept = String::new();
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if wide > left {
            break;
        }
        left -= wide;
        kept.push(c);
    }
    kept.push('…');
    kept
}

fn terminal_width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let (width, _) = terminal_size::terminal_size_of(io::stdout())?;
    Some(usize::from(width.0)).filter(|width| *width > 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(width: Option<usize>) -> String {
        let mut table = Table::new(&["NAME", "PROGRAM"]);
        table.row(&["a", "sleep 60"]);
        table.row(&["日本", "x\n\u{1b}[31m"]);
        let mut out = Vec::new();
        table.write_within(&mut out, width, false).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_stand_beneath_each_other_and_no_control_byte_gets_out() {
        assert_eq!(
            written(None),
            "NAME  PROGRAM\na     sleep 60\n日本  x\\n\\u{1b}[31m\n"
        );
    }

    #[test]
    fn a_line_ends_where_the_terminal_does() {
        for width in 1..20 {
            let text = written(Some(width));
            assert!(
                text.lines().all(|line| line.width() <= width),
                "{width}: {text}"
            );
        }
    }

    #[test]
    fn a_state_is_coloured_and_nothing_else_of_its_row() {
        let mut table = Table::new(&["NAME", "STATE", "PROGRAM"]);
        table.paint_states(1);
        table.row(&["a", "running", "x"]);
        table.row(&["b", "-", "running"]);
        let written = |width| {
            let mut out = Vec::new();
            table.write_within(&mut out, width, true).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            written(None),
            "\u{1b}[1mNAME  STATE    PROGRAM\u{1b}[0m\na     \u{1b}[32mrunning\u{1b}[0m  x\nb     -        running\n"
        );
        assert_eq!(
            written(Some(9)),
            "\u{1b}[1mNAME  ST…\u{1b}[0m\na     ru…\nb     - …\n"
        );
    }
}
