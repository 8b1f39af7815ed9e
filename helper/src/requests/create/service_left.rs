//! Whether a caller that is moved leaves a service behind: its limits, filters and `stop` no longer cover it.

use cgleaf_shared::process::Proc;

use crate::peer::{self, Look};

/// The unit whose main process the caller is, as far as /proc shows it: it is in a service's cgroup, and its parent is not.
pub(super) fn by(proc: &Proc, caller: &Look) -> Option<String> {
    let service = caller.cgroup.service()?;
    let parent_inside = caller
        .parent
        .and_then(|parent| peer::look(proc, parent).ok())
        .is_some_and(|parent| parent.cgroup.is_within(&service));
    if parent_inside {
        None
    } else {
        service.name().map(str::to_owned)
    }
}
