//! Where a test can stop the real code between two of its steps. Without the cargo feature `steps` there is nothing here.
//!
//! `CGLEAF_STEPS` names a listening stream socket. A process connects to it at its first step, writes one line for each
//! step, `NAME PID\n`, and goes on when a byte comes back. A connection that ends lets it go on for good.
//!
//! `CGLEAF_WITHOUT` names a guard that is left out, so that a test can show what it is there for.

/// The process is at the step of that name.
#[cfg(not(feature = "steps"))]
#[inline(always)]
pub fn at(_name: &str) {}

/// Whether the guard of that name is left out.
#[cfg(not(feature = "steps"))]
#[inline(always)]
pub const fn is_left_out(_guard: &str) -> bool {
    false
}

#[cfg(feature = "steps")]
pub use on::{at, is_left_out};

#[cfg(feature = "steps")]
mod on {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::OnceLock;

    /// The process is at the step of that name, and waits to be told to go on.
    pub fn at(name: &str) {
        let Some(mut socket) = socket() else { return };
        let told = writeln!(socket, "{name} {}", std::process::id());
        if told.is_ok() {
            let _ = socket.read(&mut [0]);
        }
    }

    /// Whether the guard of that name is left out.
    pub fn is_left_out(guard: &str) -> bool {
        std::env::var_os("CGLEAF_WITHOUT").is_some_and(|name| name == guard)
    }

    fn socket() -> Option<&'static UnixStream> {
        static SOCKET: OnceLock<Option<UnixStream>> = OnceLock::new();
        SOCKET
            .get_or_init(|| {
                let path = std::env::var_os("CGLEAF_STEPS")?;
                Some(UnixStream::connect(path).expect("connect to CGLEAF_STEPS"))
            })
            .as_ref()
    }
}
