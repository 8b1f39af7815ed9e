//! `run`, `exec` and `start` where no leaf can be had, or none is wanted: the session is kept by its processes, as far as
//! that can be proven (DESIGN 4.3). The order of the steps is that of the cgroup tier; what takes the place of the leaf is
//! the process group that is recorded.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use cgleaf_shared::process::{Pid, Proc};
use nix::errno::Errno;
use nix::sys::signal::Signal;

use super::claim::Claim;
use super::exec::restore_signals;
use super::failure::Failure;
use super::log::{Log, LogPlace};
use super::program::{Program, cannot_execute};
use super::run::{Leftovers, RunOptions, TIMED_OUT};
use super::signals::{self, Signals};
use super::watch::wait_for;
use super::{Plan, Site, TierWanted, end, leaf};
use crate::base::Base;
use crate::client::Deadline;
use crate::error::{Code, Error, OrCode, Result};
use crate::group::{
    self, LaunchError, LaunchOptions, Launched, NO_GROUP_NOTICE, RunEvent, Running,
};
use crate::operations;
use crate::records::{Exit, Names, Phase, Record, Store, Tier};
use crate::steps;
use crate::trace::{self, Role};

/// No helper serves this place: says so, and that this tier is what there is.
///
/// # Errors
/// UNSUPPORTED where a leaf was asked for.
pub(super) fn instead(site: &Site<'_>, plan: &Plan, said: &[String]) -> Result<()> {
    let error = leaf::not_served(plan.tier, said);
    if plan.tier == TierWanted::Cgroup {
        return Err(error);
    }
    refuse_parent(plan)?;
    site.notice(&format!(
        "{}; the session is kept by its processes instead, as far as that can be proven",
        error.message()
    ));
    Ok(())
}

fn refuse_parent(plan: &Plan) -> Result<()> {
    match &plan.parent {
        None => Ok(()),
        Some(parent) => Err(Error::new(
            Code::Unsupported,
            format!("--parent {parent}: a session without a leaf lies in no other"),
        )),
    }
}

/// `exec`: this process becomes the program.
pub(super) fn exec(
    site: &Site<'_>,
    plan: &Plan,
    mut claim: Claim,
    program: &Program,
    enrolled: &mut dyn FnMut(&Record) -> Result<()>,
) -> std::result::Result<std::convert::Infallible, Failure> {
    refuse_parent(plan)?;
    let mark = claim.record().mark.clone().unwrap_or_default();
    let identity = group::prepare_exec(&mark).or_code(Code::Internal)?;
    if identity.pgid.is_none() {
        site.notice(NO_GROUP_NOTICE);
    }
    claim.set_group(&identity, None)?;
    claim.look_for_tombstone()?;
    let image = program.image(&claim.record().session, &mark)?;
    claim.write_running()?;
    enrolled(claim.record())?;
    steps::at("create:exec");
    trace::event(Role::Create, "Exec", trace::started(), &[]);
    operations::tell_execve(Pid::own(), program.path());
    restore_signals();
    let error = image.execute();
    let errno = Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
    Err(cannot_execute(program.path(), errno))
}

/// `run`: the program beneath a monitor, and this process as its stand-in.
pub(super) fn run(
    site: &Site<'_>,
    plan: &Plan,
    options: RunOptions,
    mut claim: Claim,
    program: &Program,
    enrolled: &mut dyn FnMut(&Record) -> Result<()>,
) -> std::result::Result<u8, Failure> {
    refuse_parent(plan)?;
    let beneath = LaunchOptions {
        mark: claim.record().mark.clone().unwrap_or_default(),
        leftovers: match options.leftovers {
            Leftovers::Kill => group::Leftovers::Kill,
            Leftovers::Keep => group::Leftovers::Keep,
            Leftovers::Wait => group::Leftovers::Wait,
        },
        grace: options.grace,
        die_with_frontend: options.die_with_frontend,
        own_posix_session: false,
    };
    let launched = launch(site.base, &claim, program, &beneath, &|| {})?;
    let signals = Signals::take()?;
    claim.set_group(launched.identity(), None)?;
    let leader = launched.identity().pid;
    let deadline = options.timeout.map(Deadline::after);
    if let Some(deadline) = deadline {
        signals.wake_at(deadline);
    }
    let running = let_go(&mut claim, launched, program, enrolled)?;
    let stand_in = StandIn {
        site,
        options,
        signals: &signals,
        claim,
        leader,
        deadline,
        running,
    };
    Ok(stand_in.until_the_end())
}

