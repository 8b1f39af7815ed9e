//! What a session's processes are and do, for `ps` and for saying what does not end.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use cgleaf_shared::process::{Pid, Proc, ProcessDir, ProcessId, State};
use serde_json::{Value, json};

use super::grip::Grip;
use super::members::{Listing, Seat};
use super::reach::Reach;
use super::session::Session;
use crate::client::Deadline;
use crate::error::{Code, Error, Result};
use crate::records::Tier;
use crate::trace::Role;

/// How long `ps` tries to have the members stand still while it lists them.
const STILL: Duration = Duration::from_secs(5);

/// One process of a session.
#[derive(Debug, Clone)]
pub struct MemberInfo {
    /// Its pid, as this pid namespace numbers it.
    pub pid: Pid,
    /// Its parent, where this pid namespace shows it.
    pub parent: Option<Pid>,
    /// The kernel's letter for its state; `None` if it ended meanwhile.
    pub state: Option<char>,
    /// Its arguments as it shows them now, anything at all.
    pub argv: Vec<OsString>,
    /// Its cgroup, relative to the leaf.
    pub cgroup: String,
    /// The kernel function that it waits in, where the kernel tells.
    pub wait_channel: Option<String>,
    /// Its effective user.
    pub uid: Option<u32>,
}

/// What [`processes`] answers.
#[derive(Debug)]
pub struct Processes {
    /// Whether no member can be missing: they stood still while they were listed.
    pub complete: bool,
    /// The members, in the order of their pids.
    pub members: Vec<MemberInfo>,
    /// How many there are that this pid namespace cannot see.
    pub hidden: usize,
    /// Why it may be incomplete.
    pub why_incomplete: Option<String>,
}

/// Lists a session's processes. They are held for the time of the listing, so that none is missed.
///
/// # Errors
/// As taking hold of the leaf: it is over, it has no leaf, no helper answers.
pub fn processes(reach: &Reach, session: &Session) -> Result<Processes> {
    if session.tier() == Tier::Group {
        return super::group_tier::processes(session);
    }
    reach.no_lost_hold(session, members_of(reach, session))
}

fn members_of(reach: &Reach, session: &Session) -> Result<Processes> {
    let mut grip = reach.grip(session, Role::Client)?;
    let proc = Reach::proc()?;
    // While they are held all of them sleep, and just after it all of them wake: what they do is read before.
    let doing = states(&proc, &grip.list_members()?);
    let held = grip.hold(Deadline::after(STILL));
    let listing = grip.list_members();
    let members = listing.map(|listing| describe_still(&proc, &listing, &doing));
    let why_incomplete = match held {
        Ok(held) => {
            let why = held.why_not();
            grip.release()?;
            why
        }
        Err(error) => Some(error.message().to_owned()),
    };
    let (members, hidden) = members?;
    Ok(Processes {
        complete: why_incomplete.is_none() && hidden == 0,
        members,
        hidden,
        why_incomplete,
    })
}

fn states(proc: &Proc, listing: &Listing) -> BTreeMap<ProcessId, State> {
    let stat = |seat: &Seat| proc.process(seat.pid).ok()?.stat().ok();
    let stats = listing.members.iter().filter_map(stat);
    stats.map(|stat| (stat.id, stat.state)).collect()
}

fn describe_still(
    proc: &Proc,
    listing: &Listing,
    doing: &BTreeMap<ProcessId, State>,
) -> (Vec<MemberInfo>, usize) {
    let member = |seat: &Seat| {
        let dir = proc.process(seat.pid).ok()?;
        let mut member = describe(&dir, seat);
        let before = dir.stat().ok().and_then(|stat| doing.get(&stat.id));
        if let Some(state) = before {
            member.state = Some(state.letter());
        }
        Some(member)
    };
    let members = listing.members.iter().filter_map(member).collect();
    (members, listing.hidden)
}

fn describe(dir: &ProcessDir, seat: &Seat) -> MemberInfo {
    let status = dir.status().ok();
    MemberInfo {
        pid: seat.pid,
        parent: status.as_ref().and_then(|status| status.parent),
        state: status.as_ref().map(|status| status.state.letter()),
        argv: argv_of(dir),
        cgroup: seat.cgroup.clone(),
        wait_channel: None,
        uid: status.map(|status| status.uids.effective),
    }
}

