//! What goes wrong with a helper, as errors of ours.

use std::path::Path;

use cgleaf_shared::wire::{self, RefusalCode};

use crate::error::{Code, Error};

/// Whether a refusal's code is one of this version's.
pub(super) fn is_known(refusal: &wire::Refusal) -> bool {
    refusal.kind() != RefusalCode::Unknown(refusal.code)
}

/// Whether the error says that a connection has ended, or was not to be had: the kernel or the helper has answered. One that only
/// does not answer may be asked anew, and has what it held still.
pub(crate) fn has_ended(error: &Error) -> bool {
    error.code() == Code::HelperUnreachable && error.details().contains_key("errno")
}

/// Nobody answers there, which is no end of the connection: the kernel has given no error.
pub(super) fn mute(path: &Path) -> Error {
    let path = path.display();
    Error::new(
        Code::HelperUnreachable,
        format!("the helper at {path} {NO_ANSWER}; is it stopped or frozen?"),
    )
    .with(UNANSWERED, path.to_string())
}

const NO_ANSWER: &str = "does not answer";

/// Whether that is what is said of a helper that does not answer.
#[cfg(feature = "cli")]
pub(crate) fn says_nobody_answered(message: &str) -> bool {
    message.contains(NO_ANSWER)
}

/// The detail of an error that says where nobody answered.
const UNANSWERED: &str = "unanswered";

/// The socket at which somebody listens and did not answer in time, if that is what the error says.
#[cfg(feature = "cli")]
pub(crate) fn unanswered_at(error: &Error) -> Option<&Path> {
    error.details().get(UNANSWERED)?.as_str().map(Path::new)
}

/// The detail of an error that says that a helper has refused, and as what.
const REFUSAL: &str = "refusal";

/// What a helper refused, if the error is its refusal.
pub(crate) fn refusal_of(error: &Error) -> Option<RefusalCode> {
    let number = error.details().get(REFUSAL)?.as_u64()?;
    u16::try_from(number).ok().map(RefusalCode::from_number)
}

/// A helper's refusal as an error of ours.
pub(crate) fn refused(refusal: &wire::Refusal) -> Error {
    let code = match refusal.kind() {
        RefusalCode::NoSuchSession => Code::SessionNotFound,
        RefusalCode::BadMessage | RefusalCode::Version => Code::Protocol,
        RefusalCode::SessionExists | RefusalCode::NameTaken => Code::Usage,
        RefusalCode::PlaceNotServed
        | RefusalCode::Unsupported
        | RefusalCode::CgroupLimit
        | RefusalCode::QuotaSessions
        | RefusalCode::MoveDenied => Code::Unsupported,
        RefusalCode::QuotaClients | RefusalCode::Ending | RefusalCode::Exhausted => {
            Code::HelperUnreachable
        }
        RefusalCode::Kernel => Code::Internal,
        _ => Code::Refused,
    };
    Error::new(code, refusal.message.clone())
        .with(REFUSAL, refusal.code)
        .with("errno", refusal.errno)
        .with("socket", refusal.socket.clone())
}
