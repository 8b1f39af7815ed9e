//! A screen of our own on the terminal, and the keys typed meanwhile. What was there before comes back at the end.

use std::io::{Write, stdin, stdout};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};

use crate::error::{Code, OrCode, Result};

/// A key that means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// `q`, Ctrl-C, Ctrl-D, or the terminal's end.
    Quit,
    /// Anything else: look again at once.
    Other,
}

/// The terminal's alternate screen; dropping it brings the first one back.
pub(super) struct Screen {
    before: Termios,
}

impl Screen {
    /// Opens it.
    ///
    /// # Errors
    /// INTERNAL: stdin is no terminal.
    pub(super) fn open() -> Result<Self> {
        let before = tcgetattr(stdin()).or_code(Code::Internal)?;
        let mut now = before.clone();
        // Ctrl-C is a key here: a signal would leave the terminal as it is now.
        now.local_flags
            .remove(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG);
        tcsetattr(stdin(), SetArg::TCSADRAIN, &now).or_code(Code::Internal)?;
        let screen = Self { before };
        put("\u{1b}[?1049h\u{1b}[?25l")?;
        Ok(screen)
    }

    /// Shows a text, from the top, as many lines of it as there is room for.
    ///
    /// # Errors
    /// INTERNAL: stdout cannot be written.
    pub(super) fn draw(&mut self, text: &str) -> Result<()> {
        let height = terminal_size::terminal_size_of(stdout())
            .map_or(24, |(_, height)| usize::from(height.0));
        let mut frame = String::from("\u{1b}[H");
        for (index, line) in text.lines().take(height).enumerate() {
            if index > 0 {
                frame.push_str("\r\n");
            }
            // Without a blank screen between two frames there is nothing that flickers.
            frame.push_str(line);
            frame.push_str("\u{1b}[K");
        }
        frame.push_str("\u{1b}[J");
        put(&frame)
    }

    /// The next key, if one is typed in that time.
    pub(super) fn wait(&self, time: Duration) -> Option<Key> {
        let input = stdin();
        let mut fds = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        let limit = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, limit) {
            Ok(0) => None,
            Ok(_) => Some(read_key()),
            // The window's size has changed, for one.
            Err(nix::errno::Errno::EINTR) => Some(Key::Other),
            Err(_) => Some(Key::Quit),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = put("\u{1b}[?25h\u{1b}[?1049l");
        let _ = tcsetattr(stdin(), SetArg::TCSADRAIN, &self.before);
    }
}

fn read_key() -> Key {
    let mut bytes = [0; 16];
    match nix::unistd::read(stdin(), &mut bytes) {
        Ok(0) | Err(_) => Key::Quit,
        Ok(count)
            if bytes[..count]
                .iter()
                .any(|byte| matches!(byte, b'q' | b'Q' | 3 | 4)) =>
        {
            Key::Quit
        }
        Ok(_) => Key::Other,
    }
}

fn put(text: &str) -> Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .or_code(Code::Internal)
}
