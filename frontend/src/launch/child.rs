//! A child that is enrolled and waits at its gate: born in its leaf, or moved into it by itself.

use std::os::fd::AsFd;
use std::path::Path;

use cgleaf_shared::attestation::{Attestation, Verdict, verify};
use cgleaf_shared::cgroup::{CgroupDir, CgroupRoot, ControlFile};
use cgleaf_shared::id::SessionId;
use cgleaf_shared::process::Pid;
use cgleaf_shared::wire::{Mode, Refusal, Reply, Request, Target};
use nix::errno::Errno;

use super::claim::Claim;
use super::end;
use super::gate::{ChildGate, ParentGate, Word, gate};
use super::leaf::{self, Entry, Leaf, Made};
use super::program::Program;
use super::signals::Signals;
use super::{BEFORE_THE_PROGRAM, Site};
use crate::client::{Client, LeafEvents};
use crate::error::{Code, Error, OrCode, Result};
use crate::operations;
use crate::records::HelperRef;
use crate::steps;
use crate::sys::{self, Forked, Image};

/// What every child needs.
pub(super) struct Nursery<'a> {
    pub(super) site: &'a Site<'a>,
    pub(super) parent: Option<SessionId>,
    pub(super) program: &'a Program,
    pub(super) signals: &'a Signals,
    /// What the child does first: its own stdio, for one that is detached.
    pub(super) prepare: &'a dyn Fn(),
}

/// An enrolled child at its gate.
pub(super) struct Child {
    /// Its pid; a child of this process that was not reaped.
    pub(super) pid: Pid,
    pub(super) gate: ParentGate,
    /// The connection that made its leaf.
    pub(super) client: Client,
    /// Its leaf's events.
    pub(super) events: LeafEvents,
}

/// Why there is no child.
pub(super) enum NoChild {
    /// It cannot be moved from where this process is: from a scope of its own it could (see [`super::scope`]).
    MoveDenied(Refusal),
    /// No helper serves this place: what each said.
    NotServed(Vec<String>),
    /// Anything else.
    Error(Error),
}

impl<E: Into<Error>> From<E> for NoChild {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

impl Nursery<'_> {
    /// Makes the leaf and the child in it, and puts leaf and leader into the claim's record.
    ///
    /// # Errors
    /// [`NoChild`]: no leaf can be had, or whatever a helper or the kernel refuses.
    pub(super) fn enrolled_child(&self, claim: &mut Claim) -> std::result::Result<Child, NoChild> {
        let made = leaf::make(
            self.site,
            claim.record(),
            self.parent.as_ref(),
            Entry::Birth,
        )?;
        let mut leaf = match made {
            Made::Leaf(leaf) => *leaf,
            Made::NotServed(said) => return Err(NoChild::NotServed(said)),
            Made::MoveDenied(refusal) => return Err(NoChild::MoveDenied(refusal)),
        };
        let (target, socket) = (Target::from(&leaf.attestation), leaf.helper.socket.clone());
        let error = match self.born(claim, &mut leaf) {
            Ok(Some((pid, gate, dir))) => match attested(claim, leaf, pid, gate, &dir) {
                Ok(child) => return Ok(child),
                Err(error) => error,
            },
            Ok(None) => {
                leaf.client.call(&Request::Remove { target })?;
                drop(leaf);
                return self.moved(claim);
            }
            Err(error) => error,
        };
        // On a connection of its own: on the leaf's a reply may be due that nobody waits for any more.
        if let Ok(client) = Client::connect(&socket) {
            end::remove_empty(client, &target);
        }
        Err(error.into())
    }

