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

/// The cgroup2 mounts, the likeliest first: whole trees before bind mounts of a subtree, and of two on one
/// point the later, which is the one on top.
pub fn cgroup2_mounts(mounts: &[Mount]) -> Vec<Mount> {
    let mut found: Vec<Mount> = mounts
        .iter()
        .rev()
        .filter(|m| m.fs_type == "cgroup2")
        .cloned()
        .collect();
    found.sort_by_key(|mount| (mount.root.as_os_str() != "/", mount.read_only));
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
