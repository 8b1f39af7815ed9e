//! A lease: the helper ends the session when the connection does (`--die-with-frontend`).

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use cgleaf_shared::wire::{Reply, Request, Target};

use super::Site;
use super::helper::{self, Asked};
use crate::client::{Client, Deadline};
use crate::error::{Code, Error, Result};
use crate::records::Record;

/// A lease: the session ends with this value, which is with its holder, however that ends.
#[derive(Debug, Default)]
pub struct Lease {
    client: Option<Client>,
}

/// A helper that was restarted waits this long for the holder of a lease (DESIGN 3.2).
const RETURN_TIME: Duration = Duration::from_secs(10);

impl Lease {
    /// Asks for it over the connection that made the leaf. That is to be kept then.
    ///
    /// # Errors
    /// What the helper refuses.
    pub(super) fn take(client: &mut Client, record: &Record) -> Result<Self> {
        ask(client, record)?;
        Ok(Self::default())
    }

    /// Keeps the connection.
    pub(super) fn keep(&mut self, client: Client) {
        self.client = Some(client);
    }

    /// The connection, which can be read when it has ended.
    pub(super) fn connection(&self) -> Option<BorrowedFd<'_>> {
        self.client.as_ref().map(AsFd::as_fd)
    }

    /// Comes back after the helper has ended: to its successor, which is started if need be.
    ///
    /// # Errors
    /// HELPER_UNREACHABLE when that takes too long; what it refuses.
    pub fn renew(site: &Site<'_>, record: &Record) -> Result<Self> {
        let deadline = Deadline::after(RETURN_TIME);
        loop {
            match again(site, record) {
                Ok(client) => {
                    return Ok(Self {
                        client: Some(client),
                    });
                }
                Err(error) if deadline.left().is_none() => return Err(error),
                Err(error)
                    if matches!(
                        error.code(),
                        Code::HelperUnreachable | Code::SessionNotFound | Code::Unsupported
                    ) =>
                {
                    // A service manager starts it again by itself.
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn ask(client: &mut Client, record: &Record) -> Result<()> {
    let Some(attestation) = &record.attestation else {
        return Ok(());
    };
    let target = Target::from(attestation);
    match client.call(&Request::Lease { target })? {
        Reply::Leased => Ok(()),
        _ => Err(Error::new(
            Code::Protocol,
            "the helper answers lease with something else",
        )),
    }
}

/// The helper that has its socket has the session too, where another was named for new ones meanwhile, or it is the one of a session
/// around this.
fn again(site: &Site<'_>, record: &Record) -> Result<Client> {
    let session = record.session.clone();
    let its_own = record.helper.as_ref().map(|helper| &helper.socket);
    if let Some(mut client) = its_own.and_then(|socket| Client::connect(socket).ok())
        && let Ok(Reply::Opened(_)) = client.call(&Request::Open {
            session: session.clone(),
        })
    {
        ask(&mut client, record)?;
        return Ok(client);
    }
    match helper::ask(site, &Request::Open { session })? {
        Asked::Answered(answered) => {
            let mut client = answered.client;
            ask(&mut client, record)?;
            Ok(client)
        }
        Asked::NotServed(said) => Err(Error::new(Code::HelperUnreachable, said.join("; "))),
        Asked::MoveDenied(refusal) => Err(crate::client::refused(&refusal)),
    }
}
