//! `/proc/<pid>/status` (proc_pid_status(5)).

use super::identity::Pid;
use super::stat::{State, number};

/// The four user ids of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uids {
    /// Who started it.
    pub real: u32,
    /// With whose rights it acts.
    pub effective: u32,
    /// What it may return to.
    pub saved: u32,
    /// With whose rights it opens files.
    pub filesystem: u32,
}

impl Uids {
    /// Are all four this one? A set-uid program in between has others, and may neither be signalled nor adopted.
    #[must_use]
    pub fn are_all(self, uid: u32) -> bool {
        [self.real, self.effective, self.saved, self.filesystem] == [uid; 4]
    }
}

/// The fields of `status` that cgleaf uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// State of its main thread.
    pub state: State,
    /// The process that this thread belongs to: differs from `pid` where a thread's number was asked for.
    pub tgid: Pid,
    /// The number asked for.
    pub pid: Pid,
    /// Its parent, `None` where the reader's pid namespace does not show it.
    pub parent: Option<Pid>,
    /// Who traces it.
    pub tracer: Option<Pid>,
    /// Its user ids, as the reader's user namespace maps them (65534 is "not mapped").
    pub uids: Uids,
    /// Its number in the pid namespace of this `/proc`, then in each one nested in it down to its own. Empty on a kernel
    /// without pid namespaces.
    pub ns_pids: Vec<Pid>,
    /// Its threads.
    pub threads: u64,
    /// Blocked signals of the main thread, bit n-1 for signal n.
    pub sig_blocked: u64,
    /// Ignored signals.
    pub sig_ignored: u64,
    /// Caught signals.
    pub sig_caught: u64,
    /// Is `no_new_privs` set? `None` where the kernel does not say (before 4.10).
    pub no_new_privs: Option<bool>,
    /// Seccomp mode: 0 none, 1 strict, 2 filter. `None` where the kernel does not say.
    pub seccomp: Option<u8>,
}

/// Parses a `status` file. `None` if a field that every kernel writes is missing or no number.
#[must_use]
pub fn parse(text: &[u8]) -> Option<Status> {
    let [letter, ..] = field(text, b"State")? else {
        return None;
    };
    Some(Status {
        state: State::from_letter(*letter),
        tgid: Pid::new(number(field(text, b"Tgid")?)?)?,
        pid: Pid::new(number(field(text, b"Pid")?)?)?,
        parent: Pid::new(number(field(text, b"PPid")?)?),
        tracer: Pid::new(number(field(text, b"TracerPid")?)?),
        uids: uids(field(text, b"Uid")?)?,
        ns_pids: match field(text, b"NSpid") {
            Some(list) => words(list)
                .map(|word| Pid::new(number(word)?))
                .collect::<Option<_>>()?,
            None => Vec::new(),
        },
        threads: number(field(text, b"Threads")?)?,
        sig_blocked: mask(field(text, b"SigBlk")?)?,
        sig_ignored: mask(field(text, b"SigIgn")?)?,
        sig_caught: mask(field(text, b"SigCgt")?)?,
        no_new_privs: optional(text, b"NoNewPrivs")?.map(|value: u8| value != 0),
        seccomp: optional(text, b"Seccomp")?,
    })
}

/// The value of a line `Name:\tvalue`. The kernel escapes newlines in `Name`, so that a program cannot add lines.
fn field<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    text.split(|&byte| byte == b'\n').find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(b":")?;
        Some(value.trim_ascii())
    })
}

/// A line that older kernels do not have: `Some(None)` without it, `None` if it is no number.
#[allow(clippy::option_option)]
fn optional(text: &[u8], name: &[u8]) -> Option<Option<u8>> {
    match field(text, name) {
        None => Some(None),
        Some(value) => number(value).map(Some),
    }
}

fn words(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

fn uids(value: &[u8]) -> Option<Uids> {
    let mut ids = words(value).map(number::<u32>);
    let mut next = || ids.next().flatten();
    Some(Uids {
        real: next()?,
        effective: next()?,
        saved: next()?,
        filesystem: next()?,
    })
}

fn mask(value: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(value).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLEEP: &[u8] = b"Name:\tsle\\nep\nUmask:\t0022\nState:\tT (stopped)\nTgid:\t42\nNgid:\t0\nPid:\t42\nPPid:\t0\n\
        TracerPid:\t0\nUid:\t1000\t0\t0\t1000\nGid:\t1\t1\t1\t1\nFDSize:\t64\nGroups:\t \nNStgid:\t42\t3\n\
        NSpid:\t42\t3\nNSpgid:\t42\t3\nNSsid:\t1\t0\nKthread:\t0\nThreads:\t1\nSigQ:\t0/95\nSigPnd:\t0\nShdPnd:\t0\n\
        SigBlk:\t0000000000004000\nSigIgn:\t0000000000001000\nSigCgt:\t8000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n\
        Seccomp_filters:\t1\n";

    #[test]
    fn reads_the_fields_it_names() {
        let status = parse(SLEEP).expect("a text of the kernel's");
        assert_eq!(status.state, State::Stopped);
        assert_eq!(
            (status.tgid.get(), status.pid.get(), status.parent),
            (42, 42, None)
        );
        assert_eq!(
            status.uids,
            Uids {
                real: 1000,
                effective: 0,
                saved: 0,
                filesystem: 1000
            }
        );
        assert!(!status.uids.are_all(1000));
        assert_eq!(
            status
                .ns_pids
                .iter()
                .map(|pid| pid.get())
                .collect::<Vec<_>>(),
            [42, 3]
        );
        assert_eq!(
            (status.sig_blocked, status.sig_ignored, status.sig_caught),
            (0x4000, 0x1000, 1 << 63)
        );
        assert_eq!((status.no_new_privs, status.seccomp), (Some(true), Some(2)));
    }

    #[test]
    fn older_kernels_say_less() {
        let text = String::from_utf8_lossy(SLEEP)
            .lines()
            .filter(|line| {
                !["NSpid", "NoNewPrivs", "Seccomp"]
                    .iter()
                    .any(|name| line.starts_with(name))
            })
            .fold(String::new(), |text, line| text + line + "\n");
        let status = parse(text.as_bytes()).expect("still a whole status");
        assert!(status.ns_pids.is_empty());
        assert_eq!((status.no_new_privs, status.seccomp), (None, None));
    }

    #[test]
    fn what_no_kernel_writes_is_refused() {
        let text = String::from_utf8_lossy(SLEEP).into_owned();
        for (from, to) in [
            ("Uid:\t1000\t0\t0\t1000", "Uid:\t1000\t0\t0"),
            ("Tgid:\t42", "Tgid:\t0"),
            ("NSpid:\t42\t3", "NSpid:\t42\tx"),
            ("SigIgn:\t0", "SigIgn:\tz"),
            ("Seccomp:\t2", "Seccomp:\t"),
            ("State:\tT (stopped)", "State:\t"),
            ("Threads", "Threats"),
        ] {
            assert_eq!(parse(text.replace(from, to).as_bytes()), None, "{to}");
        }
        assert_eq!(parse(b""), None);
    }
}
