//! Where this process may not have the descriptors that an answer takes (RLIMIT_NOFILE, getrlimit(2)): that is trouble of its own,
//! and neither a session that cannot be told nor a fault of cgleaf's.

use super::commands::View;
use crate::error::{Code, Error};
use crate::sys;

/// As many as a command has at once, and some to spare.
const ENOUGH: usize = 16;

/// The error in these terms, if it may have come of that. An answer whose descriptor does not fit is cut off (unix(7), MSG_CTRUNC).
pub(super) fn put(error: Error) -> Error {
    let may_come_of_it = matches!(error.code(), Code::Internal | Code::Protocol);
    if may_come_of_it && !sys::are_left(ENOUGH) {
        too_few(error.message())
    } else {
        error
    }
}

/// The sessions that could not be looked at, if that may be why.
pub(super) fn wanting<'v>(views: impl IntoIterator<Item = &'v View>) -> Option<Error> {
    let untold = views.into_iter().filter(|view| !view.is_told());
    let ids: Vec<&str> = untold.map(|view| view.session.id.as_str()).collect();
    if ids.is_empty() || sys::are_left(ENOUGH) {
        return None;
    }
    let what = format!("how {} is cannot be told", ids.join(", "));
    Some(too_few(&what))
}

fn too_few(what: &str) -> Error {
    Error::new(
        Code::HelperUnreachable,
        format!(
            "{what}: this process may have too few descriptors; raise `ulimit -n` (RLIMIT_NOFILE)"
        ),
    )
}
