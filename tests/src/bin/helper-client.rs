//! A process that speaks to a helper by itself: `helper-client SOCKET WORD…`. Each word is done in turn and answered with
//! one line; then it sleeps until it is killed.
//!
//!     enrol=ID[,PARENT]   create-and-enrol; says `enrolled PATH`, or `refused CODE SOCKET`
//!     freeze=ID thaw=ID   by the user's flag, after an open
//!     hold=ID lease=ID    on this connection
//!     remove=ID           one pass
//!     kill=ID             and nothing is said if that was its own
//!     list                the ids, with commas
//!     state=ID            poisoned, and whether it is populated
//!     create=ID           an empty leaf, which is this connection's until somebody leads it
//!     adopt=ID,PID        into that leaf
//!     forge=ID,PID        create-and-enrol with credentials in the message that name another process
//!     inherit=WORD        a child does WORD over this connection, after this process has ended
//!     why=WORD            WORD, and what a refusal says in full
//!     open=ID             where its leaf lies
//!     mistaken=ID         kills, with another nonce
//!     crowd=N             N more connections that say Hello, kept; says how many were let in
//!     silent=N            N more connections that say nothing, kept
//!     fork                a child that sleeps too
//!     headless            the main thread ends, and another one goes on
//!     exit                ends here

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use cgleaf_shared::id::Nonce;
use cgleaf_shared::process::{Pid, Pidfd, Proc, State};
use cgleaf_shared::wire::{self, FreezeFlag, Reply, Request, Target};
use cgleaf_tests::helper::{Client, session};
use cgleaf_tests::scratch::wait_until;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let socket = arguments.next().expect("a socket");
    let connected = match socket
        .strip_prefix("inherited:")
        .and_then(|rest| rest.split_once(':'))
    {
        Some((number, maker)) => Client::inherited(
            number.parse().expect("a number"),
            maker.parse().expect("a pid"),
        ),
        None => Client::connect(Path::new(&socket)),
    };
    let client = match connected {
        Ok(client) => client,
        Err(why) => {
            println!("unreachable {why}");
            return ExitCode::FAILURE;
        }
    };
    act_on(client, &socket, arguments.collect())
}

fn act_on(client: Client, socket: &str, words: Vec<String>) -> ExitCode {
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if let Some(word) = word.strip_prefix("inherit=") {
            return leave_to_a_child(&client, word);
        }
        if word == "exit" {
            return ExitCode::SUCCESS;
        }
        if word == "headless" {
            let socket = socket.to_owned();
            std::thread::spawn(move || {
                wait_until("the main thread's end", main_has_ended);
                act_on(client, &socket, words.collect())
            });
            cgleaf_tests::sys::end_this_thread();
        }
        let line = act(&client, Path::new(socket), &word);
        println!("{line}");
        if line.starts_with("unreachable") {
            return ExitCode::FAILURE;
        }
    }
    loop {
        std::thread::sleep(std::time::Duration::from_secs(3600));
    }
}

fn main_has_ended() -> bool {
    let stat = Proc::system().and_then(|proc| proc.process(Pid::own())?.stat());
    stat.is_ok_and(|stat| stat.state == State::Zombie)
}

/// Starts this program again, on a connection that is then nobody's but its own, and ends.
fn leave_to_a_child(client: &Client, word: &str) -> ExitCode {
    let flags = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty());
    nix::fcntl::fcntl(client, flags).expect("pass the connection on");
    #[allow(clippy::zombie_processes)]
    std::process::Command::new(std::env::current_exe().expect("own path"))
        .arg(format!(
            "inherited:{}:{}",
            client.as_fd().as_raw_fd(),
            std::process::id()
        ))
        .args([word, "exit"])
        .spawn()
        .expect("a child");
    ExitCode::SUCCESS
}

