//! The smaller files of `/proc/<pid>`, each as a function of its bytes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use super::identity::Pid;
use super::stat::number;

/// Which autogroup a process belongs to (sched(7), `/proc/<pid>/autogroup`).
///
/// `setsid(2)` makes a new one. Ids count upwards and are never used twice in a boot, so that one names the processes of
/// a POSIX session, wherever they went since; only another `setsid` leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Autogroup {
    /// This one.
    Id(u64),
    /// The kernel's own, which many unrelated processes share: the file is empty.
    Default,
}

/// Parses `/autogroup-ID nice N`. `None` if it is neither that nor empty.
#[must_use]
pub fn parse_autogroup(text: &[u8]) -> Option<Autogroup> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return Some(Autogroup::Default);
    }
    let rest = text.strip_prefix(b"/autogroup-")?;
    let end = rest.iter().position(u8::is_ascii_whitespace)?;
    number(&rest[..end]).map(Autogroup::Id)
}

/// Parses `/proc/<pid>/task/<tid>/children`: pids with a space behind each. What is no pid is left out.
#[must_use]
pub fn parse_children(text: &[u8]) -> Vec<Pid> {
    text.split(u8::is_ascii_whitespace)
        .filter_map(|word| Pid::new(number(word)?))
        .collect()
}

/// Parses `/proc/<pid>/cmdline`: arguments with a NUL behind each. Empty for a zombie and for a kernel thread. A program
/// may write there what it likes.
#[must_use]
pub fn parse_cmdline(text: &[u8]) -> Vec<OsString> {
    let text = text.strip_suffix(b"\0").unwrap_or(text);
    if text.is_empty() {
        return Vec::new();
    }
    text.split(|&byte| byte == 0)
        .map(|argument| OsString::from_vec(argument.to_vec()))
        .collect()
}

/// The value of a variable in `/proc/<pid>/environ`: what the program was started with, not what it has set since.
#[must_use]
pub fn environ_value<'a>(text: &'a [u8], name: &str) -> Option<&'a [u8]> {
    text.split(|&byte| byte == 0)
        .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// Does this line of `/proc/<pid>/mountinfo` describe mount `id`, and a procfs that hides other users' processes
/// (`hidepid=1` and more, proc(5))? `None` if it is another mount's line.
pub(super) fn hides_processes(line: &[u8], id: &[u8]) -> Option<bool> {
    let rest = line.strip_prefix(id)?.strip_prefix(b" ")?;
    // Behind " - ": the type, the source, the options of the whole filesystem.
    let at = rest.windows(3).position(|window| window == b" - ")?;
    let options = rest[at + 3..]
        .split(|&byte| byte == b' ')
        .nth(2)
        .unwrap_or(b"");
    Some(
        options
            .split(|&byte| byte == b',')
            .any(|option| match option.strip_prefix(b"hidepid=") {
                Some(level) => level != b"0" && level != b"off",
                None => false,
            }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn autogroups() {
        assert_eq!(
            parse_autogroup(b"/autogroup-6 nice 0\n"),
            Some(Autogroup::Id(6))
        );
        assert_eq!(parse_autogroup(b""), Some(Autogroup::Default));
        assert_eq!(parse_autogroup(b"/autogroup-6"), None);
        assert_eq!(parse_autogroup(b"/autogroup-x nice 0\n"), None);
        assert_eq!(parse_autogroup(b"garbage"), None);
    }

    #[test]
    fn children_and_arguments() {
        let pids = parse_children(b"12 13 0 x -4 14 ");
        assert_eq!(
            pids.iter().map(|pid| pid.get()).collect::<Vec<_>>(),
            [12, 13, 14]
        );
        assert_eq!(parse_cmdline(b""), Vec::<OsString>::new());
        assert_eq!(parse_cmdline(b"sh\0-c\0\0"), ["sh", "-c", ""]);
        assert_eq!(
            parse_cmdline(b"title without an end"),
            ["title without an end"]
        );
    }

    #[test]
    fn environment() {
        let text = b"A=1\0CGLEAF_MARK_X=no\0CGLEAF_MARK=a:b\0";
        assert_eq!(environ_value(text, "CGLEAF_MARK"), Some(&b"a:b"[..]));
        assert_eq!(environ_value(text, "B"), None);
    }

    #[test]
    fn mounts_that_hide() {
        let line =
            |options: &str| format!("24 30 0:22 / /proc rw,nosuid shared:5 - proc proc {options}");
        assert_eq!(hides_processes(line("rw").as_bytes(), b"24"), Some(false));
        assert_eq!(
            hides_processes(line("rw,hidepid=off").as_bytes(), b"24"),
            Some(false)
        );
        for hidden in [
            "rw,hidepid=invisible",
            "rw,gid=5,hidepid=2",
            "rw,hidepid=noaccess",
        ] {
            assert_eq!(
                hides_processes(line(hidden).as_bytes(), b"24"),
                Some(true),
                "{hidden}"
            );
        }
        assert_eq!(hides_processes(line("rw,hidepid=2").as_bytes(), b"2"), None);
    }
}