impl Reach {
    /// The arguments of a process, as text; empty where it has ended or cannot be seen.
    pub fn argv(pid: Pid) -> Vec<String> {
        let dir = Self::proc().ok().and_then(|proc| proc.process(pid).ok());
        let argv = dir.map(|dir| argv_of(&dir)).unwrap_or_default();
        argv.iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    }
}

/// The arguments of a process; its bracketed name where it shows none, as ps(1) does.
pub(super) fn argv_of(dir: &ProcessDir) -> Vec<OsString> {
    match dir.cmdline() {
        Ok(argv) if !argv.is_empty() => argv,
        _ => dir
            .stat()
            .map(|stat| {
                let name = String::from_utf8_lossy(&stat.comm).into_owned();
                vec![OsString::from(format!("[{name}]"))]
            })
            .unwrap_or_default(),
    }
}

impl MemberInfo {
    /// As DESIGN 4.1 names the fields. What is not UTF-8 is shown with replacement characters.
    pub fn to_json(&self) -> Value {
        json!({
            "pid": self.pid,
            "ppid": self.parent,
            "state": self.state.map(String::from),
            "argv": self.argv.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>(),
            "cgroup": self.cgroup,
            "uid": self.uid,
            "wait_channel": self.wait_channel,
        })
    }

    /// Its arguments in one line, with blanks between them.
    pub fn command_line(&self) -> String {
        let words: Vec<_> = self
            .argv
            .iter()
            .map(|word| String::from_utf8_lossy(word.as_bytes()))
            .collect();
        words.join(" ")
    }

    fn sentence(&self) -> String {
        let state = self.state.map_or("ended".to_owned(), String::from);
        let channel = match self.wait_channel.as_deref() {
            None | Some("") => "the kernel does not tell where it waits".to_owned(),
            Some(name) => format!("waits in {name}"),
        };
        format!(
            "pid {} ({}): state {state}, {channel}",
            self.pid,
            self.command_line()
        )
    }
}

/// The members that keep a session from freezing or ending: those in a sleep that no signal ends, or if there are none
/// all of them. At most `most` are described.
pub(super) fn blockers(grip: &mut Grip, most: usize) -> Vec<MemberInfo> {
    let (Ok(listing), Ok(proc)) = (grip.list_members(), Reach::proc()) else {
        return Vec::new();
    };
    let mut found: Vec<MemberInfo> = listing
        .members
        .iter()
        .filter_map(|seat| {
            let dir = proc.process(seat.pid).ok()?;
            let mut member = describe(&dir, seat);
            member.wait_channel = dir.wait_channel().ok().filter(|name| !name.is_empty());
            Some(member)
        })
        .collect();
    let sleeping = |member: &MemberInfo| member.state == Some(State::DiskSleep.letter());
    if found.iter().any(sleeping) {
        found.retain(sleeping);
    }
    found.truncate(most);
    found
}

/// The members that are in a sleep that no signal ends.
pub(super) fn in_disk_sleep(grip: &mut Grip) -> BTreeSet<Pid> {
    let (Ok(listing), Ok(proc)) = (grip.list_members(), Reach::proc()) else {
        return BTreeSet::new();
    };
    let sleeps = |pid: &Pid| {
        proc.process(*pid)
            .and_then(|dir| dir.stat())
            .is_ok_and(|stat| stat.state == State::DiskSleep)
    };
    let pids = listing.members.iter().map(|seat| seat.pid);
    pids.filter(sleeps).collect()
}

/// The most processes that an error names.
pub(super) const MOST_NAMED: usize = 20;

/// One sentence about each of them, for a message.
pub fn describe_blockers(members: &[MemberInfo]) -> String {
    let sentences: Vec<String> = members.iter().map(MemberInfo::sentence).collect();
    sentences.join("; ")
}

/// PARTIAL, with the processes named in message and details.
pub(super) fn partial(what: &str, members: &[MemberInfo]) -> Error {
    let named = if members.is_empty() {
        "no member can be seen from here".to_owned()
    } else {
        describe_blockers(members)
    };
    let list: Vec<Value> = members.iter().map(MemberInfo::to_json).collect();
    Error::new(Code::Partial, format!("{what}: {named}")).with("members", list)
}
