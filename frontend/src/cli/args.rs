//! The command line's definition: `--help`, the man pages and the completions are made from it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use cgleaf_shared::id::{SessionId, SessionName};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

/// Run programs so that everything they start can be listed, frozen and ended, and be sure of it.
#[derive(Debug, Parser)]
#[command(
    name = "cgleaf",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
pub struct Cli {
    /// What holds for every command.
    #[command(flatten)]
    pub global: Global,
    /// Which command.
    #[command(subcommand)]
    pub command: Command,
}

/// The definition as a clap command, for generating what is made from it.
pub fn command() -> clap::Command {
    Cli::command()
}

/// What holds for every command.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)
    #[arg(long, global = true)]
    pub json: bool,
    /// Say nothing but errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Say on stderr what is done, each kernel operation
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Ask the helper at this socket and no other
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]
    #[arg(long, global = true, value_name = "DIR")]
    pub scope_dir: Option<PathBuf>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program in a session of its own and answer with its exit status
    Run(Run),
    /// Enrol this process and become the program: same pid, no process of ours stays behind
    Exec(Exec),
    /// Start a program detached and print the session's id
    Start(Start),
    /// List the sessions
    #[command(visible_alias = "ls")]
    List(List),
    /// Show what the sessions use, live on a terminal
    Top(Top),
    /// Show one session
    Show(One),
    /// List a session's processes
    Ps(One),
    /// Wait for a session's end and answer with the program's exit status where it is known
    Wait(Wait),
    /// Print what a started program wrote
    Logs(Logs),
    /// Freeze a session: every process of it stands still until it is thawed
    Freeze(Freeze),
    /// Thaw a frozen session
    Thaw(One),
    /// Send a signal to every process of a session, and miss none
    Signal(Signal),
    /// End everything that sessions started, and prove it
    Destroy(Destroy),
    /// Take away the records of sessions that are proven over
    Gc(Gc),
    /// Take a running process and what it started into a session
    Adopt(Adopt),
    /// Say what cgleaf can do here, and what would raise it
    Doctor,
    /// The helper: serve, status, stop
    Helper(Helper),
    /// Print the completions for a shell
    Completions(Completions),
}

/// Whether a word is the name of a command that starts a program.
pub(super) fn is_launch(word: &str) -> bool {
    matches!(word, "run" | "exec" | "start")
}

/// Whether a command's stdout is the program's, and not for an answer.
pub(super) fn gives_stdout_away(word: &str) -> bool {
    matches!(word, "run" | "exec")
}

impl Command {
    /// The command's name, as it stands in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Run(_) => "run",
            Self::Exec(_) => "exec",
            Self::Start(_) => "start",
            Self::List(_) => "list",
            Self::Top(_) => "top",
            Self::Show(_) => "show",
            Self::Ps(_) => "ps",
            Self::Wait(_) => "wait",
            Self::Logs(_) => "logs",
            Self::Freeze(_) => "freeze",
            Self::Thaw(_) => "thaw",
            Self::Signal(_) => "signal",
            Self::Destroy(_) => "destroy",
            Self::Gc(_) => "gc",
            Self::Adopt(_) => "adopt",
            Self::Doctor => "doctor",
            Self::Helper(_) => "helper",
            Self::Completions(_) => "completions",
        }
    }

    /// Whether it starts a program: its own failures are 125 then.
    pub fn launches(&self) -> bool {
        is_launch(self.name())
    }
}

/// Common to run, exec and start.
#[derive(Debug, Clone, Args)]
pub struct Launch {
    /// The session's id, chosen by the caller: 1 to 64 of [A-Za-z0-9._-], no leading dot or dash
    #[arg(long, value_name = "ID")]
    pub session: Option<SessionId>,
    /// A name, unique among living sessions
    #[arg(long, value_name = "NAME")]
    pub name: Option<SessionName>,
    /// Put the session inside this one, by id or name
    #[arg(long, value_name = "SESSION")]
    pub parent: Option<String>,
    /// How the session is to be kept
    #[arg(long, value_enum, default_value_t = TierChoice::Auto)]
    pub tier: TierChoice,
    /// Write one JSON line to this descriptor when the session is enrolled or refused
    #[arg(long, value_name = "FD")]
    pub status_fd: Option<i32>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// Which tier is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TierChoice {
    /// A leaf where one can be had, else the group tier with a notice
    Auto,
    /// A leaf, or nothing is started
    Cgroup,
    /// Processes, proven as far as that goes
    Group,
}

/// What happens to the rest of a session when its leader ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Leftovers {
    /// They are ended; one line on stderr says so
    Kill,
    /// They go on; the session's id is printed
    Keep,
    /// They are waited for
    Wait,
}

/// `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// What to do with processes that outlive the program
    #[arg(long, value_enum, default_value_t = Leftovers::Kill)]
    pub leftovers: Leftovers,
    /// Send SIGTERM first and wait this long before what is left is killed
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub grace: Option<Duration>,
    /// End the session after this time; the exit status is then 124
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub timeout: Option<Duration>,
    /// End the session when cgleaf itself ends, however that happens
    #[arg(long)]
    pub die_with_frontend: bool,
    /// What is common to run, exec and start.
    #[command(flatten)]
    pub launch: Launch,
}

/// `exec`.
#[derive(Debug, Args)]
pub struct Exec {
    /// What is common to run, exec and start.
    #[command(flatten)]
    pub launch: Launch,
}

/// `start`.
#[derive(Debug, Args)]
pub struct Start {
    /// Where the program's output goes; by default beside the session's record
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// What is common to run, exec and start.
    #[command(flatten)]
    pub launch: Launch,
}

