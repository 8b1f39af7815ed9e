//! Drives processes of cgleaf that were built with the feature `steps` through every order of their steps.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::scratch::wait_until;
use crate::session::is_dead;

/// One process, stopped at a step, or not started, or ended.
#[derive(Debug)]
pub struct Actor {
    command: Option<Command>,
    child: Option<Child>,
    socket: Option<UnixStream>,
    /// The process that takes the steps: `start`'s is a child of the one that was started.
    pid: Option<u32>,
    text: String,
    /// Where it stands.
    at: Option<String>,
    ended: Option<i32>,
}

/// The steps that were taken, in their order: which actor, and where it stood then.
pub type Taken = Vec<(usize, String)>;

/// The processes of one schedule.
pub struct Stage<'a> {
    listener: UnixListener,
    actors: Vec<Actor>,
    /// Whether an actor cannot go on for now, whatever it is told: it is frozen.
    is_held: &'a dyn Fn(usize) -> bool,
    /// The steps at which nobody stops.
    passed: &'a [&'a str],
    taken: Taken,
}

impl<'a> Stage<'a> {
    /// The commands are told of the socket at `path`, which is made anew.
    ///
    /// # Panics
    /// Where it cannot be made.
    #[must_use]
    pub fn new(path: &Path, commands: Vec<Command>, is_held: &'a dyn Fn(usize) -> bool) -> Self {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).expect("bind the stepping socket");
        listener.set_nonblocking(true).expect("fcntl");
        let actors = commands
            .into_iter()
            .map(|mut command| {
                command.env("CGLEAF_STEPS", path);
                Actor {
                    command: Some(command),
                    child: None,
                    socket: None,
                    pid: None,
                    text: String::new(),
                    at: None,
                    ended: None,
                }
            })
            .collect();
        Self {
            listener,
            actors,
            is_held,
            passed: &[],
            taken: Vec::new(),
        }
    }

    /// Nobody stops at these steps: they lie between two of another process's that cannot tell whether this one was taken.
    #[must_use]
    pub fn passing(mut self, steps: &'a [&'a str]) -> Self {
        self.passed = steps;
        self
    }

    /// The actors that can take a step now.
    #[must_use]
    pub fn ready(&self) -> Vec<usize> {
        (0..self.actors.len())
            .filter(|at| {
                let actor = &self.actors[*at];
                actor.command.is_some() || actor.at.is_some()
            })
            .collect()
    }

    /// Where an actor stands.
    #[must_use]
    pub fn at(&self, number: usize) -> Option<&str> {
        self.actors[number].at.as_deref()
    }

    /// The process that takes an actor's steps, once it has come to one.
    #[must_use]
    pub fn pid(&self, number: usize) -> Option<u32> {
        self.actors[number].pid
    }

    /// Kills one where it stands, and waits for its end.
    ///
    /// # Panics
    /// Where it has come to no step, or does not end.
    pub fn kill(&mut self, number: usize) {
        let pid = self
            .pid(number)
            .expect("it has come to a step")
            .cast_signed();
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        let actor = &mut self.actors[number];
        wait_until("the end of what was killed", || {
            actor.look();
            is_dead(pid)
        });
        actor.at = None;
    }

    /// Sends a signal to the process that takes an actor's steps.
    ///
    /// # Panics
    /// Where it has come to no step, or has ended.
    pub fn signal(&self, number: usize, signal: Signal) {
        let pid = self.pid(number).expect("it has come to a step");
        kill(Pid::from_raw(pid.cast_signed()), signal).expect("send it");
    }

    /// Kills the process that was started, where another one takes its steps.
    ///
    /// # Panics
    /// Where it was not started.
    pub fn kill_the_caller(&mut self, number: usize) {
        let child = self.actors[number].child.as_mut().expect("it was started");
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Has one take its next step.
    ///
    /// # Panics
    /// Where it cannot be started.
    pub fn go(&mut self, number: usize) {
        let actor = &mut self.actors[number];
        let from = actor.at.take().unwrap_or_else(|| "begin".to_owned());
        self.taken.push((number, from));
        if let Some(mut command) = actor.command.take() {
            actor.child = Some(command.spawn().expect("start an actor"));
        } else {
            actor.go_on();
        }
    }

    /// Has one take its next step, and waits until it stands at another one, has ended, or is held.
    ///
    /// # Panics
    /// Where it neither does so nor ends.
    pub fn step(&mut self, number: usize) {
        self.go(number);
        wait_until("a step", || {
            self.look();
            let actor = &self.actors[number];
            actor.at.is_some() || actor.ended.is_some() || (self.is_held)(number)
        });
    }

    /// Lets what was held go on to where it stops again, if it can.
    pub fn look(&mut self) {
        while let Ok((mut socket, _)) = self.listener.accept() {
            socket.set_nonblocking(true).expect("fcntl");
            let mut byte = [0];
            let mut text = String::new();
            // The first line comes with the connection, and says whose it is.
            wait_until("a first line", || {
                while let Ok(1) = socket.read(&mut byte) {
                    text.push(char::from(byte[0]));
                }
                text.ends_with('\n')
            });
            let pid = text
                .trim()
                .rsplit(' ')
                .next()
                .and_then(|word| word.parse::<u32>().ok());
            if let Some(actor) = self.owner(pid) {
                actor.socket = Some(socket);
                actor.pid = pid;
                actor.text = text;
            }
        }
        for actor in &mut self.actors {
            actor.look();
            if actor
                .at
                .as_deref()
                .is_some_and(|at| self.passed.contains(&at))
            {
                actor.at = None;
                actor.go_on();
            }
        }
    }

    /// Whose process this is: the one that was started; else a child of the only one that has none yet.
    fn owner(&mut self, pid: Option<u32>) -> Option<&mut Actor> {
        let direct = |actor: &Actor| actor.child.as_ref().map(Child::id) == pid;
        let waiting = |actor: &Actor| actor.child.is_some() && actor.socket.is_none();
        let at = self.actors.iter().position(direct).or_else(|| {
            let mut all = (0..self.actors.len()).filter(|at| waiting(&self.actors[*at]));
            all.next().filter(|_| all.next().is_none())
        })?;
        self.actors.get_mut(at)
    }

    /// The exit status of an actor that has ended.
    #[must_use]
    pub fn ended(&self, number: usize) -> Option<i32> {
        self.actors[number].ended
    }

    /// The steps that were taken.
    #[must_use]
    pub fn taken(&self) -> &Taken {
        &self.taken
    }
}

