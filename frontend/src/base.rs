//! Where a user's sockets, records and names lie (DESIGN 3.1, 4.2).

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cgleaf_shared::id::{BootId, Uid};
use cgleaf_shared::wire::Mode;
use cgleaf_shared::{IoContext, IoError, socket};
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};

use crate::error::{Code, Error, OrCode, Result};
use crate::private_dir::PrivateDir;

/// What of the environment decides where things lie, taken once so that tests can set it.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// The effective user.
    pub uid: Uid,
    /// `XDG_RUNTIME_DIR`.
    pub runtime_dir: Option<OsString>,
    /// `XDG_STATE_HOME`.
    pub state_home: Option<OsString>,
    /// `HOME`.
    pub home: Option<OsString>,
}

impl Surroundings {
    /// Those of this process.
    pub fn of_process() -> Self {
        let variable = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
        Self {
            uid: Uid::effective(),
            runtime_dir: variable("XDG_RUNTIME_DIR"),
            state_home: variable("XDG_STATE_HOME"),
            home: variable("HOME"),
        }
    }
}

/// The places of one user. Nothing is made until it is needed.
#[derive(Debug, Clone)]
pub struct Base {
    root: PathBuf,
    records: PathBuf,
    uid: Uid,
    /// Why `XDG_RUNTIME_DIR` was passed over, if it was set.
    passed_over: Option<String>,
    /// Why the records are not kept in `HOME`, if it is set.
    home_passed_over: Option<String>,
}

impl Base {
    /// Where the node service's socket lies; a container is given the directory.
    pub const NODE_DIRECTORY: &str = "/run/cgleaf/node";

    /// BASE is `$XDG_RUNTIME_DIR/cgleaf` (only if that directory is ours), else `/run/cgleaf/0` for root, else
    /// `/tmp/cgleaf-UID`; records are kept in the state directory where there is no runtime directory, and beneath BASE
    /// where that is not known either, or cannot be made, as in a container whose user has no HOME or one of somebody else.
    ///
    /// # Errors
    /// INTERNAL if this boot's id cannot be read.
    pub fn find(surroundings: &Surroundings) -> Result<Self> {
        let uid = surroundings.uid;
        let (runtime, passed_over) = match surroundings.runtime_dir.as_deref().map(own_directory) {
            Some(Ok(path)) => (Some(path), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, None),
        };
        let root = match runtime {
            Some(path) => path.join("cgleaf"),
            None if uid == Uid::ROOT => PathBuf::from("/run/cgleaf/0"),
            None => {
                let root = PathBuf::from(format!("/tmp/cgleaf-{uid}"));
                let state = state_directory(surroundings)?;
                let (records, home_passed_over) = match state {
                    State::Unknown => (root.join("sessions"), None),
                    State::Unusable(why) => (root.join("sessions"), Some(why)),
                    State::Usable(path) => (path, None),
                };
                return Ok(Self {
                    records,
                    root,
                    uid,
                    passed_over,
                    home_passed_over,
                });
            }
        };
        Ok(Self {
            records: root.join("sessions"),
            root,
            uid,
            passed_over,
            home_passed_over: None,
        })
    }

    /// The socket that a mode's helper has: the user modes' beneath BASE, the root modes' beneath /run/cgleaf.
    pub fn socket(&self, mode: Mode) -> PathBuf {
        match mode {
            Mode::Scope => self.root.join("run/scope.sock"),
            Mode::Direct => self.root.join("run/direct.sock"),
            Mode::UserService => self.root.join("run/service.sock"),
            Mode::SystemService => PathBuf::from(format!("/run/cgleaf/{}/helper.sock", self.uid)),
            Mode::NodeService => Path::new(Self::NODE_DIRECTORY).join("helper.sock"),
        }
    }

    /// The sockets in the order in which they are looked for.
    pub fn sockets(&self) -> Vec<(Mode, PathBuf)> {
        [
            Mode::SystemService,
            Mode::UserService,
            Mode::Scope,
            Mode::Direct,
            Mode::NodeService,
        ]
        .map(|mode| (mode, self.socket(mode)))
        .to_vec()
    }

