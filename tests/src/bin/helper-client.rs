//! A process that speaks to a helper by itself: `helper-client SOCKET WORD…`. Each word is done in turn and answered with
//! one line; then it sleeps until it is killed.
//!
//!     enrol=ID[,PARENT]   create-and-enrol; says `enrolled PATH`, or `refused CODE SOCKET`
//!     freeze=ID thaw=ID   by the user's flag, after an open
//!     hold=ID lease=ID    on this connection
//!     kill=ID             and nothing is said if that was its own
//!     list                the ids, with commas
//!     fork                a child that sleeps too
//!     exit                ends here

use std::path::Path;
use std::process::ExitCode;

use cgleaf_shared::wire::{FreezeFlag, Reply, Request, Target};
use cgleaf_tests::helper::{Client, session};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let socket = arguments.next().expect("a socket");
    let client = match Client::connect(Path::new(&socket)) {
        Ok(client) => client,
        Err(why) => {
            println!("unreachable {why}");
            return ExitCode::FAILURE;
        }
    };
    for word in arguments {
        if word == "exit" {
            return ExitCode::SUCCESS;
        }
        println!("{}", act(&client, &word));
    }
    loop {
        std::thread::sleep(std::time::Duration::from_secs(3600));
    }
}

fn act(client: &Client, word: &str) -> String {
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
    if verb == "enrol" {
        let (id, parent) = what
            .split_once(',')
            .map_or((what, None), |(id, parent)| (id, Some(parent)));
        let mut new = session(id);
        new.parent = parent.map(|parent| parent.parse().expect("an id"));
        return told(client.call(&Request::CreateAndEnrol { new }));
    }
    let session = what.parse().expect("an id");
    let opened = match client.call(&Request::Open { session }) {
        Reply::Opened(opened) => opened,
        other => return told(other),
    };
    let target = Target::from(&opened.entry.attestation);
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
        other => panic!("{other} is no word"),
    }))
}

fn told(reply: Reply) -> String {
    match reply {
        Reply::Created(created) => format!("enrolled {}", created.attestation.leaf_path),
        Reply::Refused(refusal) => format!("refused {:?} {}", refusal.kind(), refusal.socket),
        Reply::FreezeRequested => "frozen".to_owned(),
        Reply::Thawed(_) => "thawed".to_owned(),
        Reply::Leased => "leased".to_owned(),
        Reply::Killed => "killed".to_owned(),
        other => format!("{other:?}"),
    }
}
