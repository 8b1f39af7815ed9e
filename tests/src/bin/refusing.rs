//! `refusing ERRNO|kill CALL[,CALL…] PROGRAM [ARG…]`: becomes a program for which, and for all that it starts, the kernel refuses these
//! system calls, as an outer filter of a container manager does. `getsockopt:peerpidfd` stands for that one question, which
//! kernels before 6.5 answer with ENOPROTOOPT. `kill` for ERRNO kills, as systemd's SystemCallFilter= does by default.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

/// asm-generic/socket.h.
const SO_PEERPIDFD: u64 = 77;

fn number(call: &str) -> Result<libc::c_long> {
    Ok(match call {
        "openat2" => libc::SYS_openat2,
        "name_to_handle_at" => libc::SYS_name_to_handle_at,
        "pidfd_open" => libc::SYS_pidfd_open,
        "pidfd_send_signal" => libc::SYS_pidfd_send_signal,
        "clone3" => libc::SYS_clone3,
        "close_range" => libc::SYS_close_range,
        "umask" => libc::SYS_umask,
        "landlock_create_ruleset" => libc::SYS_landlock_create_ruleset,
        "getsockopt:peerpidfd" => libc::SYS_getsockopt,
        other => bail!("{other}: not a call that this program knows"),
    })
}

fn rules(call: &str) -> Result<Vec<SeccompRule>> {
    if call != "getsockopt:peerpidfd" {
        return Ok(Vec::new());
    }
    let name = SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, SO_PEERPIDFD)?;
    Ok(vec![SeccompRule::new(vec![name])?])
}

fn refuse(calls: &str, action: SeccompAction) -> Result<()> {
    let mut table = BTreeMap::new();
    for call in calls.split(',') {
        table.insert(number(call)?, rules(call)?);
    }
    let filter = SeccompFilter::new(
        table,
        SeccompAction::Allow,
        action,
        std::env::consts::ARCH.try_into()?,
    )?;
    nix::sys::prctl::set_no_new_privs().context("no_new_privs")?;
    apply_filter(&BpfProgram::try_from(filter)?).context("the filter")
}

fn main() -> Result<()> {
    let mut words = std::env::args_os().skip(1);
    let mut word = || {
        words
            .next()
            .context("usage: refusing ERRNO|kill CALL[,CALL…] PROGRAM [ARG…]")
    };
    let text = |word: std::ffi::OsString| word.into_string().ok().context("not UTF-8");
    let action = match text(word()?)?.as_str() {
        "kill" => SeccompAction::KillProcess,
        errno => SeccompAction::Errno(errno.parse()?),
    };
    let calls = text(word()?)?;
    let program = word()?;
    refuse(&calls, action)?;
    Err(Command::new(program).args(words).exec().into())
}