impl Actor {
    fn go_on(&mut self) {
        if let Some(socket) = &mut self.socket {
            let _ = socket.write_all(b"g");
        }
    }

    fn look(&mut self) {
        if let Some(socket) = &mut self.socket {
            let mut chunk = [0; 256];
            while let Ok(count @ 1..) = socket.read(&mut chunk) {
                self.text += &String::from_utf8_lossy(&chunk[..count]);
            }
        }
        if let Some((line, rest)) = self.text.split_once('\n') {
            self.at = line.rsplit_once(' ').map(|(name, _)| name.to_owned());
            self.text = rest.to_owned();
        }
        if self.ended.is_none()
            && let Some(child) = &mut self.child
            && let Ok(Some(status)) = child.try_wait()
        {
            use std::os::unix::process::ExitStatusExt;
            self.ended = Some(
                status
                    .code()
                    .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
            );
            self.at = None;
        }
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        for actor in &mut self.actors {
            if let Some(child) = &mut actor.child {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// Every order of choices, depth first: what to choose at each point, and how many there were to choose from.
#[derive(Debug, Default)]
pub struct Orders {
    chosen: Vec<(usize, usize)>,
    at: usize,
    begun: bool,
}

impl Orders {
    /// Begins the next order; `false` when there is none left.
    pub fn next_order(&mut self) -> bool {
        self.at = 0;
        if !std::mem::replace(&mut self.begun, true) {
            return true;
        }
        while let Some((choice, of)) = self.chosen.pop() {
            if choice + 1 < of {
                self.chosen.push((choice + 1, of));
                return true;
            }
        }
        false
    }

    /// Chooses one of so many.
    ///
    /// # Panics
    /// Where there is nothing to choose from.
    pub fn choose(&mut self, of: usize) -> usize {
        assert!(of > 0);
        if self.at == self.chosen.len() {
            self.chosen.push((0, of));
        }
        let entry = &mut self.chosen[self.at];
        // The kernel may be faster or slower than before: then there are fewer to choose from.
        entry.1 = of;
        entry.0 = entry.0.min(of - 1);
        self.at += 1;
        entry.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_comes_once() {
        let mut orders = Orders::default();
        let mut seen = Vec::new();
        while orders.next_order() {
            let first = orders.choose(2);
            let second = if first == 0 { orders.choose(3) } else { 9 };
            seen.push((first, second));
        }
        assert_eq!(seen, [(0, 0), (0, 1), (0, 2), (1, 9)]);
    }
}
