//! The command line, parsed by hand: the helper has no parser among its dependencies.

use std::ffi::OsString;
use std::fmt;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::Duration;

use cgleaf_shared::cgroup::CgroupPath;
use cgleaf_shared::id::{BootId, CgroupId, Uid};
use cgleaf_shared::wire::Mode;

use crate::place::Pattern;

/// What `--help` prints.
pub(crate) const HELP: &str = "\
cgleaf-helper: makes, freezes, kills and removes the cgroup leaves of cgleaf's sessions

usage: cgleaf-helper [serve] --mode MODE [OPTION...]

  --mode MODE             scope, direct, user-service, system-service or node-service
  --socket PATH           bind this socket, with PATH.lock held
  --client-fd N           serve this inherited, connected socket as the first client
  --scope-dir PATH        direct: the cgroup directory for the leaves, as a path in the file system
  --take-over B:R:S:PATH  serve this old scope directory too: boot id, root id, its id, its path
  --container-root P      callers beneath a cgroup of this pattern are served in place
  --uid UID               system-service: whom it serves
  --idle-exit SECONDS     scope and direct: end after so long without a session and a client (30)
  --private               end with the last session and client
  --require-sandbox       fail to start where the sandbox cannot be enforced
  --max-sessions N        sessions for each domain
  --max-clients N         connections for each domain
  --version, --help
";

/// What was asked for.
#[derive(Debug)]
pub(crate) enum Command {
    /// Serve with these options.
    Serve(Box<Options>),
    /// Print the version.
    Version,
    /// Print the help.
    Help,
}

/// The options of `serve`.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) mode: Mode,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) client_fd: Option<RawFd>,
    pub(crate) scope_dir: Option<PathBuf>,
    pub(crate) take_over: Vec<OldScope>,
    pub(crate) container_roots: Vec<Pattern>,
    pub(crate) uid: Option<Uid>,
    pub(crate) idle_exit: Option<Duration>,
    pub(crate) private: bool,
    pub(crate) require_sandbox: bool,
    pub(crate) max_sessions: Option<u32>,
    pub(crate) max_clients: Option<u32>,
    #[cfg_attr(not(feature = "trace"), allow(dead_code))]
    pub(crate) trace: Option<PathBuf>,
}

/// A scope directory that a record names, as `BOOT:ROOTID:SCOPEID:PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OldScope {
    pub(crate) boot: BootId,
    pub(crate) root: CgroupId,
    pub(crate) id: CgroupId,
    pub(crate) path: CgroupPath,
}

/// Why a command line is none of ours.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

fn usage<T>(text: impl Into<String>) -> Result<T, Usage> {
    Err(Usage(text.into()))
}

/// Reads the arguments, without the program's name.
pub(crate) fn parse(args: impl Iterator<Item = OsString>) -> Result<Command, Usage> {
    let mut args = args.peekable();
    args.next_if(|first| first == "serve");
    let mut mode = None;
    let mut options = Options {
        mode: Mode::Scope,
        socket: None,
        client_fd: None,
        scope_dir: None,
        take_over: Vec::new(),
        container_roots: Vec::new(),
        uid: None,
        idle_exit: None,
        private: false,
        require_sandbox: false,
        max_sessions: None,
        max_clients: None,
        trace: None,
    };
    while let Some(arg) = args.next() {
        let Some(name) = arg.to_str() else {
            return usage(format!("{} is no option", arg.to_string_lossy()));
        };
        match name {
            "--help" | "-h" => return Ok(Command::Help),
            "--version" | "-V" => return Ok(Command::Version),
            "--private" => options.private = true,
            "--require-sandbox" => options.require_sandbox = true,
            _ => {
                let Some(value) = args.next() else {
                    return usage(format!("{name} is no option, or lacks its value"));
                };
                set(&mut options, &mut mode, name, value)?;
            }
        }
    }
    let Some(mode) = mode else {
        return usage("--mode is missing");
    };
    options.mode = mode;
    check(options)
}

fn set(
    options: &mut Options,
    mode: &mut Option<Mode>,
    name: &str,
    value: OsString,
) -> Result<(), Usage> {
    match name {
        "--socket" => options.socket = Some(absolute(name, value)?),
        "--scope-dir" => options.scope_dir = Some(absolute(name, value)?),
        #[cfg(feature = "trace")]
        "--trace" => options.trace = Some(absolute(name, value)?),
        _ => {
            let Some(text) = value.to_str() else {
                return usage(format!("{name}: {} is not UTF-8", value.to_string_lossy()));
            };
            set_text(options, mode, name, text)?;
        }
    }
    Ok(())
}

