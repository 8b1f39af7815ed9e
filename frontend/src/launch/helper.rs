//! Asking for a new session: the helpers in their order, one that is started where none answers, and the one whose session
//! the caller is in already (DESIGN 3.1).

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cgleaf_shared::id::Uid;
use cgleaf_shared::wire::{Created, Mode, NewSession, Refusal, RefusalCode, Reply, Request};

use super::Site;
use super::named_directory::{NamedDirectory, is_inside_a_session};
use super::start_helper::{self, Way};
use crate::client::{
    Client, Deadline, Patience, Unreachable, interest, is_known_mute, is_named, places, refusal_of,
    refused,
};
use crate::error::{Code, Error, Result};

/// What a helper answered.
#[derive(Debug)]
pub(super) struct Answered {
    /// Who.
    pub(super) client: Client,
    /// What. Never a refusal.
    pub(super) reply: Reply,
    /// The descriptor that came with it.
    pub(super) descriptor: Option<OwnedFd>,
}

/// What asking all of them came to.
#[derive(Debug)]
pub(super) enum Asked {
    /// One did it.
    Answered(Box<Answered>),
    /// There is none, or none serves the place where this process is: what each said.
    NotServed(Vec<String>),
    /// The kernel does not let the helper move this process from where it is.
    MoveDenied(Refusal),
}

/// How often a helper is started in one call: two frontends may race, and a helper may be just ending.
const MOST_STARTS: u32 = 3;
/// How long to wait before looking again for a helper that is just ending, or just beginning.
const PAUSE: Duration = Duration::from_millis(5);
/// How long a helper that has its lock may be without a socket: it takes the one, finds its place, and binds the other. On a
/// loaded machine that takes a second.
const BINDING: Duration = Duration::from_secs(10);

/// Asks the helpers in their order for something that begins a session.
///
/// # Errors
/// Every refusal but "place not served" and a move that was denied; HELPER_UNREACHABLE for a named socket where nobody
/// listens, or when the time is over.
pub(super) fn ask(site: &Site<'_>, request: &Request) -> Result<Asked> {
    Search::new(site, request)?.run()
}

/// A helper that serves this process, started if none answers: for what needs one although it begins no session, as the
/// leaves of a helper that is gone (it takes them over).
///
/// # Errors
/// HELPER_UNREACHABLE: there is none, and none can be started; what each said.
pub fn connect_or_start(site: &Site<'_>) -> Result<Client> {
    match ask(site, &Request::Status)? {
        Asked::Answered(answered) => Ok(answered.client),
        Asked::NotServed(said) => Err(Error::new(Code::HelperUnreachable, said.join("; "))),
        Asked::MoveDenied(refusal) => Err(refused(&refusal)),
    }
}

/// An empty leaf of the helper that a session would get, for a trial: whoever asks removes it.
///
/// # Errors
/// UNSUPPORTED: no helper serves this place; what each said. Whatever one refuses.
pub(crate) fn empty_leaf(site: &Site<'_>, new: NewSession) -> Result<(Client, Created)> {
    match ask(site, &Request::Create { new })? {
        Asked::Answered(answered) => match answered.reply {
            Reply::Created(created) => Ok((answered.client, created)),
            _ => Err(Error::new(
                Code::Protocol,
                "the helper answers a create with something else",
            )),
        },
        Asked::NotServed(said) => Err(Error::new(
            Code::Unsupported,
            format!("no leaf can be had here: {}", reasons(&said)),
        )),
        Asked::MoveDenied(refusal) => Err(refused(&refusal)),
    }
}

/// What each helper, or the lack of one, said.
pub(super) fn reasons(said: &[String]) -> String {
    if said.is_empty() {
        "no helper answers".to_owned()
    } else {
        said.join("; ")
    }
}