/// `start`: the program beneath a monitor, and nobody else.
pub(super) fn start(
    site: &Site<'_>,
    plan: &Plan,
    program: &Program,
    log: Option<&Path>,
) -> std::result::Result<Record, Failure> {
    refuse_parent(plan)?;
    let place = LogPlace::new(log)?;
    let mut claim = Claim::with_log(site, &plan.identity, Tier::Group, Some(&place))?;
    let mut log = Log::open(&claim, &place)?;
    let null = File::open("/dev/null").or_code(Code::Internal)?;
    let beneath = LaunchOptions {
        mark: claim.record().mark.clone().unwrap_or_default(),
        leftovers: group::Leftovers::Keep,
        grace: None,
        die_with_frontend: false,
        own_posix_session: true,
    };
    let launched = launch(site.base, &claim, program, &beneath, &|| {
        log.be_the_output(&null);
    })?;
    let monitor = launched.identity().monitor;
    claim.set_group(launched.identity(), monitor)?;
    let_go(&mut claim, launched, program, &mut |_| Ok(()))?;
    log.keep();
    Ok(claim.record().clone())
}

/// Forks the monitor, and the program that waits.
fn launch(
    base: &Base,
    claim: &Claim,
    program: &Program,
    options: &LaunchOptions,
    prepare: &dyn Fn(),
) -> std::result::Result<Launched, Failure> {
    let image = program.image(&claim.record().session, &options.mark)?;
    let claimed = claim.record().clone();
    let become_it = || {
        prepare();
        restore_signals();
        image.execute()
    };
    let mut on_end = |exit: Option<group::Exit>| write_the_end(base, &claimed, exit.map(exit_of));
    group::launch(options, become_it, &mut on_end).map_err(|error| not_started(program, &error))
}

/// In the monitor, which has closed everything that it had of its parent's. It has seen the end of all of it (ECHILD): the
/// record says so also where a destroy has it in hand, which waits for this word.
fn write_the_end(base: &Base, claimed: &Record, exit: Option<Exit>) {
    if let Ok(store) = Store::open(base) {
        let _ = store.revise(&claimed.session, Some(claimed.created), |current| {
            current.exit = exit.or(current.exit);
            if !current.phase.is_over() {
                current.phase = Phase::Ended;
            }
        });
    }
    if let Some(name) = &claimed.name
        && let Ok(names) = Names::open(base)
    {
        let _ = names.release(name, &claimed.session);
    }
}

fn exit_of(exit: group::Exit) -> Exit {
    match exit {
        group::Exit::Code(code) => Exit::Code(code),
        group::Exit::Signal(signal) => Exit::Signal(signal),
    }
}

fn not_started(program: &Program, error: &LaunchError) -> Failure {
    match error {
        LaunchError::NotExecuted(cause) => {
            let errno = Errno::from_raw(cause.raw_os_error().unwrap_or(libc::EIO));
            cannot_execute(program.path(), errno)
        }
        other => Error::new(Code::Internal, other.to_string()).into(),
    }
}

fn let_go(
    claim: &mut Claim,
    launched: Launched,
    program: &Program,
    enrolled: &mut dyn FnMut(&Record) -> Result<()>,
) -> std::result::Result<Running, Failure> {
    claim.look_for_tombstone()?;
    claim.write_running()?;
    enrolled(claim.record())?;
    steps::at("create:exec");
    trace::event(Role::Create, "Exec", trace::started(), &[]);
    operations::tell_execve(launched.identity().pid, program.path());
    let running = launched
        .go()
        .map_err(|error| not_started(program, &error))?;
    claim.keep();
    Ok(running)
}

/// This process, in the program's place.
struct StandIn<'a> {
    site: &'a Site<'a>,
    options: RunOptions,
    signals: &'a Signals,
    claim: Claim,
    leader: Pid,
    deadline: Option<Deadline>,
    running: Running,
}

/// How far the end has come.
#[derive(Debug, Default)]
struct Progress {
    exit: Option<Exit>,
    timed_out: bool,
    over: bool,
    /// The monitor has seen the end of everybody, and has nothing to do any more.
    seen_to_the_end: bool,
}

