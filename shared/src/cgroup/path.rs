//! Cgroup paths as `/proc/<pid>/cgroup` shows them.

use std::fmt;
use std::path::Path;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::{IoContext, IoError};
use crate::sys;

/// An absolute path in the cgroup2 hierarchy, relative to the root of the reader's cgroup namespace
/// (cgroup_namespaces(7)). It never holds a `..`, a `.` or an empty component.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct CgroupPath(String);

/// Why a text is no [`CgroupPath`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The content holds no `0::` line: no cgroup2 hierarchy, or a hidden one.
    #[error("there is no cgroup2 line (0::) in it")]
    NoUnifiedLine,
    /// The cgroup lies outside the reader's cgroup namespace: it is shown with `/..`.
    #[error("{0:?} lies outside this cgroup namespace")]
    OutsideNamespace(String),
    /// The cgroup was removed; its last processes are zombies.
    #[error("{0:?} was removed")]
    Deleted(String),
    /// Not absolute, or with an empty or `.` component, or not UTF-8.
    #[error("{0:?} is no cgroup path")]
    Malformed(String),
}

impl CgroupPath {
    /// The root of the namespace.
    pub fn root() -> Self {
        Self("/".to_owned())
    }

    /// Checks a text.
    ///
    /// # Errors
    /// [`PathError`], for everything but a plain absolute path.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        if text == "/" {
            return Ok(Self::root());
        }
        let Some(below) = text.strip_prefix('/') else {
            return Err(PathError::Malformed(text.to_owned()));
        };
        for component in below.split('/') {
            match component {
                ".." => return Err(PathError::OutsideNamespace(text.to_owned())),
                "" | "." => return Err(PathError::Malformed(text.to_owned())),
                other if other.contains('\0') => return Err(PathError::Malformed(text.to_owned())),
                _ => {}
            }
        }
        Ok(Self(text.to_owned()))
    }

    /// The text, with its leading slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What openat2(2) wants beneath the root's descriptor: no leading slash, and `.` for the root itself.
    pub fn relative(&self) -> &Path {
        Path::new(if self.is_root() { "." } else { &self.0[1..] })
    }

    /// Whether this is the namespace's root.
    pub fn is_root(&self) -> bool {
        self.0 == "/"
    }

    /// The child of that name, which must be one plain component.
    ///
    /// # Errors
    /// [`PathError::Malformed`] and its like if it is not.
    pub fn child(&self, name: &str) -> Result<Self, PathError> {
        if name.contains('/') {
            return Err(PathError::Malformed(name.to_owned()));
        }
        Self::parse(&format!("{}/{name}", self.0.trim_end_matches('/')))
    }

    /// The descendant of that relative path, such as `a/b`.
    ///
    /// # Errors
    /// [`PathError`], as for [`Self::parse`].
    pub fn join(&self, relative: &str) -> Result<Self, PathError> {
        Self::parse(&format!("{}/{relative}", self.0.trim_end_matches('/')))
    }

    /// The directory that holds it; the root has none.
    pub fn parent(&self) -> Option<Self> {
        let (parent, _) = self.0.rsplit_once('/').filter(|_| !self.is_root())?;
        Some(Self(if parent.is_empty() {
            "/".to_owned()
        } else {
            parent.to_owned()
        }))
    }

    /// Its last component; the root has none.
    pub fn name(&self) -> Option<&str> {
        self.0
            .rsplit_once('/')
            .map(|(_, name)| name)
            .filter(|name| !name.is_empty())
    }

    /// Itself and every directory above it, the nearest first.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self.clone()), Self::parent)
    }

    /// The innermost systemd service around it, unless a scope lies closer, or it is a user's own manager, beneath which
    /// every unit of his lies (systemd.unit(5)).
    pub fn service(&self) -> Option<Self> {
        let is_unit = |name: &str| name.ends_with(".service") || name.ends_with(".scope");
        let is_service = |name: &str| name.ends_with(".service") && !name.starts_with("user@");
        self.ancestors()
            .find(|path| path.name().is_some_and(is_unit))
            .filter(|path| path.name().is_some_and(is_service))
    }

    /// Whether it is `other` or lies somewhere beneath it.
    pub fn is_within(&self, other: &Self) -> bool {
        self.strip(other).is_some()
    }

    /// What is left of it below `other`, without a leading slash: empty for `other` itself.
    pub fn strip(&self, other: &Self) -> Option<&str> {
        if other.is_root() {
            return Some(&self.0[1..]);
        }
        let rest = self.0.strip_prefix(&other.0)?;
        if rest.is_empty() {
            Some("")
        } else {
            rest.strip_prefix('/')
        }
    }
}

