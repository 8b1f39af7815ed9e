//! `start`: the program detached, with a small process of ours that waits for its end and writes it down.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use cgleaf_shared::wire::{Refusal, Target};
use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::child::{self, Child, NoChild, Nursery};
use super::claim::Claim;
use super::end;
use super::failure::Failure;
use super::gate::Outcome;
use super::leaf;
use super::log::{Log, LogPlace};
use super::message;
use super::program::{Program, cannot_execute};
use super::signals::Signals;
use super::watch::Watch;
use super::{Plan, Site, TierWanted, group_tier, scope};
use crate::client::interest::{self, Interest};
use crate::error::{Code, OrCode};
use crate::operations;
use crate::records::{Exit, Record, Tier};
use crate::steps;
use crate::sys::{self, Forked};
use crate::trace::{self, Role};

/// What the waiting process tells the one that answers.
#[derive(Debug, Serialize, Deserialize)]
enum Told {
    Started(Box<Record>),
    MoveDenied(String, Refusal),
    NotServed(Vec<String>),
    Failed {
        code: String,
        message: String,
        status: u8,
    },
}

/// Starts a program detached. Its output goes to `log`, or beside its record; its input is empty.
///
/// # Errors
/// The program was not started; nothing is left behind.
pub fn start(
    site: &Site<'_>,
    plan: &Plan,
    log: Option<&Path>,
) -> std::result::Result<Record, Failure> {
    let program = Program::find(&plan.words)?;
    if plan.tier == TierWanted::Group {
        return group_tier::start(site, plan, &program, log);
    }
    let (mut ours, theirs) = UnixStream::pair().or_code(Code::Internal)?;
    match sys::fork().or_code(Code::Internal)? {
        Forked::Child => {
            drop(ours);
            wait_for_it(site, plan, &program, log, theirs)
        }
        Forked::Parent(_) => drop(theirs),
    }
    let told: Told = message::read(&mut ours)
        .map_err(|error| error.while_doing("wait for the process that starts the program"))?;
    match told {
        Told::Started(record) => Ok(*record),
        Told::NotServed(said) => {
            group_tier::instead(site, plan, &said)?;
            group_tier::start(site, plan, &program, log)
        }
        Told::MoveDenied(session, refusal) => {
            let why = scope::enter_one(site, &session, &refusal);
            group_tier::instead(site, plan, &[why.message().to_owned()])?;
            group_tier::start(site, plan, &program, log)
        }
        Told::Failed {
            code,
            message,
            status,
        } => Err(Failure::told(
            Code::from_name(&code).unwrap_or(Code::Internal),
            message,
            status,
        )),
    }
}

/// The process that waits. It is in no session of ours, has no terminal, and ends after the session.
fn wait_for_it(
    site: &Site<'_>,
    plan: &Plan,
    program: &Program,
    log: Option<&Path>,
    mut tell: UnixStream,
) -> ! {
    let _ = nix::unistd::setsid();
    let started = match tell.as_fd().try_clone_to_owned().or_code(Code::Internal) {
        Ok(caller) => {
            // Whoever called ends: the program does not start.
            let _interest = Interest::until_readable(caller);
            started(site, plan, program, log)
        }
        Err(error) => Err(error.into()),
    };
    let told = match &started {
        Ok(started) => Told::Started(Box::new(started.claim.record().clone())),
        Err(NotStarted::MoveDenied(session, refusal)) => {
            Told::MoveDenied(session.clone(), refusal.clone())
        }
        Err(NotStarted::NotServed(said)) => Told::NotServed(said.clone()),
        Err(NotStarted::Failure(failure)) => Told::Failed {
            code: failure.error().code().name().to_owned(),
            message: failure.error().message().to_owned(),
            status: failure.status(),
        },
    };
    let _ = message::write(&mut tell, &told);
    drop(tell);
    if let Ok(mut started) = started {
        started.until_the_end();
    }
    sys::exit_now(0)
}

enum NotStarted {
    MoveDenied(String, Refusal),
    NotServed(Vec<String>),
    Failure(Failure),
}

