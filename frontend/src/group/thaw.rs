//! Takes a SIGSTOP back whatever happens to the process that sent it, short of SIGKILL.

use std::sync::{Mutex, Once};

use crate::operations;
use cgleaf_shared::process::Pid;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, killpg, pthread_sigmask};

/// The groups that this process has stopped and not yet let go on.
static STOPPED: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// A group that this process has stopped. While one exists this thread takes no signal that would end it; when it is
/// dropped, or when the process panics, the group is continued.
#[derive(Debug)]
pub(super) struct StoppedGroup {
    group: Pid,
    former_mask: Option<SigSet>,
}

impl StoppedGroup {
    /// To be made before the SIGSTOP is sent.
    pub(super) fn new(group: Pid) -> StoppedGroup {
        continue_when_panicking();
        let former_mask = block_signals();
        if let Ok(mut stopped) = STOPPED.lock() {
            stopped.push(group);
        }
        StoppedGroup { group, former_mask }
    }

    /// It was killed, or nobody was there to be stopped: there is nothing to take back.
    pub(super) fn forget(self) {
        self.strike_out();
        self.restore_signals();
        std::mem::forget(self);
    }

    fn strike_out(&self) {
        if let Ok(mut stopped) = STOPPED.lock()
            && let Some(at) = stopped.iter().position(|&group| group == self.group)
        {
            stopped.swap_remove(at);
        }
    }

    fn restore_signals(&self) {
        if let Some(mask) = &self.former_mask {
            let _ = mask.thread_set_mask();
        }
    }
}

impl Drop for StoppedGroup {
    fn drop(&mut self) {
        continue_group(self.group);
        self.strike_out();
        self.restore_signals();
    }
}

/// ESRCH needs no answer, EPERM has none: those members could not be stopped either.
fn continue_group(group: Pid) {
    operations::tell_group_signal(group, Signal::SIGCONT as i32);
    let _ = killpg(nix::unistd::Pid::from_raw(group.get()), Signal::SIGCONT);
}

/// Everything but what a fault raises: a blocked fault would end the process at once.
fn block_signals() -> Option<SigSet> {
    let mut blocked = SigSet::all();
    for fault in [
        Signal::SIGSEGV,
        Signal::SIGBUS,
        Signal::SIGFPE,
        Signal::SIGILL,
        Signal::SIGABRT,
        Signal::SIGTRAP,
        Signal::SIGSYS,
    ] {
        blocked.remove(fault);
    }
    let mut former = SigSet::empty();
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&blocked), Some(&mut former)).ok()?;
    Some(former)
}

/// A release build aborts in a panic, so that nothing is dropped: the hook, which still runs, does it.
fn continue_when_panicking() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let former = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if let Ok(stopped) = STOPPED.try_lock() {
                stopped.iter().copied().for_each(continue_group);
            }
            former(panic);
        }));
    });
}