impl StandIn<'_> {
    fn until_the_end(mut self) -> u8 {
        let mut progress = Progress::default();
        let mut deadline = self.deadline;
        while !progress.over {
            let ready = wait_for(
                [Some(self.signals.as_fd()), Some(self.running.as_fd())],
                deadline,
            );
            if ready[0] {
                self.pass_signals_on();
            }
            if ready[1] {
                self.take_events(&mut progress);
            }
            if deadline.is_some_and(|deadline| deadline.left().is_none()) {
                deadline = None;
                progress.timed_out = true;
                // A monitor that has gone is told as an event.
                let _ = self.running.end_all(self.options.grace);
            }
        }
        let StandIn {
            running, signals, ..
        } = self;
        if progress.seen_to_the_end {
            // Whoever looks at the session next finds no monitor, which would say that it runs.
            running.finish();
        }
        if progress.exit == Some(Exit::Signal(libc::SIGINT)) && !progress.timed_out {
            signals.die_if_interrupted();
        }
        match progress.exit {
            _ if progress.timed_out => TIMED_OUT,
            // Nobody has seen it end, and it was killed.
            exit => exit.unwrap_or(Exit::Signal(libc::SIGKILL)).status(),
        }
    }

    fn pass_signals_on(&self) {
        while let Some(info) = self.signals.next() {
            if let Some(number) = signals::for_the_leader(&info, self.leader, None) {
                // A monitor that has gone is told as an event.
                let _ = self.running.signal(number);
            }
        }
    }

    fn take_events(&mut self, progress: &mut Progress) {
        while let Ok(Some(event)) = self.running.next_event(false) {
            match event {
                RunEvent::Stopped(by) => self.stop_too(by),
                RunEvent::Continued => {}
                RunEvent::LeaderEnded(exit) => {
                    progress.exit = Some(exit_of(exit));
                    self.claim.record_mut().exit = progress.exit;
                    if self.options.leftovers == Leftovers::Keep {
                        end::write_exit(&self.claim);
                        if self.somebody_is_left() {
                            let told = end::goes_on(&self.claim.record().session);
                            self.site.notice(&told);
                        }
                        progress.over = true;
                    }
                }
                RunEvent::AllEnded { killed } => {
                    if let Some(told) = end::outlived(&self.claim.record().session, killed) {
                        self.site.notice(&told);
                    }
                    progress.over = true;
                    progress.seen_to_the_end = true;
                }
                RunEvent::GaveUp => {
                    progress.over = true;
                    let session = &self.claim.record().session;
                    self.site.trouble(&format!(
                        "something of session {session} could not be ended and lives; `cgleaf destroy {session}` goes on \
                         from there"
                    ));
                }
                RunEvent::MonitorGone => {
                    if !progress.over {
                        self.end_without_monitor(progress.exit.is_some());
                    }
                    progress.over = true;
                    return;
                }
            }
        }
    }

    /// Whether the monitor has a child, now that it has reaped the leader.
    fn somebody_is_left(&self) -> bool {
        let children =
            Proc::system().and_then(|proc| proc.process(self.running.monitor())?.children());
        children.is_ok_and(|children| !children.is_empty())
    }

    /// Somebody has killed the monitor, as the kernel does where memory runs out. How the program ends cannot be told any more,
    /// and what it starts is kept by nobody: it is ended. What was to go on without its program goes on.
    fn end_without_monitor(&self, program_has_ended: bool) {
        let session = &self.claim.record().session;
        let what = format!("the monitor of session {session} was killed by somebody else");
        if program_has_ended && self.options.leftovers != Leftovers::Kill {
            self.site.trouble(&format!(
                "{what}: what the program left goes on, and its end will not be seen; `cgleaf destroy {session}` ends what \
                 is proven to be its"
            ));
            return;
        }
        match end::end(self.site, self.claim.record(), self.options.grace) {
            Ok(_) => self.site.trouble(&format!("{what}: everything was ended")),
            Err(error) => {
                let left = error.message();
                self.site
                    .trouble(&format!("{what}: it was ended as far as that goes; {left}"));
            }
        }
    }

    fn stop_too(&self, by: i32) {
        let by = Signal::try_from(by).unwrap_or(Signal::SIGSTOP);
        let monitor = Some(self.running.monitor());
        if self.signals.stop_too(self.leader, monitor, by) {
            let _ = self.running.signal(libc::SIGCONT);
        }
    }
}
