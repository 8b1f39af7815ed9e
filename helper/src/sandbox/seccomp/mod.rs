//! The system call filter: an allow-list held as data ([`table`]), compiled to one BPF program. Everything that is not on
//! it ends the process: a helper that was taken over shall not get a second try, and a call that was forgotten shall be
//! noticed by a test and not half work in the field.

mod entry;
mod filter;
mod table;

pub use entry::{Allowed, Argument, Force, Usage, Value};
pub use table::table;

use super::enforced::{Enforced, Item};

/// Installs the filter, for good. See seccomp(2).
pub(super) fn restrict(allowed: &[Allowed], enforced: &mut Enforced) {
    let installed = filter::compile(allowed, std::process::id())
        .and_then(|program| seccompiler::apply_filter(&program).map_err(|cause| cause.to_string()));
    enforced.seccomp = match installed {
        Ok(()) => Item::Enforced,
        Err(cause) => Item::missing("installing the system call filter", cause),
    };
}
