//! Starts a program beneath a monitor. The program waits, between its fork and its execution, until its record is
//! written: none starts without one.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use cgleaf_shared::process::{Pid, Proc, ReadError};
use nix::fcntl::OFlag;
use nix::sys::prctl::{set_child_subreaper, set_name};
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use nix::sys::wait::waitpid;
use nix::unistd::{chdir, dup2_stderr, dup2_stdin, dup2_stdout, pipe2, setsid};

use super::channel::{Channel, Order, Received, Report};
use super::identity::{GroupIdentity, Leader};
use super::monitor::{Exit, Leftovers, Monitor, NAME, OnEnd, signal_fd};
use crate::sys::{self, Disposition, Forked};

/// How a program is started.
#[derive(Clone, Debug)]
pub struct LaunchOptions {
    /// The session's mark: the caller puts it in the program's environment too.
    pub mark: String,
    /// What becomes of what the leader leaves behind.
    pub leftovers: Leftovers,
    /// How long what the leader leaves behind has between SIGTERM and SIGKILL, where it is ended.
    pub grace: Option<Duration>,
    /// Ends everything when the caller ends.
    pub die_with_frontend: bool,
    /// A POSIX session of its own (`start`); without it the program shares the caller's terminal and group (`run`).
    pub own_posix_session: bool,
}

/// Why a program was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A system call on the way failed.
    #[error("cannot start the session's monitor: {operation}: {source}")]
    Failed {
        /// Which one.
        operation: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The program could not be identified for its record.
    #[error("cannot record the program's process: {0}")]
    NotRecorded(#[from] ReadError),
    /// The program could not be executed.
    #[error("{0}")]
    NotExecuted(io::Error),
    /// The monitor ended before the program was executed.
    #[error("the session's monitor ended before the program was executed")]
    MonitorEnded,
}

fn failed(operation: &'static str) -> impl Fn(io::Error) -> LaunchError {
    move |source| LaunchError::Failed { operation, source }
}

/// A program that is forked and waits. Dropped, it ends without having been executed.
#[derive(Debug)]
pub struct Launched {
    channel: Channel,
    monitor: Pid,
    identity: GroupIdentity,
}

/// A program that runs beneath its monitor. Dropped, both go on (unless `die_with_frontend` was asked for).
#[derive(Debug)]
pub struct Running {
    channel: Channel,
    monitor: Pid,
}

/// What happens to a running program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEvent {
    /// The leader was stopped by this signal.
    Stopped(i32),
    /// The leader goes on.
    Continued,
    /// The leader has ended. What it left is treated as was asked for.
    LeaderEnded(Exit),
    /// Nothing of the session is left.
    AllEnded {
        /// How many processes outlived the leader and were ended for that ([`Leftovers::Kill`]).
        killed: usize,
    },
    /// Something could not be ended: it is a member still, and the monitor stays with it.
    GaveUp,
    /// The monitor has gone without a word: somebody killed it.
    MonitorGone,
}

/// Forks a monitor, and beneath it the process that `become_program` will execute the program in (it returns only the
/// error). `on_end` is called in the monitor when nothing of the session is left.
///
/// The calling process has one thread (fork(2)).
///
/// # Errors
/// See [`LaunchError`]; nothing is left behind then.
pub fn launch(
    options: &LaunchOptions,
    become_program: impl FnOnce() -> io::Error,
    on_end: &mut OnEnd<'_>,
) -> Result<Launched, LaunchError> {
    let proc = Proc::system()?;
    let (ours, theirs) = Channel::pair().map_err(failed("socketpair"))?;
    // Ignored, the kernel would reap children by itself, and no status were ever to be had (wait(2)).
    let sigchld = sys::disposition(libc::SIGCHLD);
    sys::set_disposition(libc::SIGCHLD, Disposition::Default);
    let monitor = match sys::fork().map_err(failed("fork"))? {
        Forked::Child => {
            drop(ours);
            monitor_main(options, theirs, sigchld, become_program, on_end);
            sys::exit_now(0)
        }
        Forked::Parent(monitor) => monitor,
    };
    drop(theirs);
    match ours.next_report(true).map_err(failed("recv"))? {
        Received::Message(Report::Ready(program)) => {
            let program = Pid::new(program).ok_or(LaunchError::MonitorEnded)?;
            let identity = record(&proc, options, program, monitor)?;
            Ok(Launched {
                channel: ours,
                monitor,
                identity,
            })
        }
        Received::Message(Report::NotExecuted(errno)) => {
            reap(monitor);
            Err(LaunchError::Failed {
                operation: "fork",
                source: io::Error::from_raw_os_error(errno),
            })
        }
        _ => {
            reap(monitor);
            Err(LaunchError::MonitorEnded)
        }
    }
}

