//! A leaf made and removed again, to see what can be had here.

use std::time::Duration;

use cgleaf_shared::attestation::{Verdict, verify};
use cgleaf_shared::cgroup::{CgroupPath, ControlFile};
use cgleaf_shared::id::SessionId;
use cgleaf_shared::wire::{Created, FreezeFlag, NewSession, Reply, Request, Target};

use super::reach::{Reach, unexpected};
use crate::client::{Client, Deadline};
use crate::error::{Error, Result};
use crate::launch;

/// How long an empty leaf may take to freeze: nothing in it has to be waited for.
const FREEZE: Duration = Duration::from_secs(2);

/// What was seen on the leaf.
#[derive(Debug)]
pub struct Probe {
    /// The helper that made it, still connected: a private one lives as long as it has a client.
    pub client: Client,
    /// Where it was.
    pub leaf: CgroupPath,
    /// Whether it had `cgroup.kill`; `None` where the leaf cannot be seen from here, as in a container.
    pub kill: Option<bool>,
    /// Whether it could be frozen and thawed; if not, why.
    pub freezer: std::result::Result<(), String>,
    /// Why it is still there, if so.
    pub leftover: Option<String>,
}

/// Has a helper, which is started if none runs, make a leaf, tries it, and has it removed.
///
/// # Errors
/// Why no leaf can be had.
pub fn probe_leaf(reach: &Reach) -> Result<Probe> {
    let session = SessionId::generate()?;
    let new = NewSession {
        session,
        name: None,
        parent: None,
    };
    let (mut client, Created { attestation, .. }) = launch::empty_leaf(&reach.site(), new)?;
    let target = Target::from(&attestation);
    let kill = reach
        .root()
        .ok()
        .and_then(|root| match verify(&attestation, root) {
            Verdict::Proven(dir) => Some(dir.has(ControlFile::Kill)),
            _ => None,
        });
    let freezer = freeze_and_thaw(&mut client, &target).map_err(|error| error.message().to_owned());
    let leftover = match client.call(&Request::Remove { target }) {
        Ok(Reply::Removed(removal)) if removal.removed => None,
        Ok(Reply::Removed(removal)) => {
            Some(format!("it could not be removed: {:?}", removal.leftover))
        }
        Ok(_) => Some(unexpected(&client, "remove").message().to_owned()),
        Err(error) => Some(error.message().to_owned()),
    };
    Ok(Probe {
        client,
        leaf: attestation.leaf_path.clone(),
        kill,
        freezer,
        leftover,
    })
}

fn freeze_and_thaw(client: &mut Client, target: &Target) -> Result<()> {
    let flag = FreezeFlag::Hold;
    let request = Request::Freeze {
        target: target.clone(),
        flag,
    };
    client.call(&request)?;
    let deadline = Deadline::after(FREEZE);
    loop {
        let request = Request::IsFrozen {
            target: target.clone(),
        };
        match client.call(&request)? {
            Reply::Frozen { not_yet: None } => break,
            Reply::Frozen { .. } if deadline.left().is_some() => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Reply::Frozen { .. } => {
                return Err(Error::new(
                    crate::error::Code::Timeout,
                    "an empty leaf does not freeze",
                ));
            }
            _ => return Err(unexpected(client, "frozen?")),
        }
    }
    let request = Request::Thaw {
        target: target.clone(),
        flag,
    };
    client.call(&request).map(|_| ())
}
