//! One packet, with the descriptors that came or go with it.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

use crate::sys;

/// A received packet.
#[derive(Debug)]
pub struct Packet {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The descriptors that came with it, close-on-exec; whoever drops them closes them.
    pub descriptors: Vec<OwnedFd>,
    /// Whether some of the bytes or descriptors did not fit and are lost.
    pub truncated: bool,
}

/// Room for the most descriptors that one packet can carry (`SCM_MAX_FD`, unix(7)): what is not received is
/// not closed by us, so that all of it is received.
const MAX_DESCRIPTORS: usize = 253;

/// Receives one packet of at most `limit` bytes; `None` at the end of the connection.
///
/// # Errors
/// `WouldBlock` on a non-blocking socket that has none; whatever recvmsg(2) answers.
pub fn receive(socket: BorrowedFd<'_>, limit: usize) -> io::Result<Option<Packet>> {
    // One byte more than allowed, so that a longer packet is seen to be too long, not cut to fit.
    let mut bytes = vec![0; limit + 1];
    let mut control = nix::cmsg_space!([std::os::fd::RawFd; MAX_DESCRIPTORS]);
    let (length, descriptors, flags) = loop {
        let mut buffers = [IoSliceMut::new(&mut bytes)];
        match recvmsg::<()>(
            socket.as_raw_fd(),
            &mut buffers,
            Some(&mut control),
            MsgFlags::MSG_CMSG_CLOEXEC,
        ) {
            Ok(message) => break (message.bytes, own_descriptors(&message), message.flags),
            Err(nix::Error::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    };
    if length == 0 && descriptors.is_empty() {
        return Ok(None);
    }
    bytes.truncate(length);
    let truncated = length > limit || flags.intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC);
    Ok(Some(Packet {
        bytes,
        descriptors,
        truncated,
    }))
}

fn own_descriptors(message: &nix::sys::socket::RecvMsg<'_, '_, ()>) -> Vec<OwnedFd> {
    let Ok(control) = message.cmsgs() else {
        return Vec::new();
    };
    let mut owned = Vec::new();
    for part in control {
        if let ControlMessageOwned::ScmRights(raw) = part {
            owned.extend(raw.into_iter().map(sys::own_received));
        }
    }
    owned
}

/// Sends one packet, with one descriptor at most. SIGPIPE is not raised.
///
/// # Errors
/// `WouldBlock` if it must not block and would; `EPIPE`, `ECONNRESET`: the other side is gone; `ETOOMANYREFS`: too
/// many descriptors of this user are in flight.
pub fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
    block: bool,
) -> io::Result<()> {
    let raw = descriptor.map(|fd| [fd.as_raw_fd()]);
    let rights = raw.as_ref().map(|fds| ControlMessage::ScmRights(fds));
    let flags = if block {
        MsgFlags::MSG_NOSIGNAL
    } else {
        MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT
    };
    loop {
        match sendmsg::<()>(
            socket.as_raw_fd(),
            &[IoSlice::new(bytes)],
            rights.as_slice(),
            flags,
            None,
        ) {
            Ok(_) => return Ok(()),
            Err(nix::Error::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
