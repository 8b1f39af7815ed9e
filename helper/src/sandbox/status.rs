//! What the kernel says this process is held to: the security lines of `/proc/self/status`.

use std::fs::File;
use std::io::{self, Read};

pub(super) const PATH: &str = "/proc/self/status";

/// The lines of proc_pid_status(5) that the lock-down is confirmed by.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) threads: u64,
    /// CapInh, CapPrm, CapEff and CapAmb, together.
    pub(super) capabilities: u64,
    pub(super) bounding_set: u64,
    pub(super) no_new_privs: bool,
    /// 0 off, 1 strict, 2 filter.
    pub(super) seccomp: u64,
}

impl Status {
    /// Works before and after the lock-down: it opens and reads, and asks for no size (which would be statx(2)).
    pub(super) fn read() -> io::Result<Self> {
        let mut file = File::open(PATH)?;
        let mut text = Vec::with_capacity(4096);
        let mut chunk = [0; 4096];
        loop {
            match file.read(&mut chunk)? {
                0 => break,
                count => text.extend_from_slice(&chunk[..count]),
            }
        }
        Self::parse(&String::from_utf8_lossy(&text)).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{PATH} lacks a line that is needed"),
            )
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .map(str::trim)
        };
        let mask = |name| u64::from_str_radix(field(name)?, 16).ok();
        let number = |name| field(name)?.parse::<u64>().ok();
        Some(Self {
            threads: number("Threads")?,
            capabilities: mask("CapInh")? | mask("CapPrm")? | mask("CapEff")? | mask("CapAmb")?,
            bounding_set: mask("CapBnd")?,
            no_new_privs: number("NoNewPrivs")? == 1,
            // Absent in a kernel without seccomp: then nothing is filtered.
            seccomp: number("Seccomp").unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Name:\tx\nThreads:\t1\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000001\nCapEff:\t\
                        0000000000000000\nCapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000004\nNoNewPrivs:\t1\nSeccomp:\t\
                        2\nSeccomp_filters:\t1\n";

    #[test]
    fn the_four_sets_count_together() {
        let status = Status::parse(TEXT).unwrap();
        assert_eq!(
            status,
            Status {
                threads: 1,
                capabilities: 5,
                bounding_set: 0x1ff_ffff_ffff,
                no_new_privs: true,
                seccomp: 2
            }
        );
    }

    #[test]
    fn a_missing_line_is_no_zero_but_for_seccomp() {
        for name in [
            "Threads",
            "CapInh",
            "CapPrm",
            "CapEff",
            "CapBnd",
            "CapAmb",
            "NoNewPrivs",
        ] {
            let text = TEXT.replace(&format!("{name}:"), "Other:");
            assert_eq!(Status::parse(&text), None, "{name}");
        }
        assert_eq!(
            Status::parse(&TEXT.replace("Seccomp:", "Other:"))
                .unwrap()
                .seccomp,
            0
        );
    }
}
