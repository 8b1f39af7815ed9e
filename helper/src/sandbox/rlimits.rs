//! Resource limits: no core file, and as many descriptors as are allowed.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::enforced::{Enforced, Item};

/// Sets `RLIMIT_CORE` to 0, soft and hard, and raises the soft `RLIMIT_NOFILE` to the hard one (getrlimit(2)): a helper
/// inherits its starter's soft limit, which is often 1024, and one client costs one descriptor.
pub(super) fn apply(enforced: &mut Enforced) {
    enforced.no_core = match setrlimit(Resource::RLIMIT_CORE, 0, 0) {
        Ok(()) => Item::Enforced,
        Err(errno) => Item::missing("setrlimit(RLIMIT_CORE, 0)", errno),
    };
    (enforced.descriptors, enforced.descriptor_limit) = raise_descriptors();
}

fn raise_descriptors() -> (Item, u64) {
    let (soft, hard) = match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok(limits) => limits,
        Err(errno) => return (Item::missing("getrlimit(RLIMIT_NOFILE)", errno), 0),
    };
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => (Item::Enforced, hard),
        Err(errno) => (
            Item::missing(&format!("setrlimit(RLIMIT_NOFILE, {hard})"), errno),
            soft,
        ),
    }
}
