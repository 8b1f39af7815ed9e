//! `run`: the program as a child that is born in its leaf, and this process as its stand-in until it ends.

use std::time::Duration;

use cgleaf_shared::id::SessionId;
use cgleaf_shared::wire::Target;
use nix::errno::Errno;

use super::child::{self, Child, NoChild, Nursery};
use super::claim::Claim;
use super::end;
use super::failure::Failure;
use super::gate::Outcome;
use super::leaf;
use super::lease::Lease;
use super::program::{Program, cannot_execute};
use super::signals::Signals;
use super::watch::{Happened, Watch};
use super::{Plan, Site, TierWanted, group_tier, logout, scope};
use crate::client::Deadline;
use crate::error::{Code, Error, Result};
use crate::operations;
use crate::records::{Exit, Record, Tier};
use crate::steps;
use crate::sys;
use crate::trace::{self, Role};

/// The exit status of a run that took too long.
pub const TIMED_OUT: u8 = 124;

/// How long a program that was killed may take to end: one of another user, or in a sleep that no signal ends, need not do so.
const AFTER_THE_KILL: Duration = Duration::from_secs(5);

/// What happens to the rest of a session when its leader ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Leftovers {
    /// They are ended.
    #[default]
    Kill,
    /// They go on.
    Keep,
    /// They are waited for.
    Wait,
}

/// How a program is run.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunOptions {
    /// What happens to the rest.
    pub leftovers: Leftovers,
    /// How long the session has between SIGTERM and SIGKILL.
    pub grace: Option<Duration>,
    /// How long it may take.
    pub timeout: Option<Duration>,
    /// Whether the session ends with this process, however that ends.
    pub die_with_frontend: bool,
}

/// Runs a program in a new session and answers with its exit status. `enrolled` is told of the session just before the
/// program starts.
///
/// # Errors
/// The program was not started; nothing is left behind.
pub fn run(
    site: &Site<'_>,
    plan: &Plan,
    options: RunOptions,
    enrolled: &mut dyn FnMut(&Record) -> Result<()>,
) -> std::result::Result<u8, Failure> {
    if options.die_with_frontend && options.leftovers == Leftovers::Keep {
        let why = "--leftovers keep and --die-with-frontend exclude each other";
        return Err(Error::new(Code::Usage, why).into());
    }
    let program = Program::find(&plan.words)?;
    let parent = leaf::parent(site, plan.parent.as_deref())?;
    if plan.tier == TierWanted::Group {
        let claim = Claim::make(site, &plan.identity, Tier::Group)?;
        return group_tier::run(site, plan, options, claim, &program, enrolled);
    }
    let signals = Signals::take()?;
    let launched = {
        let _interest = signals.interest()?;
        launch(site, plan, options, parent, &program, &signals, enrolled)
    };
    match launched {
        Ok(Launched::Running(run, running, deadline)) => Ok(run.until_the_end(running, deadline)),
        Ok(Launched::NotServed(claim, said)) => {
            group_tier::instead(site, plan, &said)?;
            signals.give_back();
            group_tier::run(site, plan, options, claim, &program, enrolled)
        }
        Err(failure) => {
            // A signal that ended the wait for a helper ends this process now, with nothing left behind.
            signals.give_back();
            Err(failure)
        }
    }
}

/// What asking for a leaf and a child in it came to.
enum Launched<'a> {
    Running(Run<'a>, Running, Option<Deadline>),
    /// There is no leaf to be had: what each helper said.
    NotServed(Claim, Vec<String>),
}

fn launch<'a>(
    site: &'a Site<'a>,
    plan: &Plan,
    options: RunOptions,
    parent: Option<SessionId>,
    program: &Program,
    signals: &'a Signals,
    enrolled: &mut dyn FnMut(&Record) -> Result<()>,
) -> std::result::Result<Launched<'a>, Failure> {
    let mut claim = Claim::make(site, &plan.identity, Tier::Cgroup)?;
    let nursery = Nursery {
        site,
        parent,
        program,
        signals,
        prepare: &|| {},
    };
    let child = match nursery.enrolled_child(&mut claim) {
        Ok(child) => child,
        Err(NoChild::Error(error)) => return Err(error.into()),
        Err(NoChild::NotServed(said)) => return Ok(Launched::NotServed(claim, said)),
        Err(NoChild::MoveDenied(refusal)) => {
            signals.give_back();
            let session = claim.record().session.clone();
            let why = scope::enter_one(site, session.as_str(), &refusal);
            return Ok(Launched::NotServed(claim, vec![why.message().to_owned()]));
        }
    };
    let mut run = Run {
        site,
        options,
        signals,
        claim,
        lease: None,
    };
    let (running, deadline) = run.start(child, program, enrolled)?;
    Ok(Launched::Running(run, running, deadline))
}

/// A child at its gate, and then the program.
struct Run<'a> {
    site: &'a Site<'a>,
    options: RunOptions,
    signals: &'a Signals,
    claim: Claim,
    lease: Option<Lease>,
}

/// A program that was executed, or whose process has ended already.
struct Running {
    watch: Watch,
    events: crate::client::LeafEvents,
    /// Its end, where that came before it was seen to be executed.
    exit: Option<Exit>,
}

