//! What the service manager is told (sd_notify(3)), over a socket that is connected before the lock-down.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use anyhow::{Context as _, Result};

/// The connection to the service manager, where there is one.
#[derive(Debug)]
pub(crate) struct Notify {
    socket: Option<OwnedFd>,
    /// How often it wants to hear that the helper lives: half of the time after which it would end it.
    pub(crate) watchdog: Option<Duration>,
}

impl Notify {
    /// Connects to the socket that `NOTIFY_SOCKET` names.
    pub(crate) fn connect() -> Result<Self> {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(Self {
                socket: None,
                watchdog: None,
            });
        };
        let address =
            address(&name).with_context(|| format!("NOTIFY_SOCKET={}", name.display()))?;
        let socket = UnixDatagram::unbound().context("make a datagram socket")?;
        socket
            .connect_addr(&address)
            .with_context(|| format!("connect to NOTIFY_SOCKET={}", name.display()))?;
        socket.set_nonblocking(true).context("set O_NONBLOCK")?;
        Ok(Self {
            socket: Some(socket.into()),
            watchdog: sd_notify::watchdog_enabled().map(|whole| whole / 2),
        })
    }

    /// Whether there is somebody to be told anything.
    pub(crate) fn is_connected(&self) -> bool {
        self.socket.is_some()
    }

    /// Sends one message. With write(2): the filter has no sendto(2).
    pub(crate) fn send(&self, message: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(errno) = nix::unistd::write(socket, message.as_bytes()) {
            crate::log::line(format_args!(
                "tell the service manager {message:?}: {errno}"
            ));
        }
    }
}

/// A path, or `@name` in the abstract namespace.
fn address(name: &OsString) -> std::io::Result<SocketAddr> {
    match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
        _ => SocketAddr::from_pathname(name),
    }
}