    /// A child born in the leaf; `None` where that is not to be had, which is no error.
    fn born(&self, claim: &Claim, leaf: &mut Leaf) -> Result<Option<(Pid, ParentGate, CgroupDir)>> {
        let of_roots = Mode::from_name(leaf.client.mode())
            .is_some_and(cgleaf_shared::wire::Mode::is_root_mode);
        if of_roots {
            return Ok(None);
        }
        let Some(dir) = proven(leaf)? else {
            return Ok(None);
        };
        let image = self.image(claim)?;
        let (parent, child) = gate()?;
        let path = &leaf.attestation.leaf_path;
        operations::tell(|| format!("clone3(2) with CLONE_INTO_CGROUP: {path}"));
        match sys::clone_into_cgroup(dir.as_fd()) {
            Ok(Forked::Child) => {
                // Or the gate would stay open in the child itself after its parent's end.
                drop(parent);
                self.be_the_child(child, &image)
            }
            Ok(Forked::Parent(pid)) => Ok(Some((pid, parent, dir))),
            // A container's filter, a place that is not ours to write, a threaded leaf, one with controllers.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(
                        libc::ENOSYS
                            | libc::EACCES
                            | libc::EPERM
                            | libc::EOPNOTSUPP
                            | libc::EBUSY
                            | libc::EINVAL
                            | libc::E2BIG
                    )
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error)
                .or_code(Code::Internal)
                .map_err(|error| error.while_doing("clone3 into the leaf")),
        }
    }

    /// A child that has itself moved into a leaf of its own making.
    fn moved(&self, claim: &mut Claim) -> std::result::Result<Child, NoChild> {
        let image = self.image(claim)?;
        let (mut parent, child) = gate()?;
        operations::tell(|| "fork(2): a child that moves into its leaf itself".to_owned());
        let pid = match sys::fork().or_code(Code::Internal)? {
            Forked::Child => {
                drop(parent);
                self.move_then_be_the_child(claim, child, &image)
            }
            Forked::Parent(pid) => pid,
        };
        drop(child);
        let told = parent
            .word()
            .map_err(NoChild::from)
            .and_then(|word| self.understood(word));
        let (attestation, helper) = match told {
            Ok(told) => told,
            Err(error) => return Err(self.never_told(claim, parent, pid, error)),
        };
        claim.set_leaf(attestation, helper.clone(), leaf::process(pid)?);
        match opened(&helper.socket, &claim.record().session) {
            Ok((client, events)) => Ok(Child {
                pid,
                gate: parent,
                client,
                events,
            }),
            Err(error) => Err(self.never_told(claim, parent, pid, error.into())),
        }
    }

    /// The child ends at its gate. It may have been moved all the same, unless the id was another's.
    fn never_told(&self, claim: &Claim, gate: ParentGate, pid: Pid, why: NoChild) -> NoChild {
        drop(gate);
        reap(pid);
        let is_anothers = matches!(&why, NoChild::Error(error) if error.code() == Code::Usage);
        if matches!(why, NoChild::Error(_)) && !is_anothers {
            end::remove_untold(self.site, &claim.record().session);
        }
        why
    }

    fn understood(&self, word: Word) -> std::result::Result<(Attestation, HelperRef), NoChild> {
        match word {
            Word::Enrolled(attestation, helper) => Ok((*attestation, helper)),
            Word::NotServed(said) => Err(NoChild::NotServed(said)),
            Word::MoveDenied(refusal) => Err(NoChild::MoveDenied(refusal)),
            Word::Failed(code, message) => {
                let code = Code::from_name(&code).unwrap_or(Code::Internal);
                Err(Error::new(code, message).into())
            }
        }
    }

    fn image(&self, claim: &Claim) -> Result<Image> {
        let mark = claim.record().mark.clone().unwrap_or_default();
        self.program.image(&claim.record().session, &mark)
    }

    /// The child's side of a move. It connects by itself: one connection is one process.
    fn move_then_be_the_child(&self, claim: &Claim, mut gate: ChildGate, image: &Image) -> ! {
        let made = leaf::make(self.site, claim.record(), self.parent.as_ref(), Entry::Move);
        let word = match made {
            Ok(Made::Leaf(leaf)) => Word::Enrolled(Box::new(leaf.attestation), leaf.helper),
            Ok(Made::NotServed(said)) => Word::NotServed(said),
            Ok(Made::MoveDenied(refusal)) => Word::MoveDenied(refusal),
            Err(error) => Word::of_error(&error),
        };
        gate.tell(&word);
        self.be_the_child(gate, image)
    }

    /// Waits at the gate, and becomes the program.
    fn be_the_child(&self, mut gate: ChildGate, image: &Image) -> ! {
        if !gate.wait() {
            sys::exit_now(BEFORE_THE_PROGRAM);
        }
        (self.prepare)();
        self.signals.give_back();
        let error = image.execute();
        gate.failed(error.raw_os_error().unwrap_or(libc::EIO));
        sys::exit_now(BEFORE_THE_PROGRAM)
    }
}

/// The leaf as this process sees it; `None` where it cannot be looked at from here.
fn proven(leaf: &Leaf) -> Result<Option<CgroupDir>> {
    let Ok(root) = CgroupRoot::open() else {
        return Ok(None);
    };
    operations::tell_verification(&leaf.attestation);
    match verify(&leaf.attestation, &root) {
        Verdict::Proven(dir) => Ok(Some(dir)),
        Verdict::Unreadable(_) => Ok(None),
        Verdict::Gone => Err(Error::new(
            Code::Refused,
            format!(
                "the leaf {} vanished before anything was in it; try again",
                leaf.attestation.leaf_path
            ),
        )),
        Verdict::Foreign(why) => Err(Error::new(
            Code::Refused,
            format!("{}: {why}", leaf.attestation.leaf_path),
        )),
    }
}

/// A connection to the helper that has a session, and its leaf's events.
fn opened(socket: &Path, session: &SessionId) -> Result<(Client, LeafEvents)> {
    let mut client = Client::connect(socket)?;
    let session = session.clone();
    match client.call_with_descriptor(&Request::Open { session })? {
        (Reply::Opened(_), Some(descriptor)) => Ok((client, LeafEvents::new(descriptor))),
        _ => Err(Error::new(
            Code::HelperUnreachable,
            "the helper passes no descriptor of the leaf's events: too many are in flight; try again",
        )),
    }
}

/// The helper looks for itself whether the child is in the leaf.
fn attested(
    claim: &mut Claim,
    mut leaf: Leaf,
    pid: Pid,
    gate: ParentGate,
    dir: &CgroupDir,
) -> Result<Child> {
    let target = Target::from(&leaf.attestation);
    steps::at("create:born");
    let answer = leaf.client.call(&Request::Attest {
        target,
        leader: pid,
    });
    let done = answer.and_then(|reply| match reply {
        Reply::Attested(attestation) => Ok(attestation),
        _ => Err(Error::new(
            Code::Protocol,
            "the helper answers attest with something else",
        )),
    });
    let attestation = match done {
        Ok(attestation) => attestation,
        Err(error) => {
            drop(gate);
            reap(pid);
            return Err(error);
        }
    };
    claim.set_leaf(attestation, leaf.helper, leaf::process(pid)?);
    let events = match leaf.events {
        Some(events) => events,
        None => LeafEvents::new(dir.open_file(ControlFile::Events)?.into()),
    };
    Ok(Child {
        pid,
        gate,
        client: leaf.client,
        events,
    })
}

/// Waits for the end of a child that ends by itself, since its gate is closed.
pub(super) fn reap(pid: Pid) {
    let pid = nix::unistd::Pid::from_raw(pid.get());
    while nix::sys::wait::waitpid(pid, None) == Err(Errno::EINTR) {}
}