    /// The socket of the helper that was given this directory, where another one has the usual one of direct mode.
    pub fn socket_of(&self, directory: &Path) -> PathBuf {
        self.root.join("run").join(socket::name_for(directory))
    }

    /// Every such socket that is there.
    pub fn sockets_of_directories(&self) -> Vec<PathBuf> {
        let run = self.root.join("run");
        let entries = std::fs::read_dir(&run).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| socket::is_of_a_directory(name))
            .collect();
        names.sort_unstable();
        names.into_iter().map(|name| run.join(name)).collect()
    }

    /// BASE itself, for messages.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the records are, for messages.
    pub fn records_path(&self) -> &Path {
        &self.records
    }

    /// Why `XDG_RUNTIME_DIR` was not used although it is set.
    pub fn passed_over(&self) -> Option<&str> {
        self.passed_over.as_deref()
    }

    /// Why the records are not kept in `HOME` although it is set.
    pub fn home_passed_over(&self) -> Option<&str> {
        self.home_passed_over.as_deref()
    }

    /// Makes BASE and a directory in it.
    fn make_in_root(&self, name: &str) -> Result<PrivateDir> {
        if self.uid == Uid::ROOT && self.root.starts_with("/run/cgleaf") {
            make_shared("/run/cgleaf").or_code(Code::Storage)?;
        }
        PrivateDir::open_or_make(&self.root).map_err(storage)?;
        PrivateDir::open_or_make(&self.root.join(name)).map_err(storage)
    }

    /// The directory of the helpers' sockets, made if need be.
    ///
    /// # Errors
    /// STORAGE: it cannot be made, or is not ours alone.
    pub fn run_dir(&self) -> Result<PrivateDir> {
        self.make_in_root("run")
    }

    /// The directory of the records, made if need be.
    ///
    /// # Errors
    /// STORAGE: as for [`Self::run_dir`].
    pub fn records_dir(&self) -> Result<PrivateDir> {
        if self.records.starts_with(&self.root) {
            return self.make_in_root("sessions");
        }
        make_parents(&self.records).map_err(storage)?;
        PrivateDir::open_or_make(&self.records).map_err(storage)
    }

    /// The directory of the names, made if need be.
    ///
    /// # Errors
    /// STORAGE: as for [`Self::run_dir`].
    pub fn names_dir(&self) -> Result<PrivateDir> {
        self.make_in_root("names")
    }
}

#[allow(clippy::needless_pass_by_value)] // it is an error's converter
fn storage(error: IoError) -> Error {
    let path = error.path().display().to_string();
    Error::new(
        Code::Storage,
        format!("{error}; see to it that this directory is yours and can be written"),
    )
    .with("path", path)
}

/// The directory if it exists and belongs to the effective user, else why not.
fn own_directory(path: &std::ffi::OsStr) -> std::result::Result<PathBuf, String> {
    let path = PathBuf::from(path);
    if !path.is_absolute() {
        return Err(format!(
            "XDG_RUNTIME_DIR={} is no absolute path",
            path.display()
        ));
    }
    if path.to_str().is_none() {
        return Err(not_utf8("XDG_RUNTIME_DIR", &path));
    }
    match path.metadata() {
        Err(error) => Err(format!("XDG_RUNTIME_DIR={}: {error}", path.display())),
        Ok(stat) if !stat.is_dir() => Err(format!(
            "XDG_RUNTIME_DIR={} is no directory",
            path.display()
        )),
        Ok(stat) if stat.uid() != Uid::effective().0 => Err(format!(
            "XDG_RUNTIME_DIR={} belongs to uid {}",
            path.display(),
            stat.uid()
        )),
        Ok(_) => Ok(path),
    }
}

/// Records name paths, in JSON.
fn not_utf8(variable: &str, path: &Path) -> String {
    format!("{variable}={} is not UTF-8", path.display())
}