/// The helper that is started here where none answers, also where another one, such as a service, does: only the one that
/// takes over the scope directories of its kind can have the leaves in them.
///
/// # Errors
/// HELPER_UNREACHABLE: it cannot be started, or a socket was named.
pub(crate) fn start_own(site: &Site<'_>) -> Result<Client> {
    let mut search = Search::new(site, &Request::Status)?;
    let said = if search.directory.is_some() {
        match search.run()? {
            Asked::Answered(answered) => return Ok(answered.client),
            Asked::NotServed(said) => said,
            Asked::MoveDenied(refusal) => vec![refusal.message],
        }
    } else {
        while let Some(way) = search.way_to_start() {
            search.said.clear();
            let attempt = match Client::connect(&search.socket_of(&way)) {
                Ok(client) => search.attempt(client)?,
                Err(_) => search.ask_a_new_one(&way)?,
            };
            match attempt {
                Attempt::Done(Asked::Answered(answered)) => return Ok(answered.client),
                Attempt::Again | Attempt::Locked => search.pause()?,
                Attempt::Done(_) | Attempt::NotServed | Attempt::Elsewhere => break,
            }
        }
        search.said
    };
    Err(Error::new(
        Code::HelperUnreachable,
        format!(
            "no helper has the leaf, and none could be started for it: {}",
            said.join("; ")
        ),
    ))
}

struct Search<'a> {
    site: &'a Site<'a>,
    request: &'a Request,
    deadline: Deadline,
    /// The directory that was named for leaves: nobody but its helper is asked.
    directory: Option<NamedDirectory>,
    /// Whether the usual socket of direct mode is that of another directory's helper.
    usual_is_anothers: bool,
    /// What each helper, or the lack of one, said.
    said: Vec<String>,
    /// The sockets whose helpers do not serve this place.
    refused_at: Vec<PathBuf>,
    /// Until when a helper that has its lock may be without a socket.
    locked: Option<Deadline>,
}

enum Attempt {
    Done(Asked),
    NotServed,
    /// It was not asked, since its leaves lie elsewhere than was named.
    Elsewhere,
    /// The helper was just ending: look again.
    Again,
    /// Another one has the place, and may be just beginning: look again.
    Locked,
}

impl<'a> Search<'a> {
    fn new(site: &'a Site<'_>, request: &'a Request) -> Result<Self> {
        Ok(Self {
            site,
            request,
            deadline: Deadline::after(Deadline::REQUEST),
            directory: NamedDirectory::of(site)?,
            usual_is_anothers: false,
            said: Vec::new(),
            refused_at: Vec::new(),
            locked: None,
        })
    }

    fn run(mut self) -> Result<Asked> {
        let mut starts = 1;
        loop {
            self.said.clear();
            match self.ask_those_there_are()? {
                Attempt::Done(asked) => return Ok(asked),
                Attempt::Again | Attempt::Locked => {
                    self.pause()?;
                    continue;
                }
                Attempt::NotServed | Attempt::Elsewhere => {}
            }
            if self.directory.is_some() && is_inside_a_session().unwrap_or(false) {
                // Rule 1 goes before what was named: the helper of that session is found by any other.
                self.directory = None;
                continue;
            }
            let Some(way) = self.way_to_start() else {
                return Ok(Asked::NotServed(self.said));
            };
            match self.ask_a_new_one(&way)? {
                Attempt::Done(asked) => return Ok(asked),
                Attempt::Locked => self.pause()?,
                Attempt::Again if starts < MOST_STARTS => {
                    starts += 1;
                    self.pause()?;
                }
                Attempt::Again | Attempt::NotServed | Attempt::Elsewhere => {
                    return Ok(Asked::NotServed(self.said));
                }
            }
        }
    }

    fn pause(&self) -> Result<()> {
        if self.deadline.left().is_none() {
            return Err(self.nobody_in_time());
        }
        std::thread::sleep(PAUSE);
        interest::require()
    }

