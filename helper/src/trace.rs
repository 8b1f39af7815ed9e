//! Events named like the actions of tla/Lifecycle.tla, for the conformance test (tla/README.md has the format). Without the
//! cargo feature `trace` nothing of it is left.

#[cfg(feature = "trace")]
mod enabled {
    use std::fmt;
    use std::fs::{File, OpenOptions};
    use std::io::Write;
    use std::path::Path;
    use std::sync::OnceLock;

    static FILE: OnceLock<File> = OnceLock::new();

    /// Opens the trace, before the lock-down.
    pub(crate) fn open(path: Option<&Path>) -> std::io::Result<()> {
        if let Some(path) = path {
            let file = OpenOptions::new().append(true).create(true).open(path)?;
            let _ = FILE.set(file);
        }
        Ok(())
    }

    /// Writes one line with one write(2).
    pub(crate) fn write(session: Option<&str>, event: &str, fields: fmt::Arguments<'_>) {
        let Some(mut file) = FILE.get() else { return };
        let session = session.map_or(String::new(), |id| format!(",\"session\":\"{id}\""));
        let fields = fields.to_string();
        let comma = if fields.is_empty() { "" } else { "," };
        let line = format!(
            "{{\"actor\":\"helper-{}\",\"event\":\"{event}\",\"t1\":{}{comma}{fields}{session}}}\n",
            std::process::id(),
            now()
        );
        let _ = file.write_all(line.as_bytes());
    }

    /// CLOCK_MONOTONIC in nanoseconds. The helper does one thing after the other: a line's operation began after the
    /// line before it.
    fn now() -> u64 {
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
            .map_or(std::time::Duration::ZERO, std::time::Duration::from);
        u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(feature = "trace")]
pub(crate) use enabled::{open, write};

/// One event of one session: `event!(session, name, fields…)`, the fields as JSON members.
#[cfg(feature = "trace")]
macro_rules! event {
    ($session:expr, $name:literal) => {
        $crate::trace::write(Some($session.as_str()), $name, format_args!(""))
    };
    ($session:expr, $name:literal, $($fields:tt)+) => {
        $crate::trace::write(Some($session.as_str()), $name, format_args!($($fields)+))
    };
}

/// Nothing, and nothing of its arguments is evaluated.
#[cfg(not(feature = "trace"))]
macro_rules! event {
    ($session:expr, $name:literal) => {
        let _ = || $session.as_str();
    };
    ($session:expr, $name:literal, $($fields:tt)+) => {
        let _ = || ($session.as_str(), format!($($fields)+));
    };
}

pub(crate) use event;

/// The verdict as traces write it.
pub(crate) fn verdict_name(verdict: &cgleaf_shared::attestation::Verdict) -> &'static str {
    use cgleaf_shared::attestation::Verdict;
    match verdict {
        Verdict::Proven(_) => "proven",
        Verdict::Gone => "gone",
        Verdict::Foreign(_) => "foreign",
        Verdict::Unreadable(_) => "unreadable",
    }
}
