//! What `run` and its monitor tell each other: packets of two numbers over a socketpair.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};

/// One end.
#[derive(Debug)]
pub(super) struct Channel(OwnedFd);

/// To `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// The program's process is there, with this pid, and waits.
    Ready(i32),
    /// The program could not be executed: the errno.
    NotExecuted(i32),
    /// It is executed.
    Executed,
    /// The leader was stopped by this signal.
    Stopped(i32),
    /// The leader goes on.
    Continued,
    /// The leader has exited, with this code.
    Exited(i32),
    /// The leader was ended by this signal.
    Signalled(i32),
    /// Nothing of the session is left: ECHILD. So many had outlived the leader and were ended for that.
    AllEnded(i32),
    /// SIGKILL did not end all of it in the time there is.
    GaveUp,
}

/// To the monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Execute the program.
    Go,
    /// Send this signal to the leader.
    Signal(i32),
    /// End everything: SIGTERM, and so many milliseconds until the SIGKILL; with 0 at once.
    End(i32),
}

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received<T> {
    /// A message.
    Message(T),
    /// Nothing just now.
    Nothing,
    /// The other side is gone.
    Closed,
}

type Packet = [u8; 8];

fn packet(tag: i32, value: i32) -> Packet {
    let mut packet = [0; 8];
    packet[..4].copy_from_slice(&tag.to_le_bytes());
    packet[4..].copy_from_slice(&value.to_le_bytes());
    packet
}

fn unpack(packet: Packet) -> (i32, i32) {
    let [a, b, c, d, e, f, g, h] = packet;
    (
        i32::from_le_bytes([a, b, c, d]),
        i32::from_le_bytes([e, f, g, h]),
    )
}

fn order(tag: i32, value: i32) -> Option<Order> {
    Some(match tag {
        0 => Order::Go,
        1 => Order::Signal(value),
        2 => Order::End(value),
        _ => return None,
    })
}

impl Channel {
    /// Both ends, close-on-exec.
    pub(super) fn pair() -> io::Result<(Channel, Channel)> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (one, other) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        Ok((Channel(one), Channel(other)))
    }

    /// `run` may have gone, or may not read: neither holds up the monitor.
    pub(super) fn report(&self, report: Report) {
        let (tag, value) = match report {
            Report::Ready(pid) => (0, pid),
            Report::NotExecuted(errno) => (1, errno),
            Report::Executed => (2, 0),
            Report::Stopped(signal) => (3, signal),
            Report::Continued => (4, 0),
            Report::Exited(code) => (5, code),
            Report::Signalled(signal) => (6, signal),
            Report::AllEnded(ended) => (7, ended),
            Report::GaveUp => (8, 0),
        };
        let _ = self.send(packet(tag, value));
    }

    /// Tells the monitor.
    pub(super) fn order(&self, order: Order) -> io::Result<()> {
        let (tag, value) = match order {
            Order::Go => (0, 0),
            Order::Signal(signal) => (1, signal),
            Order::End(milliseconds) => (2, milliseconds),
        };
        self.send(packet(tag, value))
    }

    /// The next report, if there is one; with `wait`, once there is one.
    pub(super) fn next_report(&self, wait: bool) -> io::Result<Received<Report>> {
        self.receive(wait, |tag, value| {
            Some(match tag {
                0 => Report::Ready(value),
                1 => Report::NotExecuted(value),
                2 => Report::Executed,
                3 => Report::Stopped(value),
                4 => Report::Continued,
                5 => Report::Exited(value),
                6 => Report::Signalled(value),
                7 => Report::AllEnded(value),
                8 => Report::GaveUp,
                _ => return None,
            })
        })
    }

    /// The next order, once there is one.
    pub(super) fn next_order_waiting(&self) -> io::Result<Received<Order>> {
        self.receive(true, order)
    }

    /// The next order, if there is one.
    pub(super) fn next_order(&self) -> io::Result<Received<Order>> {
        self.receive(false, order)
    }

    fn send(&self, packet: Packet) -> io::Result<()> {
        send(
            self.0.as_raw_fd(),
            &packet,
            MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT,
        )?;
        Ok(())
    }

    fn receive<T>(
        &self,
        wait: bool,
        read: impl Fn(i32, i32) -> Option<T>,
    ) -> io::Result<Received<T>> {
        let mut packet = [0; 8];
        let flags = if wait {
            MsgFlags::empty()
        } else {
            MsgFlags::MSG_DONTWAIT
        };
        loop {
            return match recv(self.0.as_raw_fd(), &mut packet, flags) {
                Ok(8) => {
                    let (tag, value) = unpack(packet);
                    read(tag, value)
                        .map(Received::Message)
                        .ok_or_else(|| io::ErrorKind::InvalidData.into())
                }
                Ok(0) | Err(Errno::ECONNRESET) => Ok(Received::Closed),
                Ok(_) => Err(io::ErrorKind::InvalidData.into()),
                Err(Errno::EAGAIN) => Ok(Received::Nothing),
                Err(Errno::EINTR) if wait => continue,
                Err(errno) => Err(errno.into()),
            };
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
