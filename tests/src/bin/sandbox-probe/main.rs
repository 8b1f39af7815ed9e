//! Locks itself down with the helper's own function and then tries one thing, for tests/sandbox_*.rs.
//!
//! `sandbox-probe --mount DIR --scope DIR [--socket-dir DIR] [--node] [--require] [--uid N] [--without CALL]
//! [--landlock-only] CASE [ARG…]`. It prints what came of it and exits 0, or the error's name and exits 10.
//!
//! `sandbox-probe manager HELPER [ARG…]` is no case: there it is the service manager of a real helper, and prints what that tells it.

mod cases;
mod manager;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use anyhow::{Context, Result, bail};
use cgleaf_helper::sandbox::{self, Enforced, LockDown, Reach, seccomp};
use cgleaf_tests::probe::REFUSED;
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};

#[derive(Default)]
struct Options {
    mount: Option<String>,
    scopes: Vec<String>,
    socket_dir: Option<String>,
    node: bool,
    require: bool,
    uid: Option<u32>,
    without: Option<String>,
    landlock_only: bool,
    case: Vec<String>,
}

fn main() -> Result<()> {
    let options = parse()?;
    if let [first, helper @ ..] = options.case.as_slice()
        && first == "manager"
    {
        return manager::serve(helper);
    }
    sandbox::install_panic_hook();
    if let Some(uid) = options.uid {
        become_user(uid)?;
    }
    let prepared = cases::prepare(&options.case)?;
    let enforced = lock_down(&options)?;
    match cases::attempt(&prepared, &enforced) {
        Ok(said) => println!("{said}"),
        Err(refused) => {
            println!("{}", name(&refused));
            std::process::exit(REFUSED);
        }
    }
    Ok(())
}

fn parse() -> Result<Options> {
    let mut options = Options::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .with_context(|| format!("{argument} needs a value"))
        };
        match argument.as_str() {
            "--mount" => options.mount = Some(value()?),
            "--scope" => options.scopes.push(value()?),
            "--socket-dir" => options.socket_dir = Some(value()?),
            "--uid" => options.uid = Some(value()?.parse()?),
            "--without" => options.without = Some(value()?),
            "--node" => options.node = true,
            "--require" => options.require = true,
            "--landlock-only" => options.landlock_only = true,
            _ => {
                options.case.push(argument);
                options.case.extend(arguments.by_ref());
            }
        }
    }
    Ok(options)
}

fn become_user(uid: u32) -> Result<()> {
    setgroups(&[]).context("setgroups")?;
    setgid(Gid::from_raw(uid)).context("setgid")?;
    setuid(Uid::from_raw(uid)).context("setuid")
}

fn lock_down(options: &Options) -> Result<Enforced> {
    let open = |path: &String| File::open(path).with_context(|| format!("open {path}"));
    let mount = open(options.mount.as_ref().context("--mount is needed")?)?;
    let scopes = options
        .scopes
        .iter()
        .map(open)
        .collect::<Result<Vec<_>>>()?;
    let socket_dir = options.socket_dir.as_ref().map(open).transpose()?;
    let plan = LockDown {
        scope_dirs: &scopes.iter().map(AsFd::as_fd).collect::<Vec<_>>(),
        cgroup_mount: mount.as_fd(),
        socket_dir: socket_dir.as_ref().map(AsFd::as_fd),
        reach: if options.node {
            Reach::CgroupMount
        } else {
            Reach::ScopeDirectories
        },
        require: options.require,
    };
    if options.landlock_only {
        let mut enforced = Enforced::nothing();
        sandbox::landlock::restrict(&plan, &mut enforced);
        return Ok(enforced);
    }
    let Some(left_out) = &options.without else {
        return Ok(sandbox::lock_down(&plan)?);
    };
    let (kept, dropped): (Vec<_>, Vec<_>) = seccomp::table()
        .into_iter()
        .partition(|allowed| allowed.name != left_out);
    if dropped.len() != 1 {
        bail!("no entry named {left_out}");
    }
    Ok(sandbox::lock_down_with(&plan, &kept)?)
}

fn name(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => format!("{:?}", nix::errno::Errno::from_raw(number)),
        None => error.to_string(),
    }
}