    fn nobody_in_time(&self) -> Error {
        Error::new(
            Code::HelperUnreachable,
            format!("no helper answered in time: {}", self.said.join("; ")),
        )
    }

    fn ask_those_there_are(&mut self) -> Result<Attempt> {
        let mut answer = Attempt::NotServed;
        self.usual_is_anothers = false;
        for (named_by, socket) in self.places() {
            if self.refused_at.contains(&socket) {
                continue;
            }
            match Client::connect(&socket) {
                Err(error) if is_named(&named_by) => return Err(error),
                // Whoever has limits to his patience is told, and starts no other one in its place.
                Err(error) if is_known_mute(&socket) => return Err(error),
                // That nobody is there is the usual case, and told by doctor.
                Err(error) if error.code() == Code::HelperUnreachable => {}
                Err(error) => self.said.push(error.message().to_owned()),
                Ok(client) => match self.attempt_here(client, &named_by)? {
                    Attempt::NotServed => self.refused_at.push(socket),
                    Attempt::Elsewhere => {}
                    again @ (Attempt::Again | Attempt::Locked) => answer = again,
                    done @ Attempt::Done(_) => return Ok(done),
                },
            }
        }
        Ok(answer)
    }

    fn places(&self) -> Vec<(String, PathBuf)> {
        match &self.directory {
            Some(directory) => directory.places(),
            None => places(self.site.base, self.site.socket),
        }
    }

    /// Asks one that was there already.
    fn attempt_here(&mut self, mut client: Client, named_by: &str) -> Result<Attempt> {
        let Some(directory) = &self.directory else {
            let attempt = self.attempt(client)?;
            return Ok(match attempt {
                // Its directory may be one that it was given for others, and nobody has named it for this process, which may be
                // served by a helper of its own all the same.
                Attempt::Done(Asked::MoveDenied(refusal)) if named_by == Mode::Direct.name() => {
                    self.said.push(refusal.message);
                    Attempt::NotServed
                }
                other => other,
            });
        };
        if directory.is_anothers(&mut client, self.deadline)? {
            self.usual_is_anothers = true;
            return Ok(Attempt::Elsewhere);
        }
        self.attempt(client)
    }

    /// The socket that a helper binds which is started in that way.
    fn socket_of(&self, way: &Way) -> PathBuf {
        match &self.directory {
            Some(directory) => directory.socket(self.usual_is_anothers),
            None => way.socket(self.site.base),
        }
    }

    /// How a helper can be started here; `None` where one was named, or where that one has said already that it does not
    /// serve this place.
    fn way_to_start(&mut self) -> Option<Way> {
        let named = places(self.site.base, self.site.socket);
        if named.iter().any(|(by, _)| is_named(by)) {
            return None;
        }
        match Way::here(self.site) {
            Ok(way) if self.refused_at.contains(&self.socket_of(&way)) => None,
            Ok(way) => Some(way),
            Err(error) => {
                self.said.push(error.message().to_owned());
                None
            }
        }
    }

    fn ask_a_new_one(&mut self, way: &Way) -> Result<Attempt> {
        let socket = self.socket_of(way);
        let new = match start_helper::start(self.site, way, &socket) {
            Ok(new) => new,
            Err(error) => {
                self.said.push(error.message().to_owned());
                return Ok(Attempt::NotServed);
            }
        };
        let (client, words) = new.into_parts();
        let attempt = {
            let _patience = Patience::of_a_new_one();
            self.attempt(client)?
        };
        match attempt {
            Attempt::Again => {
                // Its last words say more than that it hung up.
                self.said.pop();
                let words = words.read();
                if words.mentions("OOMPolicy") && way.asks_for_oom_policy() {
                    return self.ask_a_new_one(&way.without_oom_policy());
                }
                self.said.push(format!("{}: {words}", way.shown()));
                if words.is_empty() && words.go_on() {
                    return Err(self.nobody_in_time());
                }
                if words.mentions(start_helper::ANOTHER_HAS_IT) {
                    return self.locked(&socket);
                }
                // Without a word it was killed: that says nothing of the next.
                Ok(if words.is_empty() {
                    Attempt::Again
                } else {
                    Attempt::NotServed
                })
            }
            other => Ok(other),
        }
    }

