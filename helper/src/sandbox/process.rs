//! What prctl(2) takes away.

use nix::errno::Errno;
use nix::sys::prctl;

use super::enforced::{Enforced, Item};

/// Sets `no_new_privs` and clears the dumpable flag: no program could raise this process any more, and nobody of the
/// same uid can trace it, read its memory or take its descriptors.
pub(super) fn restrict(enforced: &mut Enforced) {
    enforced.no_new_privs = item("prctl(PR_SET_NO_NEW_PRIVS)", prctl::set_no_new_privs());
    enforced.not_dumpable = item("prctl(PR_SET_DUMPABLE, 0)", prctl::set_dumpable(false));
    if let (true, Ok(true)) = (enforced.not_dumpable.holds(), prctl::get_dumpable()) {
        enforced.not_dumpable = Item::Missing("PR_GET_DUMPABLE is still 1".to_owned());
    }
}

fn item(tried: &str, answer: Result<(), Errno>) -> Item {
    match answer {
        Ok(()) => Item::Enforced,
        Err(errno) => Item::missing(tried, errno),
    }
}
