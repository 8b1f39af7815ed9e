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
    /// Whether descriptors came that [`receive_bytes`] did not take.
    pub descriptors_refused: bool,
}

/// Room for the most descriptors that one packet can carry (`SCM_MAX_FD`, unix(7)): what is not received is
/// not closed by us, so that all of it is received.
const MAX_DESCRIPTORS: usize = 253;

/// Receives one packet of at most `limit` bytes; `None` at the end of the connection.
///
/// # Errors
/// `WouldBlock` on a non-blocking socket that has none; whatever recvmsg(2) answers.
pub fn receive(socket: BorrowedFd<'_>, limit: usize) -> io::Result<Option<Packet>> {
    let mut control = nix::cmsg_space!([std::os::fd::RawFd; MAX_DESCRIPTORS]);
    let packet = receive_with(socket, limit, Some(&mut control))?;
    Ok(packet.map(|(mut packet, lost)| {
        packet.truncated |= lost;
        packet
    }))
}

/// [`receive`] for whoever takes no descriptor from anybody: the kernel drops what comes, and it is no part of this
/// process for a moment. Closing one can wait for as long as its sender likes, where it is of a file system in the sender's
/// hands (fuse(4): close(2) waits for the answer to FLUSH).
///
/// # Errors
/// As [`receive`].
pub fn receive_bytes(socket: BorrowedFd<'_>, limit: usize) -> io::Result<Option<Packet>> {
    let packet = receive_with(socket, limit, None)?;
    Ok(packet.map(|(mut packet, lost)| {
        packet.descriptors_refused = lost;
        packet
    }))
}

/// The packet, and whether something of its control data was lost (`MSG_CTRUNC`).
fn receive_with(
    socket: BorrowedFd<'_>,
    limit: usize,
    mut control: Option<&mut [u8]>,
) -> io::Result<Option<(Packet, bool)>> {
    // One byte more than allowed, so that a longer packet is seen to be too long, not cut to fit.
    let mut bytes = vec![0; limit + 1];
    let (length, descriptors, flags) = loop {
        let mut buffers = [IoSliceMut::new(&mut bytes)];
        match recvmsg::<()>(
            socket.as_raw_fd(),
            &mut buffers,
            control.as_deref_mut(),
            MsgFlags::MSG_CMSG_CLOEXEC,
        ) {
            Ok(message) => break (message.bytes, own_descriptors(&message), message.flags),
            Err(nix::Error::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    };
    let lost = flags.contains(MsgFlags::MSG_CTRUNC);
    if length == 0 && descriptors.is_empty() && !lost {
        return Ok(None);
    }
    bytes.truncate(length);
    let packet = Packet {
        bytes,
        descriptors,
        truncated: length > limit || flags.contains(MsgFlags::MSG_TRUNC),
        descriptors_refused: false,
    };
    Ok(Some((packet, lost)))
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
