//! The helper killed at random moments: its sessions are found again, nothing stays frozen that no user froze, everything
//! can be ended, and nothing is left.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cgleaf_shared::wire::{FreezeFlag, Reply, Request, SessionEntry, Target};
use cgleaf_tests::helper::{Client, Enrolled, Lair, session};
use cgleaf_tests::scratch::wait_until;

const KILLS: usize = 200;
/// At so many sessions all of them are ended, so that the later rounds are not slower than the first.
const MANY: usize = 40;

/// What the clients have done, as far as they were told.
#[derive(Default)]
struct Done {
    /// Programs that were started.
    programs: Mutex<Vec<(String, Enrolled)>>,
    /// Sessions that a user asked to be frozen, answered or not.
    frozen: Mutex<BTreeSet<String>>,
    next: AtomicU64,
    /// How many sessions with a live program were found again, over all rounds.
    found: AtomicU64,
}

/// Random enough to hit every step of the helper: a counter's bits, mixed.
fn random(done: &Done, below: u64) -> u64 {
    let mut value = done
        .next
        .fetch_add(1, Ordering::Relaxed)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value ^= value >> 31;
    (value.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) % below.max(1)
}

/// One client's share of the load, until the helper is gone.
fn load(lair: &Lair, done: &Done) -> std::io::Result<()> {
    loop {
        let client = Client::connect(&lair.socket())?;
        match random(done, 8) {
            0 | 1 => enrol(lair, done),
            2 => {
                let id = format!("e{}", done.next.fetch_add(1, Ordering::Relaxed));
                client.try_call(&Request::Create { new: session(&id) })?;
            }
            3 => freeze(&client, done, FreezeFlag::User)?,
            4 | 5 => freeze(&client, done, FreezeFlag::Hold)?,
            6 => on_one(&client, done, |target| Request::Lease { target })?,
            _ => {
                on_one(&client, done, |target| Request::Kill { target })?;
                on_one(&client, done, |target| Request::Remove { target })?;
            }
        }
    }
}

/// Starts a program that enrols itself. Nobody waits for its word: it may be frozen before it says it.
fn enrol(lair: &Lair, done: &Done) {
    let id = format!("s{}", done.next.fetch_add(1, Ordering::Relaxed));
    let program = lair.enrolled(&[&format!("enrol={id}")]);
    done.programs.lock().unwrap().push((id, program));
}

/// Waits until every program has come to its leaf or has given up.
fn settle(done: &Done) {
    for (id, program) in done.programs.lock().unwrap().iter_mut() {
        wait_until("a program's enrolment or its end", || {
            is_in_a_leaf(program.pid(), id) || program.child.try_wait().unwrap().is_some()
        });
    }
}

fn one(client: &Client, done: &Done) -> std::io::Result<Option<SessionEntry>> {
    match client.try_call(&Request::List { after: None })? {
        Reply::Sessions { mut sessions, .. } if !sessions.is_empty() => {
            let count = u64::try_from(sessions.len()).unwrap();
            let index = usize::try_from(random(done, count) % count).unwrap();
            Ok(Some(sessions.swap_remove(index)))
        }
        _ => Ok(None),
    }
}

fn on_one(
    client: &Client,
    done: &Done,
    request: impl Fn(Target) -> Request,
) -> std::io::Result<()> {
    if let Some(entry) = one(client, done)? {
        client.try_call(&request(Target::from(&entry.attestation)))?;
    }
    Ok(())
}

fn freeze(client: &Client, done: &Done, flag: FreezeFlag) -> std::io::Result<()> {
    let Some(entry) = one(client, done)? else {
        return Ok(());
    };
    let target = Target::from(&entry.attestation);
    if flag == FreezeFlag::User {
        done.frozen
            .lock()
            .unwrap()
            .insert(target.session.to_string());
    }
    client.try_call(&Request::Freeze {
        target: target.clone(),
        flag,
    })?;
    if random(done, 2) == 0 {
        client.try_call(&Request::Thaw { target, flag })?;
    }
    Ok(())
}