fn record(
    proc: &Proc,
    options: &LaunchOptions,
    program: Pid,
    monitor: Pid,
) -> Result<GroupIdentity, ReadError> {
    // In a /proc of another pid namespace these numbers are others'.
    let shown = |pid| proc.is_own().then(|| proc.process(pid).ok()).flatten();
    let monitor = shown(monitor)
        .and_then(|process| process.stat().ok())
        .map(|stat| stat.id);
    GroupIdentity::record(
        proc,
        Leader::child(program),
        shown(program),
        &options.mark,
        monitor,
    )
}

impl Launched {
    /// What is to be recorded before the program is executed.
    #[must_use]
    pub fn identity(&self) -> &GroupIdentity {
        &self.identity
    }

    /// Executes the program.
    ///
    /// # Errors
    /// [`LaunchError::NotExecuted`] with execve's answer.
    pub fn go(self) -> Result<Running, LaunchError> {
        self.channel.order(Order::Go).map_err(failed("send"))?;
        match self.channel.next_report(true).map_err(failed("recv"))? {
            Received::Message(Report::Executed) => Ok(Running {
                channel: self.channel,
                monitor: self.monitor,
            }),
            Received::Message(Report::NotExecuted(errno)) => {
                reap(self.monitor);
                Err(LaunchError::NotExecuted(io::Error::from_raw_os_error(
                    errno,
                )))
            }
            _ => Err(LaunchError::MonitorEnded),
        }
    }
}

impl Running {
    /// The next event; with `wait`, once there is one. Poll the descriptor ([`AsFd`]) to wait for other things too.
    ///
    /// # Errors
    /// What recv(2) answers.
    pub fn next_event(&self, wait: bool) -> io::Result<Option<RunEvent>> {
        loop {
            return Ok(Some(match self.channel.next_report(wait)? {
                Received::Message(Report::Stopped(signal)) => RunEvent::Stopped(signal),
                Received::Message(Report::Continued) => RunEvent::Continued,
                Received::Message(Report::Exited(code)) => RunEvent::LeaderEnded(Exit::Code(code)),
                Received::Message(Report::Signalled(signal)) => {
                    RunEvent::LeaderEnded(Exit::Signal(signal))
                }
                Received::Message(Report::AllEnded(killed)) => RunEvent::AllEnded {
                    killed: usize::try_from(killed).unwrap_or(0),
                },
                Received::Message(Report::GaveUp) => RunEvent::GaveUp,
                Received::Message(Report::Ready(_) | Report::Executed | Report::NotExecuted(_)) => {
                    continue;
                }
                Received::Nothing => return Ok(None),
                Received::Closed => RunEvent::MonitorGone,
            }));
        }
    }

    /// Who keeps the session.
    #[must_use]
    pub fn monitor(&self) -> Pid {
        self.monitor
    }

    /// Sends a signal to the leader.
    ///
    /// # Errors
    /// If the monitor has gone.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        self.channel.order(Order::Signal(signal))
    }

    /// Ends everything, with SIGTERM first where it is given time: [`RunEvent::AllEnded`] follows, or [`RunEvent::GaveUp`].
    ///
    /// # Errors
    /// If the monitor has gone.
    pub fn end_all(&self, grace: Option<Duration>) -> io::Result<()> {
        let milliseconds = grace.unwrap_or_default().as_millis();
        let milliseconds = i32::try_from(milliseconds).unwrap_or(i32::MAX);
        self.channel.order(Order::End(milliseconds))
    }

    /// After [`RunEvent::AllEnded`]: reaps the monitor itself.
    pub fn finish(self) {
        reap(self.monitor);
    }
}

