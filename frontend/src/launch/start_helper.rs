//! Starting a helper: in a transient scope of a service manager, or directly (DESIGN 3.1).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use cgleaf_shared::cgroup::own_path;
use cgleaf_shared::id::{Nonce, Uid};
use cgleaf_shared::wire::Mode;

use super::clean;
use super::last_words::Words;
use super::machine::{is_in_a_sandbox, systemd_is_init, tool, user_runtime_directory};
use super::program::{c_string, c_strings};
use super::{Site, lone_sockets, take_over};
use crate::base::Base;
use crate::client::Client;
use crate::error::{Code, Error, OrCode, Result};
use crate::operations;
use crate::sys::Image;

/// What a helper that lost the race for the socket says.
pub(super) const ANOTHER_HAS_IT: &str = "another helper has";

/// What our transient scopes are called: this, something random, and the suffix.
const SCOPE_PREFIX: &str = "cgleaf-helper-";
const SCOPE_SUFFIX: &str = ".scope";

/// Whether that is the name of a scope that a helper was started in.
pub(super) fn is_scope_unit(name: &str) -> bool {
    name.starts_with(SCOPE_PREFIX) && name.ends_with(SCOPE_SUFFIX)
}

const PATH_OF_TOOLS: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How a helper is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    /// In a transient scope.
    Scope {
        /// Whose manager makes it.
        manager: Manager,
        /// The path of systemd-run.
        systemd_run: PathBuf,
        /// Whether to ask for `OOMPolicy=continue`, which systemd refuses for scopes up to 247.
        oom_policy: bool,
    },
    /// As it is, in a directory that it is given, or that it makes beneath its own cgroup.
    Direct {
        /// That directory.
        scope_dir: Option<PathBuf>,
    },
}

/// A service manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manager {
    /// The user's.
    User,
    /// PID 1.
    System,
}

impl Way {
    /// How one can be started here.
    ///
    /// # Errors
    /// UNSUPPORTED: systemd runs here and has no manager for this user, or no systemd-run.
    pub(super) fn here(site: &Site<'_>) -> Result<Self> {
        if let Some(directory) = site.scope_dir {
            return Ok(Self::Direct {
                scope_dir: Some(std::path::absolute(directory).or_code(Code::Usage)?),
            });
        }
        if !systemd_is_init() {
            return Ok(Self::Direct { scope_dir: None });
        }
        let manager = if Uid::effective() == Uid::ROOT {
            Manager::System
        } else {
            Manager::User
        };
        if manager == Manager::User && user_runtime_directory().is_none() {
            return Err(Error::new(Code::Unsupported, no_user_manager()));
        }
        Ok(Self::Scope {
            manager,
            systemd_run: tool("systemd-run")?,
            oom_policy: true,
        })
    }

    /// The socket that such a helper binds.
    pub(super) fn socket(&self, base: &Base) -> PathBuf {
        base.socket(self.mode())
    }

    /// The directory that it is given.
    fn directory(&self) -> Option<&Path> {
        match self {
            Self::Direct { scope_dir } => scope_dir.as_deref(),
            Self::Scope { .. } => None,
        }
    }

    fn mode(&self) -> Mode {
        match self {
            Self::Scope { .. } => Mode::Scope,
            Self::Direct { .. } => Mode::Direct,
        }
    }

    /// Whether it asks for something that an old systemd refuses.
    pub(super) fn asks_for_oom_policy(&self) -> bool {
        matches!(
            self,
            Self::Scope {
                oom_policy: true,
                ..
            }
        )
    }

    /// The same without that.
    pub(super) fn without_oom_policy(&self) -> Self {
        match self.clone() {
            Self::Scope {
                manager,
                systemd_run,
                ..
            } => Self::Scope {
                manager,
                systemd_run,
                oom_policy: false,
            },
            direct @ Self::Direct { .. } => direct,
        }
    }

    /// For messages: what was tried.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Scope {
                manager: Manager::User,
                ..
            } => "start a helper by systemd-run --user --scope".to_owned(),
            Self::Scope { .. } => "start a helper by systemd-run --scope".to_owned(),
            Self::Direct {
                scope_dir: Some(directory),
            } => format!("start a helper in {}", directory.display()),
            Self::Direct { scope_dir: None } => {
                "start a helper in a cgroup beneath this one".to_owned()
            }
        }
    }

    /// The words that come before the helper's own.
    fn wrapper(&self) -> Result<Vec<OsString>> {
        let Self::Scope {
            manager,
            systemd_run,
            oom_policy,
        } = self
        else {
            return Ok(Vec::new());
        };
        let mut words: Vec<OsString> = vec![systemd_run.into()];
        match manager {
            Manager::User => words.push("--user".into()),
            Manager::System => words.push("--slice=system.slice".into()),
        }
        let random = Nonce::generate()?.to_string();
        words.extend(
            [
                "--scope",
                "--quiet",
                "--collect",
                "--description=cgleaf's helper and its sessions",
                "--property=Delegate=yes",
                "--property=TasksMax=infinity",
            ]
            .map(OsString::from),
        );
        if *oom_policy {
            words.push("--property=OOMPolicy=continue".into());
        }
        words.push(format!("--unit={SCOPE_PREFIX}{}{SCOPE_SUFFIX}", &random[..12]).into());
        words.push("--".into());
        Ok(words)
    }

    fn environment(&self) -> Vec<OsString> {
        let mut environment = Vec::new();
        let mut give = |name: &str, value: OsString| {
            let mut entry = OsString::from(name);
            entry.push("=");
            entry.push(value);
            environment.push(entry);
        };
        let path = std::env::var_os("PATH").filter(|_| Uid::effective() != Uid::ROOT);
        give("PATH", path.unwrap_or_else(|| PATH_OF_TOOLS.into()));
        if let Self::Scope {
            manager: Manager::User,
            ..
        } = self
        {
            if let Some(directory) = user_runtime_directory() {
                give("XDG_RUNTIME_DIR", directory.into());
            }
            if let Some(bus) = std::env::var_os("DBUS_SESSION_BUS_ADDRESS") {
                give("DBUS_SESSION_BUS_ADDRESS", bus);
            }
        }
        environment
    }
}

