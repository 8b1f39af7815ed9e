//! The trial where there is no process left for a frontend beside this one: this one is the frontend.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use cgleaf_shared::cgroup::own_path;

use super::super::super::super::context::Context;
use super::super::cause::Cause;
use super::super::systemd;
use crate::error::{Code, OrCode, Result};
use crate::launch::{self, Identity, Plan, RunOptions, Site, TierWanted};
use crate::records::{Store, Tier};
use crate::sys;

/// As for the other one.
const LIMIT: Duration = Duration::from_secs(30);

/// Whether that can be done: from a login's scope `run` executes itself again in another one (see `launch::scope`), and doctor
/// would be gone.
pub(super) fn is_possible() -> bool {
    !systemd::is_init() || own_path().is_ok_and(|own| !own.as_str().ends_with(".scope"))
}

/// How often, and after how long each time, it is tried again: what doctor has tried before has ended, and counts until PID 1 has
/// reaped it.
const TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(100);

/// Which tier `run` uses, or why it starts nothing. `wanted`: the group tier where it is known that no leaf can be had.
pub(super) fn run(context: &Context, socket: Option<&Path>, wanted: TierWanted) -> Result<Tier> {
    for _ in 1..TRIES {
        match once(context, socket, wanted) {
            Err(error) if Cause::of_nothing_started(&error) == Some(Cause::Processes) => {
                std::thread::sleep(BETWEEN_TRIES);
            }
            other => return other,
        }
    }
    once(context, socket, wanted)
}

fn once(context: &Context, socket: Option<&Path>, wanted: TierWanted) -> Result<Tier> {
    let program = std::env::current_exe().or_code(Code::Internal)?;
    let plan = Plan {
        identity: Identity {
            session: None,
            name: None,
        },
        parent: None,
        tier: wanted,
        words: vec![program.into(), "--version".into()],
    };
    let site = Site {
        base: &context.base,
        socket,
        scope_dir: context.scope_dir.as_deref(),
        kept_descriptor: None,
        notices: &|_| {},
        trouble: &|_| {},
    };
    let options = RunOptions {
        timeout: Some(LIMIT),
        ..RunOptions::default()
    };
    let mut enrolled = None;
    let ended = {
        let _mute = Mute::begin()?;
        launch::run(&site, &plan, options, &mut |record| {
            enrolled = Some((record.session.clone(), record.tier));
            Ok(())
        })
    };
    if let (Some((session, _)), Ok(store)) = (&enrolled, Store::open(&context.base)) {
        let _ = store.forget(session);
    }
    match (ended, enrolled) {
        (Ok(_), Some((_, tier))) => Ok(tier),
        (Err(failure), _) => Err(failure.error().clone()),
        (Ok(_), None) => Err(crate::Error::new(
            Code::Internal,
            "a program ran without a session",
        )),
    }
}

/// What the program says is nobody's answer: as long as this lives, stdout and stderr lead nowhere.
struct Mute([(i32, OwnedFd); 2]);

impl Mute {
    fn begin() -> Result<Self> {
        let null = OpenOptions::new()
            .write(true)
            .open("/dev/null")
            .or_code(Code::Internal)?;
        let kept = |from: BorrowedFd<'_>| sys::own_copy_from(from, 3).or_code(Code::Internal);
        let kept = [
            (1, kept(std::io::stdout().as_fd())?),
            (2, kept(std::io::stderr().as_fd())?),
        ];
        lead(&null, 1)?;
        lead(&null, 2)?;
        Ok(Self(kept))
    }
}

fn lead(to: &File, number: i32) -> Result<()> {
    sys::put_at(to.as_fd(), number).or_code(Code::Internal)
}

impl Drop for Mute {
    fn drop(&mut self) {
        for (number, kept) in &self.0 {
            let _ = sys::put_at(kept.as_fd(), *number);
        }
    }
}
