//! A file system whose writers sit in uninterruptible sleep: tests/lab/dstate.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use super::held::Held;
use super::script;
use crate::scratch::wait_until;

/// A frozen file system. A process that writes there sits in state D until [`thaw`](Self::thaw): it can neither be frozen nor killed.
#[derive(Debug)]
pub struct FrozenFilesystem {
    thawed: AtomicBool,
    // In this order: it is unmounted before its folder goes.
    _held: Held,
    dir: tempfile::TempDir,
}

impl FrozenFilesystem {
    /// Makes one. It is thawed and taken away with the value; processes with open files there are killed beforehand, by whoever started them.
    ///
    /// # Errors
    /// Where there is no loop device to be had.
    pub fn hold() -> io::Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("cgleaf-dstate-")
            .tempdir()?;
        let mut command = script("dstate");
        command.arg("hold").arg(dir.path());
        Ok(Self {
            thawed: AtomicBool::new(false),
            _held: Held::start(command)?,
            dir,
        })
    }

    /// Where to write: `dd if=/dev/zero of=PATH/file`. Everyone may.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mount")
    }

    /// Waits until this process, a writer, sits in state D because of the frozen file system, and not for a moment's disk access.
    ///
    /// # Panics
    /// Where that does not come.
    pub fn wait_for_writer(&self, pid: u32) {
        wait_until("a writer in state D", || Self::blocks(pid));
    }

    /// Whether this process is in state D because of a frozen file system.
    #[must_use]
    pub fn blocks(pid: u32) -> bool {
        let read = |file| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        read("status").contains("State:\tD") && read("wchan").contains("percpu_rwsem")
    }

    /// Lets the writers go on.
    ///
    /// # Panics
    /// Where the script cannot be run.
    pub fn thaw(&self) {
        if !self.thawed.swap(true, Ordering::Relaxed) {
            let status = script("dstate").arg("thaw").arg(self.dir.path()).status();
            assert!(
                status.is_ok_and(|status| status.success()),
                "thaw {}",
                self.path().display()
            );
        }
    }
}
