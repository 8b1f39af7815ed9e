//! A real docker daemon: tests/lab/docker.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::held::Held;
use super::{Environment, available, script};
use crate::scratch::skip;

/// A docker daemon on pure cgroup2, without a network. It ends with the value, and its containers with it.
#[derive(Debug)]
pub struct Docker {
    // In this order: the daemon is down before its folder goes.
    _held: Held,
    dir: tempfile::TempDir,
}

impl Docker {
    /// Starts one; the first time it is downloaded.
    ///
    /// # Errors
    /// Where it does not come up. The script's own words are on stderr then.
    pub fn up() -> io::Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("cgleaf-docker-")
            .tempdir()?;
        let mut command = script("docker");
        command.env("CGLEAF_DOCKER_DIR", dir.path()).arg("hold");
        Ok(Self {
            _held: Held::start(command)?,
            dir,
        })
    }

    /// The one daemon that the tests of this binary share. None (and a word about it) where this machine cannot have one.
    pub fn shared() -> Option<&'static Self> {
        static DOCKER: OnceLock<Option<Docker>> = OnceLock::new();
        DOCKER
            .get_or_init(|| {
                if !available(&[Environment::Cgroup2, Environment::Downloads]) {
                    return None;
                }
                Self::up()
                    .inspect_err(|cause| skip(&format!("no docker: {cause}")))
                    .ok()
            })
            .as_ref()
    }

    /// The docker client with these arguments. Containers need `--network none` or `--network host`.
    #[must_use]
    pub fn client<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Command {
        let mut command = self.script();
        command.arg("cli").args(words).stdin(Stdio::null());
        command
    }

    /// A shell's commands, in which `docker` is that client.
    #[must_use]
    pub fn shell(&self, commands: &str) -> Command {
        let mut shell = Command::new("sh");
        shell
            .arg("-ec")
            .arg(format!(
                "docker() {{ \"$LAB_DOCKER\" cli \"$@\"; }}\n{commands}"
            ))
            .env("LAB_DOCKER", script("docker").get_program())
            .env("CGLEAF_DOCKER_DIR", self.dir.path());
        shell
    }

    /// What `DOCKER_HOST` has to be for a client of another kind.
    #[must_use]
    pub fn host(&self) -> String {
        format!("unix://{}/docker.sock", self.dir.path().display())
    }

    /// Makes an image of a static busybox and these static programs, which lie in its /bin.
    ///
    /// # Errors
    /// Where docker refuses it.
    pub fn image(&self, name: &str, programs: &[&Path]) -> io::Result<()> {
        let status = self
            .script()
            .arg("image")
            .arg(name)
            .args(programs)
            .status()?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("docker image {name}: {status}")))
        }
    }

    /// Where a container's cgroup lies, as this machine sees it.
    ///
    /// # Errors
    /// Where there is no such container, or none that runs.
    pub fn container_cgroup(&self, container: &str) -> io::Result<PathBuf> {
        let output = self
            .script()
            .arg("container-cgroup")
            .arg(container)
            .output()?;
        let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if path.is_empty() {
            return Err(io::Error::other(format!(
                "no running container {container}"
            )));
        }
        Ok(path.into())
    }

    fn script(&self) -> Command {
        let mut command = script("docker");
        command.env("CGLEAF_DOCKER_DIR", self.dir.path());
        command
    }
}