    /// Another helper has the lock. One that has no socket for long has lost it, and nobody will ever reach it: it is ended, so
    /// that the next takes its sessions over.
    fn locked(&mut self, socket: &Path) -> Result<Attempt> {
        let locked = *self.locked.get_or_insert(Deadline::after(BINDING));
        if locked.left().is_none() {
            self.locked = None;
            if let Some(Err(why)) = Unreachable::find(socket).map(|one| one.end()) {
                return Err(Error::new(Code::HelperUnreachable, why));
            }
        }
        Ok(Attempt::Locked)
    }

    fn attempt(&mut self, mut client: Client) -> Result<Attempt> {
        let (reply, descriptor) = match client.call_full(self.request, None, self.deadline) {
            Ok(answer) => answer,
            // Before Welcome nothing was done: that one is just ending, or did not start.
            Err(error) if is_known_mute(client.path()) => return Err(error),
            Err(error) if error.code() == Code::HelperUnreachable && client.welcome().is_none() => {
                self.said.push(error.message().to_owned());
                return Ok(Attempt::Again);
            }
            // Before Welcome too. Nobody is ever served whose uid is what a helper sees of all that have no number.
            Err(error)
                if refusal_of(&error) == Some(RefusalCode::IdentityUnproven)
                    && Uid::effective() == Uid::OVERFLOW =>
            {
                self.said.push(error.message().to_owned());
                return Ok(Attempt::NotServed);
            }
            Err(error) => return Err(error),
        };
        let Reply::Refused(refusal) = reply else {
            return Ok(answered(client, reply, descriptor));
        };
        match refusal.kind() {
            RefusalCode::Ending => {
                self.said.push(refusal.message);
                Ok(Attempt::Again)
            }
            RefusalCode::PlaceNotServed => {
                self.said.push(refusal.message);
                Ok(Attempt::NotServed)
            }
            RefusalCode::MoveDenied => Ok(Attempt::Done(Asked::MoveDenied(refusal))),
            RefusalCode::InsideSession => self.ask_the_one_we_are_in(&refusal).map(Attempt::Done),
            _ => Err(with_skew(&client, refused(&refusal))),
        }
    }

    /// Rule 1: who is in a session already is moved only beneath it, by the helper that made it. Asked once.
    fn ask_the_one_we_are_in(&self, refusal: &Refusal) -> Result<Asked> {
        if refusal.socket.is_empty() {
            return Err(refused(refusal));
        }
        let unreachable = |error: Error| {
            error.while_doing(format_args!(
                "{}; ask the helper of that session",
                refusal.message
            ))
        };
        let mut client = Client::connect(Path::new(&refusal.socket)).map_err(unreachable)?;
        let (reply, descriptor) = client
            .call_full(self.request, None, self.deadline)
            .map_err(unreachable)?;
        match reply {
            Reply::Refused(refusal) if refusal.kind() == RefusalCode::MoveDenied => {
                Ok(Asked::MoveDenied(refusal))
            }
            Reply::Refused(refusal) => Err(refused(&refusal)),
            reply => Ok(Asked::Answered(Box::new(Answered {
                client,
                reply,
                descriptor,
            }))),
        }
    }
}

fn answered(client: Client, reply: Reply, descriptor: Option<OwnedFd>) -> Attempt {
    Attempt::Done(Asked::Answered(Box::new(Answered {
        client,
        reply,
        descriptor,
    })))
}

/// A refusal that comes of different versions says so first.
fn with_skew(client: &Client, error: Error) -> Error {
    match client.version_skew() {
        Some(skew) => error.while_doing(skew),
        None => error,
    }
}