fn set_text(
    options: &mut Options,
    mode: &mut Option<Mode>,
    name: &str,
    text: &str,
) -> Result<(), Usage> {
    let wrong = || Usage(format!("{name}: {text:?} is no value for it"));
    match name {
        "--mode" => *mode = Some(Mode::from_name(text).ok_or_else(wrong)?),
        "--client-fd" => {
            let number: RawFd = text.parse().map_err(|_| wrong())?;
            options.client_fd = Some(number).filter(|number| *number > 2);
            options.client_fd.ok_or_else(wrong)?;
        }
        "--take-over" => options
            .take_over
            .push(OldScope::parse(text).ok_or_else(wrong)?),
        "--container-root" => options
            .container_roots
            .push(Pattern::parse(text).ok_or_else(wrong)?),
        "--uid" => options.uid = Some(Uid(text.parse().map_err(|_| wrong())?)),
        "--idle-exit" => {
            let seconds = text.parse().map_err(|_| wrong())?;
            options.idle_exit = Some(Duration::from_secs(seconds));
        }
        "--max-sessions" => options.max_sessions = Some(text.parse().map_err(|_| wrong())?),
        "--max-clients" => options.max_clients = Some(text.parse().map_err(|_| wrong())?),
        _ => return usage(format!("{name} is no option")),
    }
    Ok(())
}

fn absolute(name: &str, value: OsString) -> Result<PathBuf, Usage> {
    let path = PathBuf::from(value);
    if path.is_absolute() {
        Ok(path)
    } else {
        usage(format!("{name}: {} is no absolute path", path.display()))
    }
}

/// What only goes together with a mode.
fn check(options: Options) -> Result<Command, Usage> {
    let mode = options.mode;
    if options.scope_dir.is_some() && mode != Mode::Direct {
        return usage("--scope-dir belongs to --mode direct");
    }
    if !options.take_over.is_empty() && !matches!(mode, Mode::Direct | Mode::Scope) {
        return usage("--take-over belongs to the modes direct and scope");
    }
    if mode == Mode::SystemService && options.uid.is_none() {
        return usage("--mode system-service needs --uid");
    }
    if mode != Mode::SystemService && options.uid.is_some() {
        return usage("--uid belongs to --mode system-service");
    }
    Ok(Command::Serve(Box::new(options)))
}

impl OldScope {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, ':');
        Some(Self {
            boot: parts.next()?.parse().ok()?,
            root: CgroupId(parts.next()?.parse().ok()?),
            id: CgroupId(parts.next()?.parse().ok()?),
            path: CgroupPath::parse(parts.next()?).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &[&str]) -> Result<Command, Usage> {
        parse(line.iter().map(OsString::from))
    }

    fn served(line: &[&str]) -> Options {
        match parsed(line) {
            Ok(Command::Serve(options)) => *options,
            other => panic!("{line:?} gave {other:?}"),
        }
    }

    #[test]
    fn serve_may_be_said_or_left_out() {
        for line in [
            &["serve", "--mode", "direct", "--socket", "/s"][..],
            &["--mode", "direct", "--socket", "/s"],
        ] {
            let options = served(line);
            assert_eq!(options.mode, Mode::Direct);
            assert_eq!(options.socket, Some(PathBuf::from("/s")));
        }
    }

    #[test]
    fn an_old_scope_is_four_parts_and_its_path_may_hold_a_colon() {
        let boot = "0f0e0d0c-0b0a-0908-0706-050403020100";
        let line = format!("{boot}:1:77:/a/b:c");
        let options = served(&["--mode", "scope", "--take-over", &line]);
        let old = &options.take_over[0];
        assert_eq!((old.root, old.id), (CgroupId(1), CgroupId(77)));
        assert_eq!(old.path.as_str(), "/a/b:c");
        for bad in [
            "",
            "x:1:2:/a",
            &format!("{boot}:1:2:a/b"),
            &format!("{boot}:1:2:/a/../b"),
        ] {
            assert!(
                parsed(&["--mode", "scope", "--take-over", bad]).is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn what_does_not_go_together_is_a_usage_error() {
        for line in [
            &[][..],
            &["--mode", "no-such"],
            &["--mode"],
            &["--mode", "scope", "--scope-dir", "/x"],
            &["--mode", "direct", "--scope-dir", "x"],
            &["--mode", "direct", "--socket", "x"],
            &["--mode", "direct", "--client-fd", "2"],
            &["--mode", "direct", "--client-fd", "-1"],
            &["--mode", "system-service"],
            &["--mode", "direct", "--uid", "5"],
            &["--mode", "direct", "--idle-exit", "soon"],
            &["--mode", "direct", "--container-root", ""],
            &["--mode", "direct", "surplus"],
            &["--mode", "direct", "--surplus", "1"],
        ] {
            assert!(parsed(line).is_err(), "{line:?} was taken");
        }
    }
}
