//! What the helper states about a leaf, and the one function that proves, later and elsewhere, that a path
//! still is that leaf (DESIGN 3.3).

use serde::{Deserialize, Serialize};

use crate::cgroup::{CgroupDir, CgroupPath, CgroupRoot, attributes};
use crate::error::IoError;
use crate::id::{BootId, BootTime, CgroupId, Nonce, SessionId, Uid};

/// The format that this version writes.
pub const FORMAT: u16 = 1;

/// Enough for another process, later, to prove that a path still is the leaf that the helper made. It is made
/// from the helper's own `/proc/self/cgroup` and from what it opened, never from what a client says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attestation {
    /// The format of this statement, [`FORMAT`].
    pub format: u16,
    /// The session that the leaf was made for.
    pub session: SessionId,
    /// The leaf's nonce: it tells a leaf from a namesake.
    pub nonce: Nonce,
    /// The boot it was made in. Ids are unique within one boot.
    pub boot_id: BootId,
    /// The kernfs id of the directory that the paths are relative to.
    pub root_id: CgroupId,
    /// The domain: the outermost cgroup of ours around the leaf.
    pub domain_path: CgroupPath,
    /// The domain's kernfs id.
    pub domain_id: CgroupId,
    /// Where the leaf is.
    pub leaf_path: CgroupPath,
    /// The leaf's kernfs id.
    pub leaf_id: CgroupId,
    /// Who owns the session.
    pub owner_uid: Uid,
    /// When the leaf was made.
    pub created: BootTime,
    /// The build of the helper that made it.
    pub helper_build: String,
}

/// What a look at the real tree says of an attestation. Only [`Verdict::Proven`] is acted on; only
/// [`Verdict::Gone`] lets a record say that the session has ended.
#[derive(Debug)]
pub enum Verdict {
    /// The path is the leaf: everything that follows goes through this descriptor.
    Proven(CgroupDir),
    /// The leaf was removed, so it was empty. A namesake is never touched.
    Gone,
    /// It speaks of another boot, or its nonce is not the leaf's.
    Foreign(Foreign),
    /// It cannot be told from here.
    Unreadable(Unreadable),
}

/// Why an attestation is another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Foreign {
    /// Another boot id: whatever lived then has ended, and every number in it may be somebody else's now.
    #[error("it was recorded in an earlier boot")]
    EarlierBoot,
    /// The directory of that id carries no nonce, or another: it was tampered with.
    #[error("the leaf's nonce is not the recorded one: the record or the leaf was tampered with")]
    Tampered,
    /// The attributes name another session than the attestation does.
    #[error("the leaf belongs to another session than the record says")]
    OtherSession,
}

/// Why it cannot be told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// The verifier's own root is another directory: a container, a bind mount, another cgroup namespace.
    #[error(
        "the paths in it are relative to cgroup {recorded}, and the root here is cgroup {here}: ask the helper"
    )]
    OtherRoot {
        /// The root that the attestation was made in.
        recorded: CgroupId,
        /// The root of this process.
        here: CgroupId,
    },
    /// It was refused, or failed in another way than by absence.
    #[error(transparent)]
    Refused(#[from] IoError),
    /// A later version wrote it.
    #[error("it has format {0}, this version knows {FORMAT}: a newer cgleaf wrote it")]
    NewerFormat(u16),
}

/// The questions of [`verify`], in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// Is it the same boot?
    Boot,
    /// Is the verifier's own root the recorded one?
    Root,
    /// Does the path open beneath that root?
    Open,
    /// Is the id, taken from that descriptor, the leaf's?
    Id,
    /// Does the attribute hold the nonce?
    Nonce,
}

impl Guard {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Boot, Self::Root, Self::Open, Self::Id, Self::Nonce];
}

/// Proves that `attestation` still describes the leaf at its path, or says why not. Nothing is written.
pub fn verify(attestation: &Attestation, root: &CgroupRoot) -> Verdict {
    verify_guarded(attestation, root, None)
}

/// [`verify`] with one guard taken out. It exists for the tests that show that every guard is needed.
#[cfg(feature = "mutations")]
pub fn verify_without(guard: Guard, attestation: &Attestation, root: &CgroupRoot) -> Verdict {
    verify_guarded(attestation, root, Some(guard))
}

fn verify_guarded(
    attestation: &Attestation,
    root: &CgroupRoot,
    left_out: Option<Guard>,
) -> Verdict {
    match try_verify(attestation, root, left_out) {
        Ok(dir) => Verdict::Proven(dir),
        Err(not_proven) => not_proven,
    }
}

fn try_verify(
    attestation: &Attestation,
    root: &CgroupRoot,
    left_out: Option<Guard>,
) -> Result<CgroupDir, Verdict> {
    let asked = |guard| left_out != Some(guard);
    if attestation.format > FORMAT {
        return Err(Verdict::Unreadable(Unreadable::NewerFormat(
            attestation.format,
        )));
    }
    if asked(Guard::Boot) {
        same_boot(attestation)?;
    }
    if asked(Guard::Root) && attestation.root_id != root.id() {
        let (recorded, here) = (attestation.root_id, root.id());
        return Err(Verdict::Unreadable(Unreadable::OtherRoot {
            recorded,
            here,
        }));
    }
    let dir = open_leaf(attestation, root, asked(Guard::Open)).map_err(gone_or_unreadable)?;
    if asked(Guard::Id) && dir.id().map_err(gone_or_unreadable)? != attestation.leaf_id {
        return Err(Verdict::Gone);
    }
    if asked(Guard::Nonce) {
        same_nonce(attestation, &dir)?;
    }
    Ok(dir)
}

#[cfg(not(feature = "mutations"))]
fn open_leaf(
    attestation: &Attestation,
    root: &CgroupRoot,
    _guarded: bool,
) -> Result<CgroupDir, IoError> {
    root.open_path(&attestation.leaf_path)
}

#[cfg(feature = "mutations")]
fn open_leaf(
    attestation: &Attestation,
    root: &CgroupRoot,
    guarded: bool,
) -> Result<CgroupDir, IoError> {
    let path = &attestation.leaf_path;
    if guarded {
        root.open_path(path)
    } else {
        root.dir().open_trusting(path)
    }
}

fn same_boot(attestation: &Attestation) -> Result<(), Verdict> {
    let current = BootId::current().map_err(|error| Verdict::Unreadable(error.into()))?;
    if current == attestation.boot_id {
        Ok(())
    } else {
        Err(Verdict::Foreign(Foreign::EarlierBoot))
    }
}

fn same_nonce(attestation: &Attestation, dir: &CgroupDir) -> Result<(), Verdict> {
    let nonce = dir
        .attribute_text(attributes::NONCE)
        .map_err(gone_or_unreadable)?;
    if nonce.and_then(|text| text.parse().ok()) != Some(attestation.nonce) {
        return Err(Verdict::Foreign(Foreign::Tampered));
    }
    let session = dir
        .attribute_text(attributes::SESSION)
        .map_err(gone_or_unreadable)?;
    if session.as_deref() != Some(attestation.session.as_str()) {
        return Err(Verdict::Foreign(Foreign::OtherSession));
    }
    Ok(())
}

fn gone_or_unreadable(error: IoError) -> Verdict {
    if error.is_gone() {
        Verdict::Gone
    } else {
        Verdict::Unreadable(error.into())
    }
}
