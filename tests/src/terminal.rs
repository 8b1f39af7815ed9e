//! A terminal with a shell on it that has job control.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use nix::pty::{Winsize, openpty};

use crate::frontend::Sandbox;
use crate::scratch::wait_until;

/// A pseudo terminal, with bash as its session's leader. The shell gets SIGHUP when this is dropped.
#[derive(Debug)]
pub struct Terminal {
    master: Option<File>,
    shell: Child,
    output: Arc<Mutex<String>>,
    read: usize,
    name: String,
}

impl Terminal {
    /// Opens one whose shell finds `cgleaf` and the sandbox's places.
    ///
    /// # Panics
    /// Where there are no pseudo terminals.
    #[must_use]
    pub fn new(sandbox: &Sandbox) -> Self {
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(Some(&size), None).expect("open a pseudo terminal");
        let name = nix::unistd::ttyname(&pty.slave)
            .expect("its name")
            .display()
            .to_string();
        let end = || Stdio::from(pty.slave.try_clone().expect("dup"));
        let mut command: Command = sandbox.command("setsid");
        command
            .args(["--ctty", "bash", "--norc", "--noprofile", "-i"])
            .env("PS1", "$ ")
            .env("TERM", "xterm")
            .env_remove("PROMPT_COMMAND")
            .stdin(end())
            .stdout(end())
            .stderr(end());
        let shell = command.spawn().expect("start a shell");
        drop(command);
        drop(pty.slave);
        let master = File::from(pty.master);
        let output = Arc::new(Mutex::new(String::new()));
        let (from, to) = (master.try_clone().expect("dup"), Arc::clone(&output));
        std::thread::spawn(move || collect(from, &to));
        let mut terminal = Self {
            master: Some(master),
            shell,
            output,
            read: 0,
            name,
        };
        terminal.expect("$ ");
        terminal
    }

    /// Its device, such as /dev/pts/3.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Types something, as a keyboard would: `\r` is enter, `\x03` is ctrl-C.
    ///
    /// # Panics
    /// Where the terminal is gone.
    pub fn type_in(&mut self, text: &str) {
        let master = self.master.as_mut().expect("a terminal");
        master.write_all(text.as_bytes()).expect("type");
    }

    /// Waits until this was shown after what was waited for before. What was shown up to there.
    ///
    /// # Panics
    /// After a minute, with all that was shown.
    pub fn expect(&mut self, what: &str) -> String {
        let mut found = None;
        let (output, from) = (Arc::clone(&self.output), self.read);
        wait_until(&format!("{what:?} on the terminal"), || {
            let shown = output.lock().expect("the output");
            found = shown[from..].find(what).map(|at| at + what.len());
            if found.is_none() && std::env::var_os("CGLEAF_SHOW").is_some() {
                eprintln!("{:?}", &shown[from..]);
            }
            found.is_some()
        });
        let end = from + found.expect("found");
        self.read = end;
        self.output.lock().expect("the output")[from..end].to_owned()
    }

    /// Has the shell run a command line, waits for it, and gives what was shown and the exit status.
    ///
    /// # Panics
    /// As [`Self::expect`].
    pub fn line(&mut self, line: &str) -> (String, i32) {
        self.type_in(&format!("{line}; echo \"<$?>\"\r"));
        // The line as it was typed shows no digits between the brackets.
        self.status()
    }

    /// The status that the line before prints as `<N>`.
    ///
    /// # Panics
    /// As [`Self::expect`].
    pub fn status(&mut self) -> (String, i32) {
        let mut shown = String::new();
        loop {
            shown += &self.expect("<");
            let rest = self.expect(">");
            shown += &rest;
            if let Ok(status) = rest.trim_end_matches('>').parse() {
                return (shown, status);
            }
        }
    }

    /// Everything that was shown so far.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn shown(&self) -> String {
        self.output.lock().expect("the output").clone()
    }

    /// The terminal goes away, as when its window is closed.
    pub fn hang_up(&mut self) {
        self.master = None;
        // The reading thread has a copy of the descriptor: the shell's end closes it.
        let _ = nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(self.shell.id().cast_signed()),
            nix::sys::signal::Signal::SIGHUP,
        );
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.hang_up();
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

fn collect(mut from: File, to: &Mutex<String>) {
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        let text = String::from_utf8_lossy(&chunk[..count]).into_owned();
        to.lock().expect("the output").push_str(&text);
    }
}
