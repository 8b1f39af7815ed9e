//! The group tier's library as a program, for tests that need processes of their own: it is what `cgleaf run`, `exec`, `destroy`
//! and `gc` do in this tier, without records, names and a command line.
//!
//!     group-host exec FILE MARK PROGRAM ARG…       becomes PROGRAM; its identity goes to FILE
//!     group-host run FILE MARK kill|keep|wait PROGRAM ARG…
//!     group-host start FILE MARK PROGRAM ARG…      as run with keep, in a POSIX session of its own; returns at once
//!     group-host destroy FILE MILLISECONDS name|kill|ignore
//!     group-host destroy-without-freeze FILE MILLISECONDS    by an engine that does not freeze after it saw nobody
//!     group-host gc FILE
//!     group-host continue GROUP                    SIGCONT to that group, again and again, until stdin ends
//!     group-host thread-leader                     a process whose main thread ends while another runs
//!
//! `FILE.end` is made when a monitor has seen the end.

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use cgleaf::group::engine::Destroy;
use cgleaf::group::procfs::ProcfsKernel;
use cgleaf::group::{
    DestroyOptions, Exit, GcVerdict, GroupIdentity, LaunchError, LaunchOptions, Launched,
    Leftovers, MARK_VARIABLE, Outcome, RunEvent, StrayPolicy, destroy, gc_judges_over, launch,
    prepare_exec,
};
use cgleaf_shared::process::Proc;
use cgleaf_tests::sim::mutants::NoFreezeAfterGone;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let (command, rest) = arguments.split_first().expect("a command");
    let done = match command.to_str() {
        Some("exec") => exec(rest),
        Some("run") => run(rest),
        Some("start") => start(rest),
        Some("destroy") => end(rest),
        Some("destroy-without-freeze") => end_without_freeze(rest),
        Some("gc") => gc(rest),
        Some("continue") => keep_continuing(rest),
        Some("thread-leader") => thread_leader(),
        _ => Err("no such command".into()),
    };
    done.unwrap_or_else(|error| {
        eprintln!("group-host: {error}");
        ExitCode::from(125)
    })
}

/// Whole or not at all.
fn write(file: &Path, identity: &GroupIdentity) -> Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, serde_json::to_vec(identity)?)?;
    Ok(fs::rename(new, file)?)
}

fn read(file: &Path) -> Result<GroupIdentity> {
    Ok(serde_json::from_slice(&fs::read(file)?)?)
}

fn end_file(file: &Path) -> PathBuf {
    file.with_extension("end")
}

fn program(mark: &str, command: &[OsString]) -> Command {
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]).env(MARK_VARIABLE, mark);
    program
}

fn exec(arguments: &[OsString]) -> Result<ExitCode> {
    let (file, mark) = (Path::new(&arguments[0]), arguments[1].to_string_lossy());
    write(file, &prepare_exec(&mark)?)?;
    Err(program(&mark, &arguments[2..]).exec().into())
}

fn launched(
    file: &Path,
    mark: &str,
    leftovers: Leftovers,
    own: bool,
    command: &[OsString],
) -> Result<Launched> {
    let options = LaunchOptions {
        mark: mark.to_owned(),
        leftovers,
        grace: None,
        die_with_frontend: false,
        own_posix_session: own,
    };
    let mut command = program(mark, command);
    let launched = launch(&options, || command.exec(), &mut |exit| {
        let _ = fs::write(end_file(file), format!("{exit:?}"));
    })?;
    write(file, launched.identity())?;
    Ok(launched)
}

