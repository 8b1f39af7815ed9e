//! Finding the cgroup2 mount in /proc/self/mountinfo, in pure and hybrid layouts.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::error::{IoContext, IoError};
use crate::sys;

/// One line of mountinfo, as far as cgroups need it (proc_pid_mountinfo(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The directory of the file system that is mounted: `/`, or a subtree where it is a bind mount.
    pub root: PathBuf,
    /// Where it is mounted, as this process sees it.
    pub point: PathBuf,
    /// The file system type, `cgroup2` or `cgroup` being those that matter.
    pub fs_type: String,
    /// Whether the mount itself is read-only.
    pub read_only: bool,
}

impl Mount {
    /// Whether its paths are those of /proc: its root is that of this process's cgroup namespace, which mountinfo shows as `/`.
    /// Any other root, `/docker/x` as well as `/../..`, is a bind mount of a subtree, or of a tree around the namespace
    /// (cgroup_namespaces(7)).
    pub fn shows_the_namespace(&self) -> bool {
        self.root.as_os_str() == "/"
    }
}

/// How cgroups are laid out on a machine, as mountinfo shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// cgroup2 alone.
    Pure,
    /// cgroup2 beside v1 hierarchies.
    Hybrid,
    /// v1 hierarchies alone.
    V1Only,
    /// No cgroup file system is mounted where this process could see it.
    None,
}

/// The lines of a mountinfo file, in its order. Lines that do not parse are passed over.
pub fn parse_mountinfo(content: &[u8]) -> Vec<Mount> {
    content
        .split(|byte| *byte == b'\n')
        .filter_map(parse_line)
        .collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    // 36 35 98:0 /root /point options [optional…] - type source super-options
    let separator = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
    Some(Mount {
        root: unescape(fields.get(3)?),
        point: unescape(fields.get(4)?),
        fs_type: String::from_utf8_lossy(fields.get(separator + 1)?).into_owned(),
        read_only: fields
            .get(5)?
            .split(|byte| *byte == b',')
            .any(|option| option == b"ro"),
    })
}

/// Space, tab, newline and backslash stand as `\040` and so on.
fn unescape(field: &[u8]) -> PathBuf {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .filter(|_| first == b'\\')
            .and_then(octal_byte);
        plain.push(octal.unwrap_or(first));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    PathBuf::from(OsString::from_vec(plain))
}

fn octal_byte(digits: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(digits).ok()?;
    u8::from_str_radix(text, 8).ok()
}

/// The cgroup2 mounts, the likeliest first: whole trees before bind mounts of a subtree. Of two on one point the later is on
/// top, and what opening the point answers is said by that one alone.
pub fn cgroup2_mounts(mounts: &[Mount]) -> Vec<Mount> {
    let is_on_top = |(at, mount): &(usize, &Mount)| {
        let mut later = mounts.iter().skip(at + 1);
        !later.any(|other| other.fs_type == "cgroup2" && other.point == mount.point)
    };
    let mut found: Vec<Mount> = mounts
        .iter()
        .enumerate()
        .filter(|(_, mount)| mount.fs_type == "cgroup2")
        .filter(is_on_top)
        .map(|(_, mount)| mount.clone())
        .collect();
    found.reverse();
    found.sort_by_key(|mount| (!mount.shows_the_namespace(), mount.read_only));
    found
}

/// What the mounts amount to.
pub fn layout(mounts: &[Mount]) -> Layout {
    let has = |fs_type: &str| mounts.iter().any(|mount| mount.fs_type == fs_type);
    match (has("cgroup2"), has("cgroup")) {
        (true, false) => Layout::Pure,
        (true, true) => Layout::Hybrid,
        (false, true) => Layout::V1Only,
        (false, false) => Layout::None,
    }
}

/// The mounts that this process sees.
///
/// # Errors
/// If /proc/self/mountinfo cannot be read.
pub fn own_mountinfo() -> Result<Vec<Mount>, IoError> {
    const PATH: &str = "/proc/self/mountinfo";
    Ok(parse_mountinfo(
        &sys::read_file(PATH).context("read", PATH)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &[u8] = b"31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_unified_tree_is_found_wherever_it_is_mounted() {
        let mounts = parse_mountinfo(HYBRID);
        assert_eq!(layout(&mounts), Layout::Hybrid);
        assert_eq!(
            cgroup2_mounts(&mounts)[0].point,
            PathBuf::from("/sys/fs/cgroup/unified")
        );
    }

    #[test]
    fn an_over_mount_hides_and_a_subtree_comes_last() {
        let mounts = parse_mountinfo(
            b"1 0 0:1 /docker/x /mnt/bind rw - cgroup2 c rw\n\
              2 0 0:1 / /a rw - cgroup2 below rw\n\
              3 0 0:2 / /a\\040b ro,nosuid - cgroup2 on-top rw\n",
        );
        let points: Vec<_> = cgroup2_mounts(&mounts)
            .into_iter()
            .map(|mount| mount.point)
            .collect();
        assert_eq!(points, ["/a", "/a b", "/mnt/bind"].map(PathBuf::from));
    }

    #[test]
    fn a_tree_around_the_namespace_is_not_taken_for_the_mount_beneath_it() {
        let mounts = cgroup2_mounts(&parse_mountinfo(
            b"1 0 0:1 / /sys/fs/cgroup ro - cgroup2 c rw\n\
              2 1 0:1 /../.. /sys/fs/cgroup rw - cgroup2 c rw\n",
        ));
        assert_eq!(mounts.len(), 1);
        assert_eq!(mounts[0].root, PathBuf::from("/../.."));
        assert!(!mounts[0].shows_the_namespace());
    }

    #[test]
    fn damaged_lines_are_passed_over() {
        for line in [
            &b""[..],
            b"1 2 3",
            b"1 2 3 / /p rw",
            b"1 2 3 / /p rw -",
            b"\\\\\\ - - - - - -",
            b"- - - - - - -",
        ] {
            let _ = parse_mountinfo(line);
        }
        assert_eq!(layout(&parse_mountinfo(b"1 2 3 / /p rw -\n")), Layout::None);
    }
}
