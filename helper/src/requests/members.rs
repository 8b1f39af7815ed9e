//! Who is in a session.

use cgleaf_shared::process::Pid;
use cgleaf_shared::wire::{Member, MembersPage, Refusal, Reply, Target};

use super::Answer;
use crate::authorise::{self, Caller};
use crate::context::State;
use crate::leaf;
use crate::refuse;

/// The most bytes of one page.
const MOST_BYTES: usize = 40 * 1024;
/// The most members of one page.
const MOST_MEMBERS: usize = 1024;

/// A page of members. Those that the helper's pid namespace cannot see have no number to go on from: they all come with
/// the first page, as far as it holds them.
pub(super) fn members(
    state: &mut State,
    caller: &Caller<'_>,
    target: &Target,
    after: Option<Pid>,
) -> Result<Answer, Refusal> {
    let (_, dir) = authorise::target(state, caller, target)?;
    let found = leaf::processes(&state.context, &dir).map_err(|error| refuse::failed(&error))?;
    let total = u32::try_from(found.len()).unwrap_or(u32::MAX);
    let from = after.map_or(i32::MIN, Pid::get);
    let mut page = Vec::new();
    let mut bytes = 0;
    let mut more = false;
    for (pid, cgroup) in found.into_iter().filter(|(pid, _)| *pid > from) {
        if page.len() >= MOST_MEMBERS || bytes >= MOST_BYTES {
            more = true;
            break;
        }
        let pid = Pid::new(pid);
        let ns_pids = pid.map_or_else(Vec::new, |pid| ns_pids(state, pid));
        bytes += 16 + 5 * ns_pids.len() + cgroup.len();
        page.push(Member {
            pid,
            ns_pids,
            cgroup,
        });
    }
    Ok(Reply::Members(MembersPage {
        members: page,
        total,
        more,
    })
    .into())
}

/// Its numbers, the helper's first. Empty for one that has ended meanwhile.
fn ns_pids(state: &State, pid: Pid) -> Vec<i32> {
    let status = state
        .context
        .proc
        .process(pid)
        .and_then(|process| process.status());
    status.map_or_else(
        |_| Vec::new(),
        |status| status.ns_pids.into_iter().map(Pid::get).collect(),
    )
}
