//! What the code did, as events named like the actions of tla/Lifecycle.tla, for the test that holds the code to the
//! model (tla/README.md has the format). Without the cargo feature `trace` every function here is empty.
//!
//! The file is named by `CGLEAF_TRACE`; whoever reads the trace has written its header. Each line is one write(2) to a
//! descriptor opened with O_APPEND, so that lines of several processes do not mix.

#[cfg(not(feature = "trace"))]
pub use off::{Started, adopts, begins_again, event, started};
#[cfg(feature = "trace")]
pub use on::{Started, adopts, begins_again, event, path, started};

/// Who does it: the first part of the actor's name; the second is the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `run`, `exec` or `start`.
    Create,
    /// `destroy`.
    Destroy,
    /// `gc`.
    Gc,
    /// Any other command.
    Client,
}

/// The value of an event's field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field<'a> {
    /// `true` or `false`.
    Flag(bool),
    /// One of the words of the table.
    Word(&'a str),
    /// A number.
    Number(u64),
}

#[cfg(not(feature = "trace"))]
mod off {
    use super::{Field, Role};

    /// When an operation began.
    #[derive(Debug, Clone, Copy)]
    pub struct Started;

    /// An operation begins.
    #[inline(always)]
    pub fn started() -> Started {
        Started
    }

    /// What follows is another one's.
    #[inline(always)]
    pub fn begins_again() {}

    /// What this process creates is an adoption.
    #[inline(always)]
    pub fn adopts() {}

    /// It is done.
    #[inline(always)]
    pub fn event(_role: Role, _event: &str, _started: Started, _fields: &[(&str, Field<'_>)]) {}
}

#[cfg(feature = "trace")]
mod on {
    use std::fs::{File, OpenOptions};
    use std::io::Write;
    use std::path::PathBuf;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use nix::time::{ClockId, clock_gettime};

    use super::{Field, Role};

    /// When an operation began: CLOCK_MONOTONIC in nanoseconds.
    #[derive(Debug, Clone, Copy)]
    pub struct Started(u64);

    /// An operation begins.
    pub fn started() -> Started {
        Started(now())
    }

    /// How often this process has begun again.
    static AGAIN: AtomicU32 = AtomicU32::new(0);

    /// What follows is another one's: a destroy that begins again is, for the model, one that comes later.
    pub fn begins_again() {
        AGAIN.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether what this process creates takes in a program that runs already.
    static ADOPTS: AtomicBool = AtomicBool::new(false);

    /// What this process creates is an adoption, which the model tells from other creates.
    pub fn adopts() {
        ADOPTS.store(true, Ordering::Relaxed);
    }

    /// The file that the events go to.
    pub fn path() -> Option<PathBuf> {
        std::env::var_os("CGLEAF_TRACE").map(PathBuf::from)
    }

    /// It is done.
    ///
    /// # Panics
    /// If the file cannot be written: a trace with a gap proves nothing.
    pub fn event(role: Role, event: &str, started: Started, fields: &[(&str, Field<'_>)]) {
        let Some(mut file) = file() else { return };
        let actor = match role {
            Role::Create if ADOPTS.load(Ordering::Relaxed) => "adopt",
            Role::Create => "create",
            Role::Destroy => "destroy",
            Role::Gc => "gc",
            Role::Client => "client",
        };
        let again = match AGAIN.load(Ordering::Relaxed) {
            0 => String::new(),
            times => format!(".{times}"),
        };
        let mut line = serde_json::json!({
            "actor": format!("{actor}-{}{again}", std::process::id()),
            "event": event, "t0": started.0, "t1": now(),
        });
        for (name, value) in fields {
            line[*name] = match value {
                Field::Flag(value) => (*value).into(),
                Field::Word(value) => (*value).into(),
                Field::Number(value) => (*value).into(),
            };
        }
        file.write_all(format!("{line}\n").as_bytes())
            .expect("write the trace");
    }

    fn now() -> u64 {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC)
            .map_or(std::time::Duration::ZERO, std::time::Duration::from);
        u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
    }

    fn file() -> Option<&'static File> {
        static FILE: OnceLock<Option<File>> = OnceLock::new();
        FILE.get_or_init(|| {
            let path = path()?;
            let file = OpenOptions::new()
                .append(true)
                .create(true)
                .open(path)
                .expect("open CGLEAF_TRACE");
            Some(file)
        })
        .as_ref()
    }
}
