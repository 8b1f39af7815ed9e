//! Why a helper said no.

use serde::{Deserialize, Serialize};

/// A refusal. *Frozen:* the code is a number, so that a frontend can read one that it does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// A [`RefusalCode`], as its number.
    pub code: u16,
    /// What was tried, what the answer was, and what to do next.
    pub message: String,
    /// The kernel's `errno`, 0 where it was not the kernel that refused.
    pub errno: i32,
    /// The socket of the helper to ask instead, for [`RefusalCode::InsideSession`]; else empty.
    pub socket: String,
}

impl Refusal {
    /// A refusal of our own.
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Self {
            code: code.number(),
            message: message.into(),
            errno: 0,
            socket: String::new(),
        }
    }

    /// A refusal of the kernel's: `message` names the operation and the path.
    pub fn kernel(code: RefusalCode, message: impl Into<String>, errno: i32) -> Self {
        Self {
            errno,
            ..Self::new(code, message)
        }
    }

    /// The code as a type; [`RefusalCode::Unknown`] for one that a later version brought.
    pub fn kind(&self) -> RefusalCode {
        RefusalCode::from_number(self.code)
    }
}

macro_rules! refusal_codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// The kinds of refusal. Numbers are never reused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum RefusalCode {
            $($(#[$doc])* $name,)*
            /// A number that this version does not know.
            Unknown(u16),
        }

        impl RefusalCode {
            /// All that this version knows.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The number on the wire.
            pub const fn number(self) -> u16 {
                match self {
                    $(Self::$name => $number,)*
                    Self::Unknown(number) => number,
                }
            }

            /// The code of that number.
            pub const fn from_number(number: u16) -> Self {
                match number {
                    $($number => Self::$name,)*
                    other => Self::Unknown(other),
                }
            }
        }
    };
}

refusal_codes! {
    /// The message is none of this protocol's, or not allowed at this point.
    BadMessage = 1,
    /// The other side is older or newer, and the request is none of the frozen ones.
    Version = 2,
    /// Who the caller is could not be proven from its connection.
    IdentityUnproven = 3,
    /// The caller's cgroup lies where this helper serves nobody.
    PlaceNotServed = 4,
    /// The caller is inside a session of another helper, whose socket is named.
    InsideSession = 5,
    /// There is no such session in the caller's domain.
    NoSuchSession = 6,
    /// The leaf is not the one that the target names.
    TargetMismatch = 7,
    /// The id is taken.
    SessionExists = 8,
    /// The name is that of a living session, or is a session's id.
    NameTaken = 9,
    /// The parent is frozen, by itself or by an ancestor: a process made there would hang.
    ParentFrozen = 10,
    /// The parent lies in another domain, or not beneath the caller's own session.
    ParentNotAllowed = 11,
    /// A caller inside a session may not freeze or thaw an ancestor of its own leaf.
    AncestorOfCaller = 12,
    /// The leaf may hold a stranger: it is never killed.
    Poisoned = 13,
    /// The domain has as many sessions as its quota allows.
    QuotaSessions = 14,
    /// The domain has as many clients as its quota allows.
    QuotaClients = 15,
    /// The kernel has no room for another cgroup there: `cgroup.max.descendants`, `cgroup.max.depth`, or ids.
    CgroupLimit = 16,
    /// The caller may not be moved (EACCES): the common ancestor is not the helper's to write.
    MoveDenied = 17,
    /// The kernel refused something else.
    Kernel = 18,
    /// This kernel, or this mode, cannot do that.
    Unsupported = 19,
    /// The process may not be adopted.
    NotAdoptable = 20,
    /// The named leader is no member.
    NotAMember = 21,
    /// The helper has sessions and does not stop.
    StillServing = 22,
    /// A descriptor came with the packet where none belongs, or none or a wrong one where one does.
    BadDescriptor = 23,
    /// The helper is about to end: connect again.
    Ending = 24,
    /// The helper has no descriptor or no memory left for this.
    Exhausted = 25,
    /// The leaf of that id has another nonce than the target, or than the helper gave it.
    NonceMismatch = 26,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_own_number_and_comes_back() {
        let mut numbers: Vec<u16> = RefusalCode::ALL.iter().map(|code| code.number()).collect();
        assert!(
            RefusalCode::ALL
                .iter()
                .all(|code| RefusalCode::from_number(code.number()) == *code)
        );
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), RefusalCode::ALL.len());
        assert_eq!(RefusalCode::from_number(9999), RefusalCode::Unknown(9999));
    }
}
