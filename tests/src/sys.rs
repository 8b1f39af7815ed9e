//! The only place of this crate where `unsafe` may stand: calls that tests make on purpose and no library offers, most of
//! them to be refused.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::libc;

fn answer(value: libc::c_long) -> io::Result<libc::c_long> {
    if value == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(value)
    }
}

/// fork(2) as a plain system call. The child, if there is one after all, ends at once with status 0.
///
/// # Errors
/// What the kernel says.
pub fn fork() -> io::Result<()> {
    // SAFETY: clone with no flags but SIGCHLD and no stack is fork; the child only calls _exit, which touches no memory.
    let pid = answer(unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) })?;
    if pid == 0 {
        // SAFETY: _exit ends the process without running anything of its memory.
        unsafe { libc::_exit(0) }
    }
    Ok(())
}

/// clone3(2) with an empty description: EINVAL or E2BIG where it is allowed.
///
/// # Errors
/// What the kernel says.
pub fn clone3() -> io::Result<()> {
    // SAFETY: a null description of size 0 is refused before anything is read or made.
    answer(unsafe { libc::syscall(libc::SYS_clone3, 0_usize, 0_usize) }).map(|_| ())
}

/// execve(2) of `program` without arguments or environment.
///
/// # Errors
/// What the kernel says. There is no success to return to.
pub fn execve(program: &CStr) -> io::Result<()> {
    let arguments = [program.as_ptr(), std::ptr::null()];
    let environment = [std::ptr::null()];
    // SAFETY: a C string and two null-terminated arrays of C strings, all of which outlive the call.
    answer(i64::from(unsafe {
        libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr())
    }))
    .map(|_| ())
}

/// mmap(2) of one anonymous private page with this protection.
///
/// # Errors
/// What the kernel says.
pub fn map_page(protection: i32) -> io::Result<()> {
    map(protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
}

/// mmap(2) of one page of the file behind descriptor 0, for reading.
///
/// # Errors
/// What the kernel says.
pub fn map_stdin() -> io::Result<()> {
    map(libc::PROT_READ, libc::MAP_PRIVATE, 0)
}

fn map(protection: i32, flags: i32, descriptor: i32) -> io::Result<()> {
    // SAFETY: without MAP_FIXED the kernel chooses unused addresses, so no memory of ours is touched.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, descriptor, 0) };
    if page == libc::MAP_FAILED {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// mprotect(2) that makes a page of our own executable.
///
/// # Errors
/// What the kernel says.
pub fn make_executable() -> io::Result<()> {
    // SAFETY: without MAP_FIXED the kernel chooses unused addresses, so no memory of ours is touched.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: exactly the page that was just mapped, which nothing else uses.
    answer(i64::from(unsafe {
        libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_EXEC)
    }))
    .map(|_| ())
}

/// ptrace(2): attach to `pid`.
///
/// # Errors
/// What the kernel says.
pub fn trace(pid: i32) -> io::Result<()> {
    // SAFETY: PTRACE_SEIZE takes a pid and neither reads nor writes memory of ours.
    answer(unsafe { libc::syscall(libc::SYS_ptrace, libc::PTRACE_SEIZE, pid, 0, 0) }).map(|_| ())
}

/// tgkill(2) of the main thread of `pid`.
///
/// # Errors
/// What the kernel says.
pub fn thread_kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: three integers.
    answer(unsafe { libc::syscall(libc::SYS_tgkill, pid, pid, signal) }).map(|_| ())
}

/// A clock that the vdso does not serve, read by clock_gettime(2).
///
/// # Errors
/// What the kernel says.
pub fn slow_clock() -> io::Result<()> {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid timespec for the time of the call.
    answer(i64::from(unsafe {
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut now)
    }))
    .map(|_| ())
}

/// ioctl(2): whether descriptor 0 is a terminal, by TCGETS.
///
/// # Errors
/// What the kernel says.
pub fn device_ioctl() -> io::Result<()> {
    let mut settings = std::mem::MaybeUninit::<libc::termios>::uninit();
    // SAFETY: TCGETS writes at most the kernel's termios, which is smaller than the C library's.
    answer(i64::from(unsafe {
        libc::ioctl(0, libc::TCGETS, settings.as_mut_ptr())
    }))
    .map(|_| ())
}

/// fcntl(2): has the signals of descriptor 0 sent to pid 1, the way to signal without kill(2).
///
/// # Errors
/// What the kernel says.
pub fn own_signals() -> io::Result<()> {
    // SAFETY: three integers.
    answer(i64::from(unsafe { libc::fcntl(0, libc::F_SETOWN, 1) })).map(|_| ())
}

/// Frees a block twice: the C library notices, says so and aborts.
pub fn damage_heap() {
    // SAFETY: sound; an allocation of 64 bytes, or null, which free accepts.
    let block = unsafe { libc::malloc(64) };
    // SAFETY: sound; the block was just allocated and is used nowhere.
    unsafe { libc::free(block) };
    // SAFETY: not sound, and meant: this process exists only to see how the C library ends it.
    unsafe { libc::free(std::hint::black_box(block)) };
}

/// Writes to an address that is not mapped.
pub fn segfault() {
    let nowhere = std::hint::black_box(8_usize) as *mut u64;
    // SAFETY: not sound, and meant: this process exists only to see how std's handler ends it.
    unsafe { nowhere.write_volatile(1) };
}

/// futex(2): wakes everyone who sleeps on the word at `offset` of the first page of `file`, in whatever process.
///
/// # Errors
/// What the kernel says.
pub fn wake_all(file: &File, offset: u64) -> io::Result<()> {
    const PAGE: usize = 4096;
    let offset = usize::try_from(offset)
        .ok()
        .filter(|offset| offset % 4 == 0 && *offset < PAGE)
        .ok_or(io::ErrorKind::InvalidInput)?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: without MAP_FIXED the kernel chooses unused addresses; the mapping is used below only, and never through a reference.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            PAGE,
            protection,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let word = page.wrapping_byte_add(offset);
    // SAFETY: FUTEX_WAKE does not read the word; its address lies in the page just mapped.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, i32::MAX) };
    let woken = answer(woken).map(|_| ());
    // SAFETY: exactly the page that was mapped above, which nothing uses any more.
    unsafe { libc::munmap(page, PAGE) };
    woken
}

/// Takes over a descriptor that was inherited under this number.
///
/// # Errors
/// `EBADF`: there is none of that number.
pub fn own_inherited(number: std::os::fd::RawFd) -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: the call takes integers only.
    answer(libc::c_long::from(unsafe {
        libc::fcntl(number, libc::F_GETFD)
    }))?;
    // SAFETY: it is open, and whoever started this program left it to it alone.
    Ok(unsafe { std::os::fd::OwnedFd::from_raw_fd(number) })
}

/// exit(2), the system call: ends the calling thread only. Of the main thread it makes a zombie while others run.
pub fn end_this_thread() -> ! {
    // SAFETY: the thread holds no lock and nothing on its stack is used by another one.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("exit(2) does not return")
}

/// A pidfd of the calling thread alone (pidfd_open(2), `PIDFD_THREAD`).
///
/// # Errors
/// `EINVAL` before Linux 6.9.
///
/// # Panics
/// Where a descriptor is no small number.
pub fn own_thread_pidfd() -> io::Result<OwnedFd> {
    let thread = nix::unistd::gettid().as_raw();
    // SAFETY: integers only.
    let number = answer(unsafe { libc::syscall(libc::SYS_pidfd_open, thread, libc::O_EXCL) })?;
    let number = i32::try_from(number).expect("a descriptor");
    // SAFETY: the kernel has just opened it for this call, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
