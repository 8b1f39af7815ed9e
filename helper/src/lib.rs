//! The helper: the only program that makes and removes leaves and writes `cgroup.procs`, `cgroup.freeze` and
//! `cgroup.kill` (DESIGN 3). One thread, one loop, no files of its own: the cgroup tree is its database.
//!
//! How a request goes: [`server`](self) takes a packet from a `connection`, `peer` says who sent it, `authorise` finds
//! the session that it may act on and has it verified, one handler in `requests` acts, and `write` is the only module
//! that writes to the tree.

mod args;
mod attrs;
mod audience;
mod authorise;
mod cleaner;
mod connection;
mod context;
mod endpoints;
mod holds;
mod leaf;
mod limits;
mod listen;
mod log;
mod notify;
mod peer;
mod place;
mod quota;
mod rebuild;
mod refuse;
mod rehearse;
mod requests;
mod room;
pub mod sandbox;
mod scope;
mod server;
mod start;
mod status;
mod sys;
mod table;
mod trace;
mod write;

use std::ffi::OsString;
use std::process::ExitCode;

/// Another helper holds the lock of the socket that this one was to bind: connect to that one.
pub const EXIT_LOCK_HELD: u8 = 3;

/// Runs the helper with these arguments, without a program's name; `cgleaf-helper --help` lists them. It comes back
/// when the helper has ended: 0; 1 where it could not start; 2 for a usage error; [`EXIT_LOCK_HELD`].
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    match args::parse(args) {
        Ok(args::Command::Help) => log::print(args::HELP),
        Ok(args::Command::Version) => {
            log::print(concat!("cgleaf-helper ", env!("CARGO_PKG_VERSION"), "\n"));
        }
        Ok(args::Command::Serve(options)) => match start::serve(&options) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => {
                log::line(format_args!("{}", log::chain(&error)));
                let lost = error.downcast_ref::<listen::LockHeld>().is_some();
                return ExitCode::from(if lost { EXIT_LOCK_HELD } else { 1 });
            }
        },
        Err(why) => {
            log::line(format_args!("{why}; see cgleaf-helper --help"));
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