impl AsFd for Running {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// In the monitor's process.
fn monitor_main(
    options: &LaunchOptions,
    channel: Channel,
    sigchld: Disposition,
    become_program: impl FnOnce() -> io::Error,
    on_end: &mut OnEnd<'_>,
) {
    let _ = set_child_subreaper(true);
    let former_mask = block_everything();
    let prepared = signal_fd().and_then(|signals| Ok((signals, Gate::new()?, Gate::new()?)));
    let (signals, go, executed) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            return channel.report(Report::NotExecuted(
                error.raw_os_error().unwrap_or(libc::EIO),
            ));
        }
    };
    match sys::fork() {
        Err(error) => channel.report(Report::NotExecuted(
            error.raw_os_error().unwrap_or(libc::EIO),
        )),
        Ok(Forked::Child) => {
            drop((channel, signals));
            let restore = Restore {
                mask: former_mask,
                sigchld,
            };
            program_main(options, go, executed, &restore, become_program)
        }
        Ok(Forked::Parent(program)) => {
            drop((go.reader, executed.writer));
            let (go, mut executed) = (File::from(go.writer), File::from(executed.reader));
            detach(&[
                channel.as_fd(),
                signals.as_fd(),
                go.as_fd(),
                executed.as_fd(),
            ]);
            // Its POSIX session is what it will be, and can be recorded.
            if executed.read_exact(&mut [0]).is_ok() {
                channel.report(Report::Ready(program.get()));
            }
            if !give_way(&channel, go, executed) {
                // It was not executed: it ends by itself, and there is nothing to be recorded.
                reap(program);
                return;
            }
            let monitor = Monitor {
                program,
                channel: Some(channel),
                signals,
                leftovers: options.leftovers,
                grace: options.grace,
                until: None,
                outlived: false,
                die_with_frontend: options.die_with_frontend,
                exit: None,
                ended: HashSet::new(),
                on_end,
            };
            monitor.run();
        }
    }
}

/// Waits for the word to go on, and for the execution; `false` if there was none.
fn give_way(channel: &Channel, mut go: File, mut executed: File) -> bool {
    if !matches!(
        channel.next_order_waiting(),
        Ok(Received::Message(Order::Go))
    ) {
        return false;
    }
    if go.write_all(&[1]).is_err() {
        return false;
    }
    let mut errno = [0; 4];
    // Closed without a word: it was close-on-exec.
    let executed = executed.read_exact(&mut errno).is_err();
    channel.report(if executed {
        Report::Executed
    } else {
        Report::NotExecuted(i32::from_le_bytes(errno))
    });
    executed
}

/// A pipe, close-on-exec.
struct Gate {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Gate {
    fn new() -> io::Result<Gate> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
        Ok(Gate { reader, writer })
    }
}

/// What the program is to find as its caller had it.
struct Restore {
    mask: SigSet,
    sigchld: Disposition,
}

/// In the program's process: waits for its record, then becomes the program.
fn program_main(
    options: &LaunchOptions,
    go: Gate,
    executed: Gate,
    restore: &Restore,
    become_program: impl FnOnce() -> io::Error,
) -> ! {
    if options.own_posix_session {
        let _ = setsid();
    }
    drop((go.writer, executed.reader));
    let (mut go, mut executed) = (File::from(go.reader), File::from(executed.writer));
    let ready = executed
        .write_all(&[1])
        .and_then(|()| go.read_exact(&mut [0]));
    if ready.is_err() {
        sys::exit_now(125);
    }
    sys::set_disposition(libc::SIGCHLD, restore.sigchld);
    let _ = restore.mask.thread_set_mask();
    let error = become_program();
    let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
    let _ = executed.write_all(&errno.to_le_bytes());
    sys::exit_now(126)
}

/// The monitor is nobody's foreground job, holds no pipe open and no directory busy.
fn detach(keep: &[BorrowedFd<'_>]) {
    let _ = setsid();
    let _ = chdir("/");
    let _ = set_name(NAME);
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = dup2_stdin(&null);
        let _ = dup2_stdout(&null);
        let _ = dup2_stderr(&null);
    }
    let _ = sys::close_all_but(keep);
}

fn block_everything() -> SigSet {
    let mut former = SigSet::empty();
    let _ = pthread_sigmask(
        SigmaskHow::SIG_BLOCK,
        Some(&SigSet::all()),
        Some(&mut former),
    );
    former
}

/// Waits for the end of a child that ends by itself.
fn reap(child: Pid) {
    let child = nix::unistd::Pid::from_raw(child.get());
    while waitpid(child, None) == Err(nix::Error::EINTR) {}
}
