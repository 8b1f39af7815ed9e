//! Whether a session is still there after its user's last logout: what lies beneath `user@UID.service`, or in a login's scope, ends
//! some seconds after it, unless the user lingers (loginctl(1)).

use std::path::Path;

use cgleaf_shared::cgroup::CgroupPath;
use cgleaf_shared::id::Uid;

use crate::records::Record;

/// Whether it survives; `None` where that cannot be told.
pub fn survives_logout(record: &Record) -> Option<bool> {
    let attestation = record.attestation.as_ref()?;
    match who_logs_out(&attestation.leaf_path) {
        None => Some(true),
        Some(uid) => lingers(uid),
    }
}

/// What is said of a session that does not survive it.
pub(crate) fn ends_with_it(record: &Record) -> Option<String> {
    (survives_logout(record) == Some(false)).then(|| {
        format!(
            "session {} ends after your last logout; `loginctl enable-linger` lets it go on",
            record.session
        )
    })
}

/// The user at whose last logout a cgroup ends: by where it lies, not by who asks, who may be anybody in a user namespace.
/// `None` where it is no user's to end. A service of the system may lie in a user's slice too, and stays.
pub(crate) fn who_logs_out(path: &CgroupPath) -> Option<Uid> {
    let slice = path.ancestors().find_map(|one| {
        let uid = number(one.name()?, "user-", ".slice")?;
        Some((one, uid))
    });
    let (slice, uid) = slice?;
    let unit = path.strip(&slice)?.split('/').next()?;
    let is_a_login = unit.starts_with("session-") && unit.ends_with(".scope");
    (is_a_login || number(unit, "user@", ".service") == Some(uid)).then_some(Uid(uid))
}

fn number(name: &str, prefix: &str, suffix: &str) -> Option<u32> {
    name.strip_prefix(prefix)?
        .strip_suffix(suffix)?
        .parse()
        .ok()
}

/// Whether a user lingers; `None` if he has no name.
pub(crate) fn lingers(uid: Uid) -> Option<bool> {
    let name = name_of(uid)?;
    Some(Path::new("/var/lib/systemd/linger").join(name).exists())
}

/// A user's name by /etc/passwd, or what the environment says: the C library's lookup may load modules, which a static
/// program cannot.
fn name_of(uid: Uid) -> Option<String> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    passwd
        .lines()
        .find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let number = fields.nth(1)?;
            (number == uid.to_string()).then(|| name.to_owned())
        })
        .or_else(|| std::env::var("USER").ok().filter(|_| is_own(uid)))
        .filter(|name| !name.is_empty() && !name.contains('/'))
}

/// Whether that is this process's user, as this user namespace numbers him or as the one around it does (user_namespaces(7)).
fn is_own(uid: Uid) -> bool {
    let own = Uid::effective();
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let outside = map.lines().find_map(|line| {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u32>);
        let (inside, outside, count) = (
            numbers.next()?.ok()?,
            numbers.next()?.ok()?,
            numbers.next()?.ok()?,
        );
        let beyond = own.0.checked_sub(inside).filter(|beyond| *beyond < count)?;
        outside.checked_add(beyond)
    });
    own == uid || outside == Some(uid.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_logout_ends_it_is_where_it_lies() {
        let whose = |path: &str| who_logs_out(&CgroupPath::parse(path).expect("a path"));
        let slice = "/user.slice/user-1000.slice";
        for ends in [
            "user@1000.service/app.slice/x.scope/a.leaf",
            "session-c1.scope/a.leaf",
        ] {
            assert_eq!(whose(&format!("{slice}/{ends}")), Some(Uid(1000)), "{ends}");
        }
        for stays in [
            "cgleaf-helper@1000.service/a.leaf",
            "job.service",
            "user@1.service/a.leaf",
        ] {
            assert_eq!(whose(&format!("{slice}/{stays}")), None, "{stays}");
        }
        // A whole system in a container's cgroup, and what is no user's.
        assert_eq!(
            whose("/docker/x/user.slice/user-7.slice/user@7.service/a"),
            Some(Uid(7))
        );
        assert_eq!(whose("/system.slice/cgleaf-helper-1.scope/a.leaf"), None);
        assert_eq!(whose(slice), None);
    }
}