impl fmt::Display for CgroupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for CgroupPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// The cgroup2 path in the content of a `/proc/<pid>/cgroup` file.
///
/// # Errors
/// [`PathError`]: no such line, outside the namespace, removed, or malformed.
pub fn parse_proc_cgroup(content: &[u8]) -> Result<CgroupPath, PathError> {
    let line = content
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"0::"))
        .ok_or(PathError::NoUnifiedLine)?;
    let text = std::str::from_utf8(line)
        .map_err(|_| PathError::Malformed(String::from_utf8_lossy(line).into_owned()))?;
    match text.strip_suffix(" (deleted)") {
        Some(path) => Err(PathError::Deleted(path.to_owned())),
        None => CgroupPath::parse(text),
    }
}

/// The cgroup of the process or thread behind a /proc directory such as `/proc/self` or `/proc/17`.
///
/// # Errors
/// If the file cannot be read (`ENOENT`, `ESRCH`: the process is gone) or names no usable cgroup; the error
/// then has kind `InvalidData` and a [`PathError`] inside.
pub fn path_of(proc_dir: &str) -> Result<CgroupPath, IoError> {
    let file = format!("{proc_dir}/cgroup");
    let content = sys::read_file(&file).context("read", &file)?;
    parse_proc_cgroup(&content)
        .map_err(|why| std::io::Error::new(std::io::ErrorKind::InvalidData, why))
        .context("find the cgroup in", &file)
}

/// This process's own cgroup.
///
/// # Errors
/// As [`path_of`].
pub fn own_path() -> Result<CgroupPath, IoError> {
    path_of("/proc/self")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unified_line_is_taken_and_odd_ones_are_told_apart() {
        let hybrid = b"9:name=systemd:/x\n0::/a/b\n";
        assert_eq!(parse_proc_cgroup(hybrid).unwrap().as_str(), "/a/b");
        assert_eq!(
            parse_proc_cgroup(b"1:cpu:/\n"),
            Err(PathError::NoUnifiedLine)
        );
        assert_eq!(
            parse_proc_cgroup(b"0::/../x\n"),
            Err(PathError::OutsideNamespace("/../x".into()))
        );
        assert_eq!(
            parse_proc_cgroup(b"0::/a (deleted)\n"),
            Err(PathError::Deleted("/a".into()))
        );
        assert!(matches!(
            parse_proc_cgroup(b"0::a//b\n"),
            Err(PathError::Malformed(_))
        ));
        assert!(matches!(
            parse_proc_cgroup(b"0::/\xff\n"),
            Err(PathError::Malformed(_))
        ));
    }

    #[test]
    fn a_scope_or_the_users_manager_is_no_service() {
        let around = |text| {
            let service = CgroupPath::parse(text).unwrap().service();
            service.map(|path| path.to_string())
        };
        assert_eq!(
            around("/system.slice/cron.service/x").as_deref(),
            Some("/system.slice/cron.service")
        );
        for none in [
            "/user.slice/user-1000.slice/user@1000.service/app.slice/a.scope",
            "/user.slice/user-1000.slice/user@1000.service/init.scope",
            "/user.slice/user-1000.slice/user@1000.service",
            "/",
        ] {
            assert_eq!(around(none), None, "{none}");
        }
    }

    #[test]
    fn ancestry_goes_by_components() {
        let path = |text| CgroupPath::parse(text).unwrap();
        assert!(path("/a/b").is_within(&path("/a")));
        assert!(path("/a").is_within(&path("/")));
        assert!(!path("/ab").is_within(&path("/a")));
        assert_eq!(path("/a/b").strip(&path("/")), Some("a/b"));
        assert_eq!(path("/a").parent(), Some(CgroupPath::root()));
        assert_eq!(CgroupPath::root().parent(), None);
        assert_eq!(
            path("/a/b").ancestors().map(|p| p.0).collect::<Vec<_>>(),
            ["/a/b", "/a", "/"]
        );
        assert_eq!(path("/").child("x").unwrap().as_str(), "/x");
        assert!(path("/a").child("..").is_err());
        assert!(path("/a").child("b/c").is_err());
    }
}
