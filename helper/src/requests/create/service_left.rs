//! Whether a caller that is moved leaves a service behind: its limits, filters and `stop` no longer cover it.

use cgleaf_shared::cgroup::CgroupPath;
use cgleaf_shared::process::Proc;

use crate::peer::{self, Look};

/// The unit whose main process the caller is, as far as /proc shows it: it is in a service's cgroup, and its parent is not.
pub(super) fn by(proc: &Proc, caller: &Look) -> Option<String> {
    let service = service_around(&caller.cgroup)?;
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

/// The innermost `.service` around a cgroup, unless it is a user's own manager, beneath which every unit of his lies.
fn service_around(cgroup: &CgroupPath) -> Option<CgroupPath> {
    cgroup
        .ancestors()
        .find(|path| {
            path.name()
                .is_some_and(|name| name.ends_with(".service") || name.ends_with(".scope"))
        })
        .filter(|path| {
            path.name()
                .is_some_and(|name| name.ends_with(".service") && !name.starts_with("user@"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_or_the_users_manager_is_no_service_to_leave() {
        let around =
            |text| service_around(&CgroupPath::parse(text).unwrap()).map(|path| path.to_string());
        assert_eq!(
            around("/system.slice/cron.service/x").as_deref(),
            Some("/system.slice/cron.service")
        );
        assert_eq!(
            around("/user.slice/user-1000.slice/user@1000.service/app.slice/a.scope"),
            None
        );
        assert_eq!(
            around("/user.slice/user-1000.slice/user@1000.service/init.scope"),
            None
        );
        assert_eq!(
            around("/user.slice/user-1000.slice/user@1000.service"),
            None
        );
        assert_eq!(around("/"), None);
    }
}
