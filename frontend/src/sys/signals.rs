//! Signals' dispositions.

use std::sync::atomic::{AtomicBool, Ordering};

/// What a process does with a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// The default (signal(7)).
    Default,
    /// Nothing.
    Ignore,
}

/// What this process does with a signal now; a handler counts as the default, which is what a program finds after execve.
pub(crate) fn disposition(signal: i32) -> Disposition {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action changes nothing, and the old one is written to memory that is ours.
    if unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } != 0 {
        return Disposition::Default;
    }
    // SAFETY: all zeroes is a valid sigaction, and the call above has filled it in.
    match unsafe { action.assume_init() }.sa_sigaction {
        libc::SIG_IGN => Disposition::Ignore,
        _ => Disposition::Default,
    }
}

/// Sets it.
pub(crate) fn set_disposition(signal: i32, disposition: Disposition) {
    let handler = match disposition {
        Disposition::Default => libc::SIG_DFL,
        Disposition::Ignore => libc::SIG_IGN,
    };
    // SAFETY: neither value is a handler's address: no code of ours ever runs in a signal's context.
    unsafe { libc::signal(signal, handler) };
}

/// Whether this process has made a write beyond RLIMIT_FSIZE an error (EFBIG) instead of its end (SIGXFSZ, setrlimit(2)).
static OUTLIVES_LARGE_FILES: AtomicBool = AtomicBool::new(false);

/// From now on a write beyond RLIMIT_FSIZE is an error. A program that is executed finds the signal as this process did.
#[cfg(feature = "cli")]
pub(crate) fn outlive_large_files() {
    if disposition(libc::SIGXFSZ) == Disposition::Default {
        set_disposition(libc::SIGXFSZ, Disposition::Ignore);
        OUTLIVES_LARGE_FILES.store(true, Ordering::Relaxed);
    }
}

/// What [`outlive_large_files`] has changed, changed back for an execve(2), or changed again after one that failed.
pub(super) fn set_file_size_signal(disposition: Disposition) {
    if OUTLIVES_LARGE_FILES.load(Ordering::Relaxed) {
        set_disposition(libc::SIGXFSZ, disposition);
    }
}

/// Every signal's default. SIGKILL and SIGSTOP are refused, which is fine.
pub(crate) fn all_signals_to_default() {
    // The kernel's struct sigaction has at most five words, and all of them zero is SIG_DFL without flags. The C library
    // would refuse the two signals that it keeps for itself, which a caller may have left ignored as well.
    const KERNEL_SIGSET_SIZE: usize = 8;
    let default = [0_u64; 8];
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: `default` is larger than what the kernel reads, and a null old action is not written.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                std::ptr::null::<u64>(),
                KERNEL_SIGSET_SIZE,
            )
        };
    }
}

/// Sends a signal to a child that was not reaped, so that its number is its own. Any number does, real-time ones too.
pub(crate) fn signal_child(child: cgleaf_shared::process::Pid, signal: i32) {
    if child.may_be_signalled() {
        // SAFETY: integers only. A setuid program refuses it (EPERM), as it would refuse whoever sent it.
        unsafe { libc::kill(child.get(), signal) };
    }
}
