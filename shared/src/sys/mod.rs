//! The system calls that no library wraps as we need them. All `unsafe` of this crate is in this module.
#![allow(unsafe_code)]

mod handle;
pub(crate) mod pidfd;
mod xattr;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

pub(crate) use handle::kernfs_id;
pub(crate) use xattr::get_xattr;

use crate::id::BootTime;

/// Fills `buffer` with random bytes: getrandom(2), which blocks only before the pool is ready at boot.
pub(crate) fn random(buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        let rest = &mut buffer[filled..];
        // SAFETY: pointer and length are of one live, exclusively borrowed slice.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(got) {
            Ok(n) => filled += n,
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
    Ok(())
}

/// umask(2). The call itself cannot fail, and libraries take that for granted; a system call filter can refuse it.
pub(crate) fn set_umask(mask: u32) -> io::Result<()> {
    // SAFETY: it takes a number, and changes nothing but this process's mask.
    let before = unsafe { libc::umask(mask) };
    if before > 0o777 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// CLOCK_BOOTTIME. It cannot fail on any kernel that has cgroup2 (2.6.39 introduced it).
pub(crate) fn boot_time() -> BootTime {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
        .map_or(std::time::Duration::ZERO, std::time::Duration::from);
    BootTime(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

/// Reads a whole file of the kernel's. `std::fs::read` would ask statx first for a size that is always 0.
pub(crate) fn read_file(path: &str) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    read_all(&mut file)
}

/// Reads until end of file, without asking for the size.
pub(crate) fn read_all(file: &mut File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(content),
            Ok(n) => content.extend_from_slice(&chunk[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Takes ownership of descriptors that the kernel has just installed for a received message.
pub(crate) fn own_received(raw: RawFd) -> OwnedFd {
    // SAFETY: recvmsg(2) made this descriptor for us a moment ago and nobody else has seen its number.
    unsafe { OwnedFd::from_raw_fd(raw) }
}
