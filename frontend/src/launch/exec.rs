//! `exec`: this process enrols itself and then becomes the program. The order of the steps is what keeps a destroy from
//! missing it: claim, enrol, look for the tombstone, write `running`, execute (DESIGN 4).

use cgleaf_shared::process::Pid;
use cgleaf_shared::wire::{Request, Target};
use nix::errno::Errno;

use super::claim::Claim;
use super::failure::Failure;
use super::leaf::{self, Entry, Leaf, Made};
use super::program::{Program, cannot_execute};
use super::{Plan, Site, TierWanted, group_tier, scope};
use crate::error::{Code, Error, Result};
use crate::operations;
use crate::records::{Record, Tier};
use crate::steps;
use crate::sys::{self, Disposition};
use crate::trace::{self, Role};

/// Enrols this process in a new session and becomes the program. `enrolled` is told of the session just before that. It
/// comes back only if the program was not executed; nothing of the session is left behind then, but that this process
/// may be in its leaf: it should end.
pub fn exec(
    site: &Site<'_>,
    plan: &Plan,
    enrolled: &mut dyn FnMut(&Record) -> Result<()>,
) -> Failure {
    match try_exec(site, plan, enrolled) {
        Err(failure) => failure,
        Ok(never) => match never {},
    }
}

fn try_exec(
    site: &Site<'_>,
    plan: &Plan,
    enrolled: &mut dyn FnMut(&Record) -> Result<()>,
) -> std::result::Result<std::convert::Infallible, Failure> {
    let program = Program::find(&plan.words)?;
    let parent = leaf::parent(site, plan.parent.as_deref())?;
    if plan.tier == TierWanted::Group {
        let claim = Claim::make(site, &plan.identity, Tier::Group)?;
        return group_tier::exec(site, plan, claim, &program, enrolled);
    }
    let mut claim = Claim::make(site, &plan.identity, Tier::Cgroup)?;
    let made = leaf::make(site, claim.record(), parent.as_ref(), Entry::Move)?;
    let leaf = match made {
        Made::Leaf(leaf) => *leaf,
        Made::NotServed(said) => {
            group_tier::instead(site, plan, &said)?;
            return group_tier::exec(site, plan, claim, &program, enrolled);
        }
        Made::MoveDenied(refusal) => {
            let session = claim.record().session.clone();
            let why = scope::enter_one(site, session.as_str(), &refusal);
            group_tier::instead(site, plan, &[why.message().to_owned()])?;
            return group_tier::exec(site, plan, claim, &program, enrolled);
        }
    };
    let mut enrolment = Enrolment { leaf: Some(leaf) };
    finish(&mut claim, &mut enrolment, &program, enrolled)
}

/// This process is in the leaf. Whatever fails from here on leaves that to be removed.
fn finish(
    claim: &mut Claim,
    enrolment: &mut Enrolment,
    program: &Program,
    enrolled: &mut dyn FnMut(&Record) -> Result<()>,
) -> std::result::Result<std::convert::Infallible, Failure> {
    let Some(leaf) = &enrolment.leaf else {
        return Err(Error::new(Code::Internal, "there is no leaf").into());
    };
    claim.set_leaf(
        leaf.attestation.clone(),
        leaf.helper.clone(),
        leaf::process(Pid::own())?,
    );
    claim.look_for_tombstone()?;
    let mark = claim.record().mark.clone().unwrap_or_default();
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

/// What this process was started with and the standard library has changed.
pub(super) fn restore_signals() {
    let disposition = if sys::pipe_was_ignored() {
        Disposition::Ignore
    } else {
        Disposition::Default
    };
    sys::set_disposition(libc::SIGPIPE, disposition);
}

/// This process is a member of a leaf. If it does not become the program, the helper ends and removes the leaf when this
/// process, and so this connection, ends: nobody else can, while this process is in it, and it is never moved out.
struct Enrolment {
    leaf: Option<Leaf>,
}

impl Drop for Enrolment {
    fn drop(&mut self) {
        let Some(mut leaf) = self.leaf.take() else {
            return;
        };
        let target = Target::from(&leaf.attestation);
        let _ = leaf.client.call(&Request::Lease { target });
        // Open until the kernel closes it at this process's end: closed earlier, it would end this process.
        std::mem::forget(leaf.client);
    }
}
