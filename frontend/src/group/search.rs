//! The search for who lives behind a destroy: a look at everybody, and at whoever was made meanwhile.

use cgleaf_shared::process::{Proc, ProcessId, ReadError};

use super::crowd::Crowd;
use super::destroy::StrayPolicy;
use super::identity::GroupIdentity;
use super::members::{Member, Tie, members_and, see};
use super::newcomers::{Followed, Newcomers};

/// Looks for who lives, and, where nobody is seen, at all that was made meanwhile.
pub(super) struct Search<'a> {
    proc: &'a Proc,
    identity: &'a GroupIdentity,
    /// Who was proven by its parents before is proven now: they may have ended.
    known: Vec<ProcessId>,
    crowd: Crowd,
    newcomers: Option<Newcomers>,
    /// Whether not all that was made meanwhile could be read.
    pub(super) some_are_unread: bool,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        proc: &'a Proc,
        identity: &'a GroupIdentity,
        before: &[Member],
        policy: StrayPolicy,
    ) -> Search<'a> {
        let proven = before.iter().filter(|member| member.tie == Tie::Proven);
        // A monitor that saw the end has left nobody to be looked for.
        let follows = identity.monitor.is_none() && policy != StrayPolicy::Ignore;
        Search {
            proc,
            identity,
            known: proven.map(|member| member.id).collect(),
            crowd: Crowd::default(),
            newcomers: follows.then(Newcomers::new),
            some_are_unread: follows,
        }
    }

    /// Whoever is seen alive.
    ///
    /// # Errors
    /// If /proc cannot be read.
    pub(super) fn look(&mut self) -> Result<Vec<Member>, ReadError> {
        let mut begun = self.newcomers.as_mut();
        if begun
            .as_mut()
            .is_some_and(|it| it.begin(self.proc).is_err())
        {
            begun = None;
        }
        let (proc, identity) = (self.proc, self.identity);
        let mut seen = members_and(&mut self.crowd, proc, identity, &self.known)?;
        if let Some(newcomers) = begun
            && seen.is_empty()
        {
            match newcomers.follow(proc, |pid| see(proc, pid, identity)) {
                Ok(Followed::Found(member)) => {
                    self.some_are_unread = true;
                    seen.push(member);
                }
                Ok(Followed::Nobody) => self.some_are_unread = false,
                // What could not be read proves nothing, and is asked again.
                Ok(Followed::TooMany) | Err(_) => {}
            }
        }
        Ok(seen)
    }
}