fn run(arguments: &[OsString]) -> Result<ExitCode> {
    let (file, mark) = (Path::new(&arguments[0]), arguments[1].to_string_lossy());
    let leftovers = match arguments[2].to_str() {
        Some("keep") => Leftovers::Keep,
        Some("wait") => Leftovers::Wait,
        _ => Leftovers::Kill,
    };
    let running = match launched(file, &mark, leftovers, false, &arguments[3..])?.go() {
        Ok(running) => running,
        Err(LaunchError::NotExecuted(error)) => {
            let missing = error.kind() == std::io::ErrorKind::NotFound;
            return Ok(ExitCode::from(if missing { 127 } else { 126 }));
        }
        Err(error) => return Err(error.into()),
    };
    let mut code = None;
    loop {
        match running.next_event(true)? {
            Some(RunEvent::LeaderEnded(exit)) => {
                code = Some(match exit {
                    Exit::Code(code) => code,
                    Exit::Signal(signal) => 128 + signal,
                });
                if leftovers == Leftovers::Keep {
                    break;
                }
            }
            Some(RunEvent::AllEnded { .. } | RunEvent::GaveUp | RunEvent::MonitorGone) => break,
            _ => {}
        }
    }
    Ok(ExitCode::from(u8::try_from(code.unwrap_or(125))?))
}

fn start(arguments: &[OsString]) -> Result<ExitCode> {
    let (file, mark) = (Path::new(&arguments[0]), arguments[1].to_string_lossy());
    launched(file, &mark, Leftovers::Keep, true, &arguments[2..])?.go()?;
    Ok(ExitCode::SUCCESS)
}

fn end(arguments: &[OsString]) -> Result<ExitCode> {
    let file = Path::new(&arguments[0]);
    let ended = || end_file(file).exists();
    let options = DestroyOptions {
        timeout: Duration::from_millis(arguments[1].to_string_lossy().parse()?),
        grace: None,
        strays: match arguments[2].to_str() {
            Some("kill") => StrayPolicy::Kill,
            Some("ignore") => StrayPolicy::Ignore,
            _ => StrayPolicy::Name,
        },
        end_recorded: &ended,
    };
    let report = destroy(&read(file)?, &options)?;
    let named: Vec<i32> = report
        .strays
        .iter()
        .chain(&report.alive)
        .map(|member| member.id.pid.get())
        .collect();
    let (code, why) = match report.outcome {
        Outcome::Ended if report.strays.is_empty() => (0, "ended".to_owned()),
        Outcome::Ended => (5, "strays".to_owned()),
        Outcome::Partial(why) => (5, why),
        Outcome::Refused(why) => (7, why),
    };
    println!("{why} {named:?}");
    Ok(ExitCode::from(code))
}

/// What the conformance test must notice.
fn end_without_freeze(arguments: &[OsString]) -> Result<ExitCode> {
    let timeout = Duration::from_millis(arguments[1].to_string_lossy().parse()?);
    let identity = read(Path::new(&arguments[0]))?;
    let proc = Proc::system()?;
    let mut kernel = ProcfsKernel::new(&proc, &identity, timeout).ok_or("no group")?;
    let answer = Destroy::<NoFreezeAfterGone>::default().run(&mut kernel);
    println!("{answer:?}");
    Ok(ExitCode::SUCCESS)
}

fn gc(arguments: &[OsString]) -> Result<ExitCode> {
    let file = Path::new(&arguments[0]);
    let verdict = gc_judges_over(&read(file)?, &|| false, &|| end_file(file).exists())?;
    match verdict {
        GcVerdict::Over => println!("over"),
        GcVerdict::Kept(why) => println!("kept: {why}"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Whoever reads standard input has it end with the test.
fn keep_continuing(arguments: &[OsString]) -> Result<ExitCode> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sys::signal::{Signal, killpg};
    use std::os::fd::AsFd;

    let group = nix::unistd::Pid::from_raw(arguments[0].to_string_lossy().parse()?);
    let input = std::io::stdin();
    loop {
        for _ in 0..64 {
            let _ = killpg(group, Signal::SIGCONT);
        }
        let mut polled = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        if poll(&mut polled, PollTimeout::ZERO)? > 0 {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

fn thread_leader() -> Result<ExitCode> {
    std::thread::spawn(|| std::thread::sleep(Duration::from_secs(120)));
    cgleaf_tests::sys::end_this_thread()
}