impl Run<'_> {
    /// Looks for the tombstone, writes `running`, and lets the child through its gate.
    fn start(
        &mut self,
        mut child: Child,
        program: &Program,
        enrolled: &mut dyn FnMut(&Record) -> Result<()>,
    ) -> std::result::Result<(Running, Option<Deadline>), Failure> {
        let pid = child.pid;
        let deadline = self.options.timeout.map(Deadline::after);
        if let Some(deadline) = deadline {
            self.signals.wake_at(deadline);
        }
        if let Err(error) = self.let_go(&mut child, program, enrolled) {
            return Err(self.take_back(child, error.into()));
        }
        let mut watch = Watch::new(pid);
        let leaf = self.claim.record().attestation.clone();
        let exit = match watch.until_executed(self.signals, leaf.as_ref(), &mut child.gate) {
            (Outcome::Failed(errno), _) => {
                let failure = cannot_execute(program.path(), Errno::from_raw(errno));
                return Err(self.take_back(child, failure));
            }
            (Outcome::Through, exit) => exit,
        };
        self.claim.keep();
        let Child { client, events, .. } = child;
        if let Some(lease) = &mut self.lease {
            lease.keep(client);
        }
        Ok((
            Running {
                watch,
                events,
                exit,
            },
            deadline,
        ))
    }

    fn let_go(
        &mut self,
        child: &mut Child,
        program: &Program,
        enrolled: &mut dyn FnMut(&Record) -> Result<()>,
    ) -> Result<()> {
        self.claim.look_for_tombstone()?;
        self.claim.write_running()?;
        if self.options.die_with_frontend {
            self.lease = Some(Lease::take(&mut child.client, self.claim.record())?);
        }
        enrolled(self.claim.record())?;
        steps::at("create:exec");
        trace::event(Role::Create, "Exec", trace::started(), &[]);
        operations::tell_execve(child.pid, program.path());
        child.gate.open()
    }

    /// The child does not become the program: it ends, and its leaf goes.
    fn take_back(&self, child: Child, failure: Failure) -> Failure {
        let Child {
            pid, gate, client, ..
        } = child;
        drop(gate);
        child::reap(pid);
        if let Some(attestation) = &self.claim.record().attestation {
            end::remove_empty(client, &Target::from(attestation));
        }
        failure
    }

    /// Stands in for the program until it has ended, and then sees to what it leaves.
    fn until_the_end(mut self, running: Running, deadline: Option<Deadline>) -> u8 {
        let Running {
            mut watch,
            mut events,
            exit,
        } = running;
        let leaf = self.claim.record().attestation.clone();
        let mut exit = exit;
        let mut deadline = deadline;
        let mut timed_out = false;
        let pid = watch.leader();
        while exit.is_none() {
            let lease = self.lease.as_ref().and_then(Lease::connection);
            match watch.next(self.signals, leaf.as_ref(), lease, deadline) {
                Happened::Ended(ended) => exit = Some(ended),
                Happened::LeaseBroke => self.renew_lease(),
                Happened::TimeIsOver if timed_out => {
                    self.site.trouble(&format!(
                        "the program, pid {pid}, does not end; `cgleaf destroy {}` names what lives",
                        self.claim.record().session
                    ));
                    return TIMED_OUT;
                }
                Happened::TimeIsOver => {
                    timed_out = true;
                    self.end_session();
                    // It may have left its leaf; a child that was not reaped has its number for itself.
                    sys::signal_child(pid, libc::SIGKILL);
                    deadline = Some(Deadline::after(AFTER_THE_KILL));
                }
            }
        }
        let exit = exit.unwrap_or(Exit::Code(0));
        timed_out |= self.see_to_leftovers(exit, &mut events, deadline.filter(|_| !timed_out));
        if exit == Exit::Signal(libc::SIGINT) && !timed_out {
            self.signals.die_if_interrupted();
        }
        if timed_out { TIMED_OUT } else { exit.status() }
    }

    fn renew_lease(&mut self) {
        let renewed = Lease::renew(self.site, self.claim.record());
        if let Err(error) = &renewed {
            self.site.notice(&format!(
                "the session will not end with this process: {}",
                error.message()
            ));
        }
        self.lease = renewed.ok();
    }

    /// Whether the time was over before what the leader left had ended.
    fn see_to_leftovers(
        &mut self,
        exit: Exit,
        events: &mut crate::client::LeafEvents,
        deadline: Option<Deadline>,
    ) -> bool {
        self.claim.record_mut().exit = Some(exit);
        let mut timed_out = false;
        if !end::is_over(events) {
            match self.options.leftovers {
                Leftovers::Keep => return self.keep_the_rest(),
                Leftovers::Kill => self.end_leftovers(),
                Leftovers::Wait => timed_out = self.wait_for_the_rest(events, deadline),
            }
        }
        end::write_the_end(&self.claim, events);
        timed_out
    }

    fn keep_the_rest(&self) -> bool {
        end::write_exit(&self.claim);
        let told = end::goes_on(&self.claim.record().session);
        self.site.notice(&told);
        if let Some(told) = logout::ends_with_it(self.claim.record()) {
            self.site.notice(&told);
        }
        false
    }

    /// From here on this process is its own again: a signal ends it, and the session goes on.
    fn wait_for_the_rest(
        &mut self,
        events: &mut crate::client::LeafEvents,
        deadline: Option<Deadline>,
    ) -> bool {
        end::write_exit(&self.claim);
        self.signals.give_back();
        loop {
            match events.wait_for_end(deadline) {
                Ok(crate::client::WaitEnd::Deadline) => {
                    self.end_session();
                    return true;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                _ => return false,
            }
        }
    }

    /// Ends the session. How many processes it ended; what it could not end is said.
    fn end_session(&self) -> usize {
        match end::end(self.site, self.claim.record(), self.options.grace) {
            Ok(destroyed) => destroyed.killed,
            Err(error) => {
                self.site.trouble(error.message());
                0
            }
        }
    }

    fn end_leftovers(&self) {
        let killed = self.end_session();
        if let Some(told) = end::outlived(&self.claim.record().session, killed) {
            self.site.notice(&told);
        }
    }
}