impl<E: Into<Failure>> From<E> for NotStarted {
    fn from(error: E) -> Self {
        Self::Failure(error.into())
    }
}

/// A program that was executed.
struct Started {
    claim: Claim,
    watch: Watch,
    exit: Option<Exit>,
    events: crate::client::LeafEvents,
    signals: Signals,
}

fn started(
    site: &Site<'_>,
    plan: &Plan,
    program: &Program,
    log: Option<&Path>,
) -> std::result::Result<Started, NotStarted> {
    let parent = leaf::parent(site, plan.parent.as_deref())?;
    let signals = Signals::take()?;
    let place = LogPlace::new(log)?;
    let mut claim = Claim::with_log(site, &plan.identity, Tier::Cgroup, Some(&place))?;
    let mut log = Log::open(&claim, &place)?;
    let null = File::open("/dev/null").or_code(Code::Internal)?;
    let prepare = || {
        let _ = nix::unistd::setsid();
        log.be_the_output(&null);
    };
    let nursery = Nursery {
        site,
        parent,
        program,
        signals: &signals,
        prepare: &prepare,
    };
    let mut child = match nursery.enrolled_child(&mut claim) {
        Ok(child) => child,
        Err(NoChild::Error(error)) => return Err(error.into()),
        Err(NoChild::NotServed(said)) => return Err(NotStarted::NotServed(said)),
        Err(NoChild::MoveDenied(refusal)) => {
            return Err(NotStarted::MoveDenied(
                claim.record().session.to_string(),
                refusal,
            ));
        }
    };
    let mut watch = Watch::from_aside(child.pid);
    let exit = match let_go(&mut claim, &mut child, &mut watch, &signals, program) {
        Ok(exit) => exit,
        Err(failure) => {
            take_back(&claim, child);
            return Err(failure.into());
        }
    };
    claim.keep();
    log.keep();
    Ok(Started {
        claim,
        watch,
        exit,
        events: child.events,
        signals,
    })
}

/// Through the gate; its end, where that was seen already.
fn let_go(
    claim: &mut Claim,
    child: &mut Child,
    watch: &mut Watch,
    signals: &Signals,
    program: &Program,
) -> std::result::Result<Option<Exit>, Failure> {
    claim.look_for_tombstone()?;
    claim.write_running()?;
    interest::require()?;
    steps::at("create:exec");
    trace::event(Role::Create, "Exec", trace::started(), &[]);
    operations::tell_execve(child.pid, program.path());
    child.gate.open()?;
    let leaf = claim.record().attestation.clone();
    match watch.until_executed(signals, leaf.as_ref(), &mut child.gate) {
        (Outcome::Failed(errno), _) => Err(cannot_execute(program.path(), Errno::from_raw(errno))),
        (Outcome::Through, exit) => Ok(exit),
    }
}

fn take_back(claim: &Claim, child: Child) {
    let Child {
        pid, gate, client, ..
    } = child;
    drop(gate);
    child::reap(pid);
    if let Some(attestation) = &claim.record().attestation {
        end::remove_empty(client, &Target::from(attestation));
    }
}

impl Started {
    /// Nothing of the caller's is held any longer than it takes: no terminal, no directory, no pipe.
    fn until_the_end(&mut self) {
        let_go_of_the_callers();
        let leaf = self.claim.record().attestation.clone();
        let exit = self
            .exit
            .unwrap_or_else(|| self.watch.end(&self.signals, leaf.as_ref()));
        self.claim.record_mut().exit = Some(exit);
        if !end::is_over(&mut self.events) {
            end::write_exit(&self.claim);
            // From here on a signal ends this process, and the session goes on.
            self.signals.give_back();
            while matches!(self.events.wait_for_end(None), Err(error)
                if error.kind() == std::io::ErrorKind::Interrupted)
            {}
        }
        end::write_the_end(&self.claim, &mut self.events);
    }
}

fn let_go_of_the_callers() {
    let _ = nix::unistd::chdir("/");
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        for number in 0..=2 {
            let _ = sys::put_at(null.as_fd(), number);
        }
    }
}
