//! What the sockets of helpers are called that were given a directory for their leaves while another helper has the usual one.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

const PREFIX: &str = "direct-";
const SUFFIX: &str = ".sock";
const DIGITS: usize = 16;

/// The name of the socket of the helper whose leaves lie in that directory: the same for every program that names it, today and
/// after an upgrade, and short enough for `sun_path` (unix(7)).
pub fn name_for(directory: &Path) -> String {
    format!("{PREFIX}{:016x}{SUFFIX}", hash(directory))
}

/// Whether that is the name of such a socket.
pub fn is_of_a_directory(name: &str) -> bool {
    name.strip_prefix(PREFIX)
        .and_then(|rest| rest.strip_suffix(SUFFIX))
        .is_some_and(|digits| {
            let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            digits.len() == DIGITS && digits.bytes().all(is_digit)
        })
}

/// FNV-1a, 64 bits, over the path as it is written, but for slashes that say nothing. Nobody gains by a collision: a helper whose
/// directory is another's refuses to start.
fn hash(directory: &Path) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let parts = directory.components().filter_map(|part| match part {
        Component::RootDir => None,
        other => Some(other.as_os_str().as_bytes()),
    });
    parts
        .flat_map(|part| std::iter::once(&b'/').chain(part))
        .fold(OFFSET, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(PRIME)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two versions must agree. The value is that of FNV-1a's own definition for these bytes.
    #[test]
    fn a_directory_has_one_name_for_ever() {
        let name = name_for(Path::new("/sys/fs/cgroup/system.slice/runner.service"));
        assert_eq!(name, "direct-6a85797c6d7d0c0e.sock");
        for same in [
            "/sys/fs/cgroup/system.slice/runner.service/",
            "/sys//fs/cgroup/./system.slice/runner.service",
        ] {
            assert_eq!(name_for(Path::new(same)), name, "{same}");
        }
        let other = name_for(Path::new("/sys/fs/cgroup/system.slice/runner2.service"));
        assert_ne!(other, name);
        assert!(is_of_a_directory(&name) && is_of_a_directory(&other));
    }

    #[test]
    fn other_names_are_others() {
        for other in [
            "direct.sock",
            "scope.sock",
            "direct-.sock",
            "direct-0123456789abcdef.sock.lock",
            "direct-0123456789ABCDEF.sock",
            "direct-0123456789abcde.sock",
            "private-0123456789ab.sock",
        ] {
            assert!(!is_of_a_directory(other), "{other}");
        }
    }
}
