//! Which helper to ask: the sockets in their order (DESIGN 3.1).

use std::path::{Path, PathBuf};

use cgleaf_shared::wire::{Mode, RefusalCode, Reply, Request};

use super::errors::refusal_of;
use super::{Client, Deadline};
use crate::base::Base;
use crate::error::{Code, Error, Result};

/// One socket that was looked at, and what came of it.
#[derive(Debug, Clone)]
pub struct Looked {
    /// The socket.
    pub socket: PathBuf,
    /// Who named it: `--socket`, `CGLEAF_SOCKET`, or the mode whose place it is.
    pub named_by: String,
    /// Why it is not used; empty for the one that answers.
    pub why_not: String,
    /// Nobody listens there, which is nothing to worry about.
    pub absent: bool,
    /// The node service listens there, and this is a process of its machine: it serves containers only, which is nothing to worry
    /// about either.
    pub serves_containers: bool,
}

impl Looked {
    /// Somebody listens there and cannot be used.
    pub fn is_trouble(&self) -> bool {
        !self.absent && !self.serves_containers && !self.why_not.is_empty()
    }

    fn answers(named_by: String, socket: PathBuf) -> Self {
        Self {
            socket,
            named_by,
            why_not: String::new(),
            absent: false,
            serves_containers: false,
        }
    }

    fn not_used(named_by: String, socket: PathBuf, error: &Error) -> Self {
        Self {
            socket,
            named_by,
            why_not: error.message().to_owned(),
            absent: is_absent(error),
            serves_containers: false,
        }
    }
}

/// Whether it is the node service's place, and whoever listens there serves nobody where this process is: a process of the
/// machine, which sees that service's pid. In a container that it does not know there is none to be seen, and something is amiss.
fn serves_containers(named_by: &str, client: &Client, error: &Error) -> bool {
    named_by == Mode::NodeService.name()
        && refusal_of(error) == Some(RefusalCode::PlaceNotServed)
        && client.peer_pid().is_some()
}

/// Whether the error says that nobody listens at a socket, as opposed to somebody who does not answer or may not be
/// trusted.
pub(crate) fn is_absent(error: &Error) -> bool {
    let errno = error
        .details()
        .get("errno")
        .and_then(serde_json::Value::as_i64);
    let absent = [
        libc::ENOENT,
        libc::ECONNREFUSED,
        libc::ECONNRESET,
        libc::EPIPE,
        libc::ENOTDIR,
        libc::EACCES,
    ];
    error.code() == Code::HelperUnreachable
        && errno.is_some_and(|errno| absent.iter().any(|one| i64::from(*one) == errno))
}

/// The sockets at which a new session is asked for, each with who named it: a named one alone, else each mode's place.
pub fn places(base: &Base, named: Option<&Path>) -> Vec<(String, PathBuf)> {
    if let Some(path) = named {
        return vec![("--socket".to_owned(), path.to_path_buf())];
    }
    if let Some(path) = std::env::var_os("CGLEAF_SOCKET").filter(|value| !value.is_empty()) {
        return vec![("CGLEAF_SOCKET".to_owned(), PathBuf::from(path))];
    }
    base.sockets()
        .into_iter()
        .map(|(mode, path)| (mode.name().to_owned(), path))
        .collect()
}

/// The sockets of every helper that may have a session: those, and the ones of helpers that were given a directory while another
/// had the usual place (docs/adr/0006).
pub fn all_places(base: &Base, named: Option<&Path>) -> Vec<(String, PathBuf)> {
    let mut places = places(base, named);
    if !places.iter().any(|(by, _)| is_named(by)) {
        let others = base.sockets_of_directories().into_iter();
        places.extend(others.map(|path| (Mode::Direct.name().to_owned(), path)));
    }
    places
}

/// Whether somebody chose this socket, so that no other will do, and nobody's silence there is an answer.
pub(crate) fn is_named(named_by: &str) -> bool {
    matches!(named_by, "--socket" | "CGLEAF_SOCKET")
}

/// The error of a socket that was named, where nobody says what there is: why not, behind what was tried. One that listens
/// (`is_absent` is false) need not be started.
pub(crate) fn unanswered(named_by: &str, socket: &Path, why: &str, is_absent: bool) -> Error {
    let socket = socket.display();
    let next = if is_absent {
        "start it, or name another"
    } else {
        "name another, or none"
    };
    Error::new(
        Code::HelperUnreachable,
        format!(
            "asked the helper at {socket}, which {named_by} names, and it does not tell which sessions there are: {why}; {next}"
        ),
    )
    .with("socket", socket.to_string())
}

/// Connects to the first helper whose socket can be connected to and whose peer is to be trusted. Every socket that was
/// looked at is told. Nothing is asked yet: a helper that is just ending resets the connection at the first request,
/// and the caller then looks again.
pub fn find(base: &Base, named: Option<&Path>) -> (Option<Client>, Vec<Looked>) {
    let mut looked = Vec::new();
    for (named_by, socket) in places(base, named) {
        match Client::connect(&socket) {
            Ok(client) => {
                looked.push(Looked::answers(named_by, socket));
                return (Some(client), looked);
            }
            Err(error) => looked.push(Looked::not_used(named_by, socket, &error)),
        }
    }
    (None, looked)
}

/// Connects to every helper that answers.
pub fn find_all(base: &Base, named: Option<&Path>) -> (Vec<Client>, Vec<Looked>) {
    let mut clients = Vec::new();
    let mut looked = Vec::new();
    for (named_by, socket) in all_places(base, named) {
        match Client::connect(&socket) {
            Err(error) => looked.push(Looked::not_used(named_by, socket, &error)),
            Ok(mut client) => match ask(&mut client) {
                Ok(()) => {
                    looked.push(Looked::answers(named_by, socket));
                    clients.push(client);
                }
                Err(error) => looked.push(Looked {
                    serves_containers: serves_containers(&named_by, &client, &error),
                    ..Looked::not_used(named_by, socket, &error)
                }),
            },
        }
    }
    (clients, looked)
}

/// Connects, and makes sure that a helper answers there: one that is just ending resets the connection.
///
/// # Errors
/// HELPER_UNREACHABLE, REFUSED, PROTOCOL.
pub fn open(socket: &Path) -> Result<Client> {
    let mut client = Client::connect(socket)?;
    ask(&mut client).map(|()| client)
}

fn ask(client: &mut Client) -> Result<()> {
    // List is served across versions, so that an old helper is found too.
    let (reply, _) = client.call_full(
        &Request::List { after: None },
        None,
        Deadline::after(Deadline::REQUEST),
    )?;
    match reply {
        Reply::Sessions { .. } => Ok(()),
        Reply::Refused(refusal) => Err(super::refused(&refusal)),
        _ => Err(Error::new(
            Code::Protocol,
            "the helper answers list with something else",
        )),
    }
}