fn act(client: &Client, socket: &Path, word: &str) -> String {
    if word == "list" {
        let ids: Vec<String> = client
            .list()
            .iter()
            .map(|entry| entry.attestation.session.to_string())
            .collect();
        return format!("sessions {}", ids.join(","));
    }
    if word == "fork" {
        // Nobody waits for it: it ends with the session.
        #[allow(clippy::zombie_processes)]
        let child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .expect("a child");
        return format!("forked {}", child.id());
    }
    let (verb, what) = word.split_once('=').expect("VERB=ID");
    if verb == "why" {
        FULLY.store(true, Ordering::Relaxed);
        let line = act(client, socket, what);
        FULLY.store(false, Ordering::Relaxed);
        return line;
    }
    if verb == "enrol" {
        let (id, parent) = what
            .split_once(',')
            .map_or((what, None), |(id, parent)| (id, Some(parent)));
        let mut new = session(id);
        new.parent = parent.map(|parent| parent.parse().expect("an id"));
        return match client.try_call(&Request::CreateAndEnrol { new }) {
            Ok(reply) => told(reply),
            Err(why) => format!("unreachable {why}"),
        };
    }
    if verb == "forge" {
        let (id, pid) = what.split_once(',').expect("ID,PID");
        return forge(client, id, pid.parse().expect("a pid"));
    }
    if verb == "crowd" || verb == "silent" {
        return crowd(socket, verb == "crowd", what.parse().expect("a number"));
    }
    if verb == "create" {
        return told(client.call(&Request::Create { new: session(what) }));
    }
    let (what, more) = what.split_once(',').unwrap_or((what, ""));
    let session = what.parse().expect("an id");
    let opened = match client.call(&Request::Open { session }) {
        Reply::Opened(opened) => opened,
        other => return told(other),
    };
    if verb == "state" {
        let state = opened.entry.state;
        return format!("poisoned {} populated {}", state.poisoned, state.populated);
    }
    let mut target = Target::from(&opened.entry.attestation);
    if verb == "open" {
        return format!("open {}", opened.entry.attestation.leaf_path);
    }
    if verb == "mistaken" {
        target.nonce = Nonce::from_bytes([0; 16]);
        return told(client.call(&Request::Kill { target }));
    }
    if verb == "adopt" {
        let pid = Pid::new(more.parse().expect("a pid")).expect("a pid");
        let pidfd = Pidfd::open(pid).expect("a pidfd");
        return told(
            client
                .call_full(&Request::Adopt { target }, Some(pidfd.as_fd()))
                .0,
        );
    }
    told(client.call(&match verb {
        "freeze" => Request::Freeze {
            target,
            flag: FreezeFlag::User,
        },
        "hold" => Request::Freeze {
            target,
            flag: FreezeFlag::Hold,
        },
        "thaw" => Request::Thaw {
            target,
            flag: FreezeFlag::User,
        },
        "lease" => Request::Lease { target },
        "kill" => Request::Kill { target },
        "remove" => Request::Remove { target },
        other => panic!("{other} is no word"),
    }))
}

/// Whether refusals are told in full.
static FULLY: AtomicBool = AtomicBool::new(false);

fn told(reply: Reply) -> String {
    match reply {
        Reply::Created(created) => format!("enrolled {}", created.attestation.leaf_path),
        Reply::Refused(refusal) if FULLY.load(Ordering::Relaxed) => {
            format!("refused {:?}: {}", refusal.kind(), refusal.message)
        }
        Reply::Refused(refusal) => format!("refused {:?} {}", refusal.kind(), refusal.socket),
        Reply::FreezeRequested => "frozen".to_owned(),
        Reply::Thawed(_) => "thawed".to_owned(),
        Reply::Leased => "leased".to_owned(),
        Reply::Killed => "killed".to_owned(),
        Reply::Removed(removal) => format!("removed {}", removal.removed),
        other => format!("{other:?}"),
    }
}

fn forge(client: &Client, id: &str, pid: i32) -> String {
    let bytes =
        wire::encode_request(&Request::CreateAndEnrol { new: session(id) }).expect("a request");
    let forged = nix::sys::socket::UnixCredentials::from(libc::ucred {
        pid,
        uid: 0,
        gid: 0,
    });
    nix::sys::socket::sendmsg::<()>(
        client.as_fd().as_raw_fd(),
        &[std::io::IoSlice::new(&bytes)],
        &[nix::sys::socket::ControlMessage::ScmCredentials(&forged)],
        nix::sys::socket::MsgFlags::empty(),
        None,
    )
    .expect("send forged credentials");
    let packet = client.receive().expect("a reply");
    told(wire::decode_reply(&packet.bytes).expect("a reply"))
}

/// Connections that stay open for as long as this process lives.
fn crowd(socket: &Path, greet: bool, number: usize) -> String {
    let mut let_in = 0;
    for _ in 0..number {
        let Ok(connected) = Client::connect_silently(socket) else {
            continue;
        };
        if !greet {
            std::mem::forget(connected);
            let_in += 1;
        } else if let Ok(client) = Client::greet(connected) {
            std::mem::forget(client);
            let_in += 1;
        }
    }
    format!("in {let_in}")
}
