//! Every capability set, emptied.

use caps::{CapSet, Capability};

use super::enforced::{Enforced, Item};

/// Empties the sets in the one order that works: the bounding set while CAP_SETPCAP is still effective, permitted last
/// (capset(2) refuses an effective set that is not within the permitted one).
pub(super) fn drop_all(enforced: &mut Enforced) {
    enforced.bounding_set = drop_bounding_set();
    enforced.capabilities = drop_own_sets();
}

/// Without CAP_SETPCAP the kernel answers EPERM to the first capability that is to be dropped. That is every user's
/// case, so it is told as what it is.
fn drop_bounding_set() -> Item {
    if caps::read(None, CapSet::Bounding).is_ok_and(|set| set.is_empty()) {
        return Item::Enforced;
    }
    match caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP) {
        Ok(true) => match caps::clear(None, CapSet::Bounding) {
            Ok(()) => Item::Enforced,
            Err(cause) => Item::missing("emptying the bounding set", cause),
        },
        Ok(false) => {
            Item::Missing("only a process with CAP_SETPCAP may empty the bounding set".to_owned())
        }
        Err(cause) => Item::missing("reading the effective set", cause),
    }
}

fn drop_own_sets() -> Item {
    for (set, name) in [
        (CapSet::Ambient, "ambient"),
        (CapSet::Inheritable, "inheritable"),
        (CapSet::Effective, "effective"),
        (CapSet::Permitted, "permitted"),
    ] {
        if let Err(cause) = caps::clear(None, set) {
            return Item::missing(&format!("emptying the {name} set"), cause);
        }
    }
    Item::Enforced
}