#[test]
fn two_hundred_kills_lose_nothing_and_leave_nothing() {
    let Some(mut lair) = Lair::without_helper(0) else {
        return;
    };
    let done = Done::default();
    for round in 0..KILLS {
        lair.start(&[]);
        if round > 0 {
            recovered(&lair, &done);
        }
        let pid = nix::unistd::Pid::from_raw(i32::try_from(lair.pid()).unwrap());
        let place = &lair;
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| load(place, &done).expect_err("the helper is killed"));
            }
            std::thread::sleep(Duration::from_micros(random(&done, 0xffff) % 30_000));
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        });
        lair.kill_helper();
    }
    lair.start(&[]);
    recovered(&lair, &done);
    destroy_all(&lair, &done);
    assert_eq!(lair.cgroups(), ["helper"]);
    let found = done.found.load(Ordering::Relaxed);
    assert!(found > 0, "no session ever lived through a kill");
    println!("{found} live sessions were found again after {KILLS} kills");
}

/// What must hold whenever a new helper has started.
fn recovered(lair: &Lair, done: &Done) {
    settle(done);
    let client = lair.client();
    let mut sessions = Vec::new();
    // A leaf that nobody has come to goes when whoever asked for it is gone: just now, perhaps.
    wait_until("every leaf a session, and every session its leaf", || {
        sessions = client.list();
        names(&sessions) == leaves(lair)
    });
    let known = names(&sessions);
    let live = sessions
        .iter()
        .filter(|entry| entry.state.populated)
        .count();
    done.found
        .fetch_add(u64::try_from(live).unwrap(), Ordering::Relaxed);
    let asked = done.frozen.lock().unwrap().clone();
    for entry in &sessions {
        let id = entry.attestation.session.to_string();
        assert!(!entry.state.held, "{id} is held by nobody");
        assert!(
            !entry.state.user_frozen || asked.contains(&id),
            "{id} was frozen by no user"
        );
        let freeze = lair.scope().join(format!("cgleaf-{id}.leaf/cgroup.freeze"));
        let is_asked = std::fs::read_to_string(freeze).unwrap() == "1\n";
        assert!(
            entry.state.user_frozen || !is_asked,
            "{id} stayed frozen: {entry:?}"
        );
    }
    // A program that was told that it is in a session is in it, or was ended with it.
    for (id, program) in done.programs.lock().unwrap().iter_mut() {
        if program.child.try_wait().unwrap().is_none() && is_in_a_leaf(program.pid(), id) {
            assert!(
                known.contains(&format!("cgleaf-{id}.leaf")),
                "{id} runs and is not listed"
            );
        }
    }
    if sessions.len() >= MANY {
        destroy_all(lair, done);
    }
}

fn names(sessions: &[SessionEntry]) -> BTreeSet<String> {
    sessions
        .iter()
        .map(|entry| format!("cgleaf-{}.leaf", entry.attestation.session))
        .collect()
}

fn leaves(lair: &Lair) -> BTreeSet<String> {
    let mut cgroups = lair.cgroups();
    cgroups.retain(|name| name != "helper");
    cgroups.into_iter().collect()
}

fn is_in_a_leaf(pid: u32, id: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|text| {
        text.lines()
            .any(|line| line.starts_with("0::") && line.ends_with(&format!("cgleaf-{id}.leaf")))
    })
}

fn destroy_all(lair: &Lair, done: &Done) {
    let client = lair.client();
    for entry in client.list() {
        client.destroy(&Target::from(&entry.attestation));
    }
    assert!(client.list().is_empty());
    for (_, mut program) in done.programs.lock().unwrap().drain(..) {
        wait_until("the end of a program", || {
            program.child.try_wait().unwrap().is_some()
        });
    }
    done.frozen.lock().unwrap().clear();
}