/// What is known of the state directory.
enum State {
    /// Neither variable names one.
    Unknown,
    /// It is there, or can be made.
    Usable(PathBuf),
    /// HOME names one that cannot be made, or either variable one whose path cannot be recorded; why.
    Unusable(String),
}

/// `$XDG_STATE_HOME/cgleaf/<machine-id>-<boot-id>`: a home may be shared by machines, and outlives a boot. Who sets
/// XDG_STATE_HOME wants the records there and nowhere else; HOME is whatever a container manager made of it.
fn state_directory(surroundings: &Surroundings) -> Result<State> {
    let (variable, state) = match (&surroundings.state_home, &surroundings.home) {
        (Some(path), _) if Path::new(path).is_absolute() => ("XDG_STATE_HOME", PathBuf::from(path)),
        (_, Some(home)) => ("HOME", PathBuf::from(home).join(".local/state")),
        _ => return Ok(State::Unknown),
    };
    if state.to_str().is_none() {
        return Ok(State::Unusable(not_utf8(variable, &state)));
    }
    let boot = BootId::current()?;
    let place = format!("{}-{boot}", machine_id());
    let path = state.join("cgleaf").join(place);
    Ok(match can_be_made(&path) {
        Err(why) if variable == "HOME" => State::Unusable(why.to_string()),
        _ => State::Usable(path),
    })
}

/// Whether the directory is there, or the nearest one above it that is there can be written: asked and not tried, since what
/// only looks makes nothing. One that is there stays the place even when nothing can be written any more.
fn can_be_made(path: &Path) -> std::result::Result<(), IoError> {
    for directory in path.ancestors() {
        let wanted = if directory == path {
            AccessFlags::X_OK
        } else {
            AccessFlags::W_OK | AccessFlags::X_OK
        };
        match access(directory, wanted) {
            Err(Errno::ENOENT) => {}
            answer => return answer.context("make something in", directory),
        }
    }
    Err(IoError::new("make something in", path, Errno::ENOENT))
}

/// The machine's id (machine-id(5)), or a constant where a machine has none.
pub fn machine_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        std::fs::read_to_string("/etc/machine-id")
            .ok()
            .map(|text| text.trim().to_owned())
            .filter(|text| text.len() == 32 && text.chars().all(|c| c.is_ascii_hexdigit()))
            .unwrap_or_else(|| "unknown".to_owned())
    })
}

/// A directory that others may look into: the parent of root's own and of the service's.
fn make_shared(path: &str) -> std::result::Result<(), IoError> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    match std::fs::DirBuilder::new().mode(0o755).create(path) {
        // The umask may have taken bits away that users of the service need.
        Ok(()) => std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
            .context("chmod", path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(IoError::new("make the directory", path, error)),
    }
}

fn make_parents(path: &Path) -> std::result::Result<(), IoError> {
    use std::os::unix::fs::DirBuilderExt;
    let parent = path.parent().unwrap_or(path);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(parent)
        .context("make the directory", parent)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn what_json_cannot_name_is_passed_over() {
        let odd = || Some(OsString::from_vec(b"/odd\xff".to_vec()));
        let at = |runtime_dir, state_home, home| {
            let uid = Uid(65_000);
            Base::find(&Surroundings {
                uid,
                runtime_dir,
                state_home,
                home,
            })
            .expect("this boot has an id")
        };
        let records = Path::new("/tmp/cgleaf-65000/sessions");
        let runtime = at(odd(), None, None);
        assert!(
            runtime
                .passed_over()
                .is_some_and(|why| why.contains("is not UTF-8"))
        );
        for base in [runtime, at(None, odd(), None), at(None, None, odd())] {
            assert_eq!(base.records_path(), records);
        }
        let told = at(None, odd(), None);
        assert_eq!(
            told.home_passed_over(),
            Some("XDG_STATE_HOME=/odd\u{fffd} is not UTF-8")
        );
    }
}