/// A service's user need not be one who can log in, and his manager could not move him out of there.
fn no_user_manager() -> String {
    let none = format!(
        "there is no user manager here (none answers at /run/user/{}/systemd/private)",
        Uid::effective()
    );
    match own_path().ok().and_then(|own| own.service()) {
        Some(service) => format!("{none}, and this process is in {service}"),
        None => format!("{none}: log in through PAM, or run `loginctl enable-linger`"),
    }
}

/// A helper that was started and has not answered yet.
#[derive(Debug)]
pub(super) struct New {
    client: Client,
    words: Words,
}

impl New {
    /// The connection to it, and what it, or systemd-run, writes on stderr.
    pub(super) fn into_parts(self) -> (Client, Words) {
        (self.client, self.words)
    }
}

/// Starts one that binds that socket, with this process as its first client.
///
/// # Errors
/// STORAGE: its socket's directory cannot be made. INTERNAL: a process or socket cannot be made.
pub(super) fn start(site: &Site<'_>, way: &Way, socket: &Path) -> Result<New> {
    let private = is_in_a_sandbox();
    let run_dir = site.base.run_dir()?;
    let socket = if private {
        // Nobody finds it by its place: it is made of this caller's sandbox, and so serves this caller's session alone.
        let random = Nonce::generate()?.to_string();
        run_dir.path().join(lone_sockets::name(&random[..12]))
    } else {
        socket.to_path_buf()
    };
    if socket != way.socket(site.base) {
        lone_sockets::sweep(run_dir.path());
    }
    let mut words = way.wrapper()?;
    let program = helper_program()?;
    let shown_program = program[0].to_string_lossy().into_owned();
    words.extend(program);
    words.extend(helper_arguments(site, way, &socket, private));
    operations::tell(|| format!("fork(2) and execve(2): {}", shown(&words)));
    let image = image(words, way.environment())?;
    let started = clean::start(&image)?;
    Ok(New {
        client: Client::from_socket(started.socket, socket),
        words: Words::new(started.stderr, shown_program),
    })
}

fn helper_arguments(site: &Site<'_>, way: &Way, socket: &Path, private: bool) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![
        "--mode".into(),
        way.mode().name().into(),
        "--socket".into(),
        socket.into(),
        "--client-fd".into(),
        clean::SOCKET_NUMBER.to_string().into(),
    ];
    if let Way::Direct {
        scope_dir: Some(directory),
    } = way
    {
        words.extend(["--scope-dir".into(), directory.into()]);
    }
    if private {
        words.push("--private".into());
    }
    let mut old = take_over::scopes(site.base, socket, way.directory());
    if matches!(way, Way::Scope { .. }) && !private {
        old.extend(take_over::stranded());
    }
    old.sort_unstable();
    old.dedup();
    for scope in old {
        words.extend(["--take-over".into(), scope.into()]);
    }
    #[cfg(feature = "trace")]
    if let Some(path) = crate::trace::path() {
        words.extend(["--trace".into(), path.into()]);
    }
    words
}

fn shown(words: &[OsString]) -> String {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

fn image(words: Vec<OsString>, environment: Vec<OsString>) -> Result<Image> {
    let path = c_string(words.first().cloned().unwrap_or_default())?;
    Ok(Image::new(path, c_strings(words)?, c_strings(environment)?))
}

/// Whether this program is `cgleaf`, and so can be run as `cgleaf helper serve`.
static CAN_SERVE: AtomicBool = AtomicBool::new(false);

/// Says that this program is `cgleaf`: where no `cgleaf-helper` is installed, it is the helper itself. A program that embeds
/// the library is not.
pub fn this_program_can_serve() {
    CAN_SERVE.store(true, Ordering::Relaxed);
}

/// The helper beside this program, else in libexec, else this program itself.
fn helper_program() -> Result<Vec<OsString>> {
    let own = std::env::current_exe()
        .or_code(Code::Internal)
        .map_err(|error| error.while_doing("find this program's own file"))?;
    let beside = own
        .parent()
        .map(|directory| directory.join("cgleaf-helper"));
    let libexec = own
        .parent()
        .and_then(Path::parent)
        .map(|prefix| prefix.join("libexec/cgleaf-helper"));
    let installed = [
        beside,
        libexec,
        Some(PathBuf::from("/usr/libexec/cgleaf-helper")),
        Some(PathBuf::from("/usr/lib/cgleaf/cgleaf-helper")),
    ];
    for candidate in installed.into_iter().flatten() {
        if candidate.is_file() {
            return Ok(vec![candidate.into()]);
        }
    }
    if !CAN_SERVE.load(Ordering::Relaxed) {
        return Err(Error::new(
            Code::Unsupported,
            "there is no program cgleaf-helper: not beside this one, not in libexec; install it",
        ));
    }
    let ourselves = if own.exists() {
        own
    } else {
        // Replaced while it runs: this process lives until the helper has answered, and so does this name.
        PathBuf::from(format!("/proc/{}/exe", std::process::id()))
    };
    Ok(vec![ourselves.into(), "helper".into(), "serve".into()])
}