/// `list`.
#[derive(Debug, Args)]
pub struct List {
    /// Also show sessions that are over
    #[arg(short, long)]
    pub all: bool,
}

/// `top`.
#[derive(Debug, Args)]
pub struct Top {
    /// How long to look before showing what was used meanwhile
    #[arg(short, long, value_parser = duration, value_name = "TIME", default_value = "1s")]
    pub interval: Duration,
    /// Show so many tables, one below the other, and end; 1 where stdout is no terminal
    #[arg(short = 'n', long, value_name = "N")]
    pub count: Option<u32>,
}

/// Commands that take one session.
#[derive(Debug, Args)]
pub struct One {
    /// A session's id or name
    #[arg(value_name = "SESSION")]
    pub session: String,
}

/// `wait`.
#[derive(Debug, Args)]
pub struct Wait {
    /// A session's id or name
    #[arg(value_name = "SESSION")]
    pub session: String,
    /// Give up after this time
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub timeout: Option<Duration>,
}

/// `logs`.
#[derive(Debug, Args)]
pub struct Logs {
    /// A session's id or name
    #[arg(value_name = "SESSION")]
    pub session: String,
    /// Go on until the session has ended
    #[arg(short, long)]
    pub follow: bool,
}

/// `freeze`.
#[derive(Debug, Args)]
pub struct Freeze {
    /// A session's id or name
    #[arg(value_name = "SESSION")]
    pub session: String,
    /// Hold it frozen for this time, then thaw it; it is thawed too if cgleaf is killed meanwhile
    #[arg(long = "for", value_parser = duration, value_name = "TIME")]
    pub time: Option<Duration>,
}

/// `signal`.
#[derive(Debug, Args)]
pub struct Signal {
    /// A session's id or name
    #[arg(value_name = "SESSION")]
    pub session: String,
    /// A signal's name or number: TERM, SIGTERM, 15
    #[arg(value_name = "SIGNAL", value_parser = signal)]
    pub signal: i32,
}

/// How processes that left the leaf are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Strays {
    /// They are named, and the answer is 5
    Name,
    /// Those tied to a member by parentage are ended too
    Kill,
    /// They are not looked for
    Ignore,
}

/// `destroy`.
#[derive(Debug, Args)]
pub struct Destroy {
    /// Sessions, by id or name
    #[arg(required = true, value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// Send SIGTERM first and wait this long before what is left is killed
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub grace: Option<Duration>,
    /// Give up waiting for the end after this time
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "10s")]
    pub timeout: Duration,
    /// That there is no such session, or that it is over, is fine; its id will then not start any more
    #[arg(long)]
    pub if_exists: bool,
    /// What to do about processes that left the leaf
    #[arg(long, value_enum, default_value_t = Strays::Name)]
    pub strays: Strays,
}

/// `gc`.
#[derive(Debug, Args)]
pub struct Gc {
    /// Say what would be removed and remove nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// `adopt`.
#[derive(Debug, Args)]
pub struct Adopt {
    /// The session's name
    #[arg(long, value_name = "NAME")]
    pub name: SessionName,
    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(2..))]
    pub pid: i32,
}

/// `helper`.
#[derive(Debug, Args)]
pub struct Helper {
    /// What to do.
    #[command(subcommand)]
    pub action: HelperAction,
}

/// What `helper` does.
#[derive(Debug, Subcommand)]
pub enum HelperAction {
    /// Be the helper; the arguments are cgleaf-helper's own
    #[command(disable_help_flag = true)]
    Serve {
        /// cgleaf-helper's arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Show the helpers that answer
    Status,
    /// End the helper, if it has no session
    Stop,
}

/// `completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// Which shell
    pub shell: clap_complete::Shell,
}

/// A time such as `500ms`, `2s`, `1.5m`, `1h30m`; a bare number is seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let refuse = || format!("{text:?} is no time; try 500ms, 2s, 1.5m, 1h30m");
    let is_number = text.parse::<f64>().is_ok() && text.ends_with(|c: char| c.is_ascii_digit());
    let with_unit = if is_number {
        format!("{text}s")
    } else {
        text.to_owned()
    };
    with_unit
        .parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|time| Duration::try_from(time).ok())
        .ok_or_else(refuse)
}

/// A signal's number, from its name with or without SIG, or from a number.
pub(super) fn signal(text: &str) -> Result<i32, String> {
    let refuse = || format!("{text:?} is no signal; try TERM, HUP, INT, KILL or a number");
    if let Ok(number) = text.parse::<i32>() {
        return if (1..=libc::SIGRTMAX()).contains(&number) {
            Ok(number)
        } else {
            Err(refuse())
        };
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    format!("SIG{name}")
        .parse::<nix::sys::signal::Signal>()
        .map(|signal| signal as i32)
        .map_err(|_| refuse())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_holds_together() {
        command().debug_assert();
    }

    #[test]
    fn times_and_signals_are_read_as_people_write_them() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("2"), Ok(Duration::from_secs(2)));
        assert_eq!(duration("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        for bad in [
            "",
            "s",
            "-1",
            "-1s",
            "1x",
            "1e9",
            "inf",
            "99999999999999999999999h",
        ] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
        for text in ["TERM", "SIGTERM", "sigterm", "15"] {
            assert_eq!(signal(text), Ok(15));
        }
        for bad in ["0", "-9", "FOO", "99", ""] {
            assert!(signal(bad).is_err(), "{bad:?}");
        }
    }
}
