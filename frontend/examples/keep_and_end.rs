//! A host in a few lines: starts a program that leaves a daemon behind, shows what runs, freezes it, and ends all of it.
//!
//!     cargo run -p cgleaf --no-default-features --example keep_and_end

use std::error::Error;
use std::time::Duration;

use cgleaf::ops::WaitOutcome;
use cgleaf::process::{Liveness, Proc, liveness};
use cgleaf::sessions::{Sessions, Start};

fn main() -> Result<(), Box<dyn Error>> {
    let sessions = Sessions::of_this_user()?;
    // The second sleep is a daemon: another POSIX session, another parent. No process group and no kill(2) of a host finds it.
    let script = "setsid sleep 600 & exec sleep 600";
    let session = sessions.start(&Start::program(["sh", "-c", script]))?;
    let id = session.id.clone();
    println!("started {id}: {}", sessions.look(&session).state.name());

    // As a host that has only the id, since the one that started it has died.
    let session = sessions.find(id.as_str())?;
    let members = loop {
        let members = sessions.processes(&session)?.members;
        // The shell has not forked yet, or has not become the first sleep.
        if members.len() == 2
            && members
                .iter()
                .all(|member| member.argv.first().is_some_and(|word| word == "sleep"))
        {
            break members;
        }
    };
    for member in &members {
        println!("  {} {:?}", member.pid, member.argv);
    }

    sessions.freeze(&session)?;
    println!("now {}", sessions.look(&session).state.name());
    sessions.thaw(&session)?;

    let proc = Proc::system()?;
    let processes: Vec<_> = members
        .iter()
        .map(|member| proc.process(member.pid)?.stat())
        .collect::<Result<_, _>>()?;
    let destroyed = sessions.destroy(id.as_str(), &Default::default())?;
    println!("destroyed {id}: {} processes", destroyed.killed);

    for process in processes {
        assert_eq!(liveness::of(&proc, process.id), Liveness::Dead);
    }
    let over = sessions.wait(&sessions.find(id.as_str())?, Some(Duration::from_secs(10)))?;
    assert!(matches!(over, WaitOutcome::Ended(_)));
    println!("all of them are gone");
    Ok(())
}
