//! The directory that cgroup paths are relative to.

use super::{CgroupDir, CgroupPath, Mount, cgroup2_mounts, own_mountinfo};
use crate::error::IoError;
use crate::id::CgroupId;

/// The opened root of the cgroup2 tree, as this process sees it.
#[derive(Debug)]
pub struct CgroupRoot {
    dir: CgroupDir,
    mount: Mount,
    id: CgroupId,
}

/// Why there is no usable cgroup2 root.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RootError {
    /// mountinfo shows no cgroup2 mount.
    #[error("no cgroup2 file system is mounted (looked in /proc/self/mountinfo)")]
    NotMounted,
    /// There are mounts, and none could be opened as cgroup2; this is the last answer.
    #[error("no cgroup2 mount can be used: {0}")]
    Unusable(#[source] IoError),
    /// mountinfo itself cannot be read.
    #[error(transparent)]
    Mountinfo(#[from] IoError),
}

impl CgroupRoot {
    /// Finds the cgroup2 mount in /proc/self/mountinfo, wherever it is, and opens it.
    ///
    /// # Errors
    /// [`RootError`]: there is none, or none that can be used.
    pub fn open() -> Result<Self, RootError> {
        let mut last = RootError::NotMounted;
        for mount in cgroup2_mounts(&own_mountinfo()?) {
            match CgroupDir::open_mount(&mount.point).and_then(|dir| Ok((dir.id()?, dir))) {
                Ok((id, dir)) => return Ok(Self { dir, mount, id }),
                Err(error) => last = RootError::Unusable(error),
            }
        }
        Err(last)
    }

    /// The root directory itself.
    pub fn dir(&self) -> &CgroupDir {
        &self.dir
    }

    /// The mount that it was found at.
    pub fn mount(&self) -> &Mount {
        &self.mount
    }

    /// Its kernfs id: 1 in the initial namespace, another in a cgroup namespace or on a bind-mounted subtree.
    pub fn id(&self) -> CgroupId {
        self.id
    }

    /// Opens the cgroup at `path`.
    ///
    /// # Errors
    /// As [`CgroupDir::open_beneath`].
    pub fn open_path(&self, path: &CgroupPath) -> Result<CgroupDir, IoError> {
        self.dir.open_beneath(path)
    }
}
