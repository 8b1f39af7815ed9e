//! The line that `systemctl status` shows.

use std::time::{Duration, Instant};

/// The service manager wakes up for each line: not more often than a person could read it.
const PAUSE: Duration = Duration::from_secs(1);

/// How many sessions the service manager was last told of.
#[derive(Debug)]
pub(crate) struct StatusLine {
    told: usize,
    at: Instant,
}

impl StatusLine {
    /// Told at the start.
    pub(crate) fn new(sessions: usize) -> Self {
        Self {
            told: sessions,
            at: Instant::now(),
        }
    }

    /// What it says.
    pub(crate) fn text(&self) -> String {
        let noun = if self.told == 1 {
            "session"
        } else {
            "sessions"
        };
        format!("STATUS=Serving {} {noun}", self.told)
    }

    /// When it has to be told anew; `None` while it is true.
    pub(crate) fn due(&self, sessions: usize) -> Option<Instant> {
        (sessions != self.told).then(|| self.at + PAUSE)
    }

    /// Whether it has changed and may be told now.
    pub(crate) fn changed(&mut self, sessions: usize, now: Instant) -> bool {
        let due = self.due(sessions).is_some_and(|due| now >= due);
        if due {
            *self = Self {
                told: sessions,
                at: now,
            };
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_when_it_changes_and_not_at_once_again() {
        let mut line = StatusLine::new(0);
        let start = line.at;
        assert_eq!(line.due(0), None);
        assert!(!line.changed(1, start));
        let later = start + PAUSE;
        assert_eq!(line.due(1), Some(later));
        assert!(line.changed(1, later));
        assert_eq!(line.text(), "STATUS=Serving 1 session");
        assert!(!line.changed(1, later + PAUSE));
        assert!(!line.changed(3, later));
        assert!(line.changed(3, later + PAUSE));
        assert_eq!(line.text(), "STATUS=Serving 3 sessions");
    }
}
