//! `/proc/<pid>/stat` (proc_pid_stat(5)).

use super::identity::{Pid, ProcessId, StartTicks};

/// What a process is doing, the third field of `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// `R`: running or ready to run.
    Running,
    /// `S`: in a sleep that a signal ends.
    Sleeping,
    /// `D`: in a sleep that no signal ends.
    DiskSleep,
    /// `T`: stopped by a signal.
    Stopped,
    /// `t`: stopped by a tracer.
    Traced,
    /// `Z`: ended and not reaped.
    Zombie,
    /// `X` or `x`: about to vanish.
    Dead,
    /// `I`: an idle kernel thread.
    Idle,
    /// A letter that this program does not know (kernels before 4.14 had `K`, `P` and `W`).
    Other(u8),
}

impl State {
    /// The state that a letter of `stat` or `status` stands for.
    #[must_use]
    pub const fn from_letter(letter: u8) -> State {
        match letter {
            b'R' => State::Running,
            b'S' => State::Sleeping,
            b'D' => State::DiskSleep,
            b'T' => State::Stopped,
            b't' => State::Traced,
            b'Z' => State::Zombie,
            b'X' | b'x' => State::Dead,
            b'I' => State::Idle,
            other => State::Other(other),
        }
    }

    /// The kernel's letter for it.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            State::Running => 'R',
            State::Sleeping => 'S',
            State::DiskSleep => 'D',
            State::Stopped => 'T',
            State::Traced => 't',
            State::Zombie => 'Z',
            State::Dead => 'X',
            State::Idle => 'I',
            State::Other(letter) => letter as char,
        }
    }

    /// Has this thread ended? The process may live on in another thread: [`super::liveness`] asks for that.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, State::Zombie | State::Dead)
    }

    /// Does it stand still until somebody lets it go on?
    #[must_use]
    pub const fn is_stopped(self) -> bool {
        matches!(self, State::Stopped | State::Traced)
    }
}

/// The fields of `stat` that cgleaf uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its number and start.
    pub id: ProcessId,
    /// The name of its main thread, up to 15 bytes of anything. To show, never to decide by.
    pub comm: Vec<u8>,
    /// State of its main thread.
    pub state: State,
    /// Its parent; `None` for PID 1 and where the parent is outside the reader's pid namespace.
    pub parent: Option<Pid>,
    /// Its process group; `None` where the group's number is outside the reader's pid namespace.
    pub group: Option<Pid>,
    /// Its POSIX session; `None` as for the group.
    pub session: Option<Pid>,
    /// Its threads, a main thread that ended while others run included.
    pub threads: u64,
}

/// Parses a `stat` file.
///
/// `comm` stands between the first `(` and the *last* `)`: a program may call itself `) Z 1 1 1` or put a newline there.
/// `None` if the text is none that a kernel writes.
#[must_use]
pub fn parse(text: &[u8]) -> Option<Stat> {
    let open = text.iter().position(|&byte| byte == b'(')?;
    let close = text.iter().rposition(|&byte| byte == b')')?;
    let comm = text.get(open + 1..close)?.to_vec();
    let pid = number::<i32>(text.get(..open)?.trim_ascii())?;
    let rest = text.get(close + 1..)?;
    let mut fields = rest
        .split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty());
    let [letter] = fields.next()? else {
        return None;
    };
    let parent = number::<i32>(fields.next()?)?;
    let group = number::<i32>(fields.next()?)?;
    let session = number::<i32>(fields.next()?)?;
    // From here: tty_nr is field 7, num_threads field 20, starttime field 22.
    let threads = number::<u64>(fields.nth(20 - 7)?)?;
    let start = number::<u64>(fields.nth(1)?)?;
    Some(Stat {
        id: ProcessId {
            pid: Pid::new(pid)?,
            start: StartTicks(start),
        },
        comm,
        state: State::from_letter(*letter),
        parent: Pid::new(parent),
        group: Pid::new(group),
        session: Pid::new(session),
        threads,
    })
}

/// A decimal number that fills the whole field.
pub(super) fn number<T: std::str::FromStr>(field: &[u8]) -> Option<T> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(comm: &str) -> Vec<u8> {
        format!(
            "42 ({comm}) S 7 41 40 34816 42 4194304 1 2 3 4 5 6 7 8 20 0 3 0 98765 1 2 3 18446744073709551615 0\n"
        )
        .into_bytes()
    }

    #[test]
    fn reads_the_fields_it_names() {
        let stat = parse(&line("sleep")).expect("a line of the kernel's");
        assert_eq!(stat.id.pid.get(), 42);
        assert_eq!(stat.id.start, StartTicks(98765));
        assert_eq!(stat.comm, b"sleep");
        assert_eq!(stat.state, State::Sleeping);
        assert_eq!(stat.parent, Pid::new(7));
        assert_eq!(stat.group, Pid::new(41));
        assert_eq!(stat.session, Pid::new(40));
        assert_eq!(stat.threads, 3);
    }

    #[test]
    fn a_name_may_be_anything() {
        for comm in [
            "",
            ")",
            "a) Z 1 1 1 (",
            "new\nline",
            ") ) )",
            "((",
            "\u{1b}[31m",
        ] {
            let stat = parse(&line(comm)).unwrap_or_else(|| panic!("{comm:?} was refused"));
            assert_eq!(stat.comm, comm.as_bytes());
            assert_eq!(stat.state, State::Sleeping);
            assert_eq!(stat.id.start, StartTicks(98765));
        }
    }

    #[test]
    fn a_parent_outside_the_namespace_is_none() {
        let stat = parse(b"1 (init) S 0 0 0 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0\n")
            .expect("PID 1's line");
        assert_eq!((stat.parent, stat.group, stat.session), (None, None, None));
    }

    #[test]
    fn what_no_kernel_writes_is_refused() {
        for text in [
            &b""[..],
            b"42",
            b"42 (x",
            b")(",
            b"42 (x) ",
            b"42 (x) S",
            b"0 (x) S 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 5",
            b"42 (x) SS 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 5",
            b"42 (x) S 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 -5",
            b"99999999999 (x) S 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 5",
        ] {
            assert_eq!(parse(text), None, "{:?}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn letters_round_trip() {
        for letter in b"RSDTtZXIKW" {
            assert_eq!(State::from_letter(*letter).letter(), *letter as char);
        }
    }
}
