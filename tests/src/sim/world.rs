//! The simulated world: a program as a chain of forks, a PID 1 that reaps or does not, others who send SIGCONT, users who
//! stop things, and numbers that are used again.

use cgleaf_shared::process::{Pid, ProcessId, StartTicks};

/// The recorded group's number, which is its leader's pid.
pub const LEADER: i32 = 10;

/// How long a zombie of the group is to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reaping {
    /// Never: it is reaped as it ends.
    Prompt,
    /// For some time.
    Late,
    /// For ever: PID 1 does not reap.
    Never,
}

/// One environment, and how much may happen in it.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// What the tests call it.
    pub name: &'static str,
    /// What PID 1 does.
    pub reaping: Reaping,
    /// Forks of the chain.
    pub forks: u8,
    /// SIGCONTs by others.
    pub hostile: u8,
    /// SIGSTOPs by the user while the engines run.
    pub user_stops: u8,
    /// Had the user stopped the group before?
    pub stopped_before: bool,
    /// Is /proc that of our pid namespace?
    pub own_proc: bool,
    /// Can proofs be read?
    pub readable: bool,
    /// May a proof be unreadable for a moment, in a member that moves?
    pub blurs: bool,
    /// May a stranger get the number once nobody holds it?
    pub reuse: bool,
    /// Is the record of an earlier boot, and the number a stranger's now?
    pub rebooted: bool,
    /// May the leader's main thread end while another thread runs?
    pub threaded: bool,
    /// Had the program ended before?
    pub ended: bool,
    /// Is the first link of another user: not to be signalled by us?
    pub set_uid: bool,
    /// Does /proc hide other users' processes?
    pub hides: bool,
    /// May a killed member take its time to end?
    pub slow_death: bool,
    /// Does the group also hold a stranger's process with the same autogroup (a shell's job)?
    pub shared: bool,
    /// Destroys at once.
    pub destroyers: u8,
    /// gcs at once.
    pub collectors: u8,
}

impl Config {
    /// The plain case, which others change.
    pub const PLAIN: Config = Config {
        name: "plain",
        reaping: Reaping::Late,
        forks: 6,
        hostile: 0,
        user_stops: 0,
        stopped_before: false,
        own_proc: true,
        readable: true,
        blurs: false,
        reuse: false,
        rebooted: false,
        threaded: false,
        ended: false,
        set_uid: false,
        hides: false,
        slow_death: false,
        shared: false,
        destroyers: 1,
        collectors: 0,
    };
}

/// Does a process stand still?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stop {
    /// It runs.
    No,
    /// A SIGSTOP was sent, and it has not been run since: it begins no fork, it may complete an exit.
    Pending,
    /// It is stopped.
    Taken,
}

/// A simulated process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// When it began: a count of forks.
    pub start: u8,
    /// Is it of the recorded session?
    pub ours: bool,
    /// Has it ended?
    pub zombie: bool,
    /// Has its main thread ended while another runs?
    pub main_thread_ended: bool,
    /// Does it stand still?
    pub stop: Stop,
    /// A SIGKILL was sent and has not yet ended it.
    pub dying: bool,
    /// May we signal it, and see it where /proc hides?
    pub other_user: bool,
}

impl Process {
    fn new(pid: i32, start: u8, ours: bool) -> Process {
        Process {
            pid,
            start,
            ours,
            zombie: false,
            main_thread_ended: false,
            stop: Stop::No,
            dying: false,
            other_user: false,
        }
    }

    /// Does it live?
    pub fn lives(&self) -> bool {
        !self.zombie
    }

    /// Its identity, as /proc shows it.
    pub fn id(&self) -> ProcessId {
        ProcessId {
            pid: Pid::new(self.pid).expect("a simulated pid"),
            start: StartTicks(self.start.into()),
        }
    }

    fn moves(&self) -> bool {
        self.lives() && self.stop == Stop::No && !self.dying
    }

    fn may_exit(&self) -> bool {
        self.lives() && self.stop != Stop::Taken
    }
}

/// What the world may do by itself, between any two things that an engine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Move {
    /// A member forks a successor.
    Fork(i32),
    /// A member exits, or a killed one is gone.
    Exit(i32),
    /// The leader's main thread ends.
    MainThreadExits,
    /// A stop takes effect.
    StopTakesEffect(i32),
    /// A zombie is reaped.
    Reap(i32),
    /// Somebody continues the group.
    HostileCont,
    /// The user stops the group.
    UserStop,
    /// The next proof that is read of a moving member cannot be.
    Blur,
    /// A stranger gets the number.
    NumberReused,
}

/// The state of the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The members of whatever group has the number now, ordered by pid.
    pub members: Vec<Process>,
    starts: u8,
    forks_left: u8,
    conts_left: u8,
    user_stops_left: u8,
    /// Was the last stop of the group a user's?
    pub user_stop: bool,
    /// The next proof of a moving member is unreadable.
    pub blur: bool,
    reused: bool,
    /// Has a destroy begun?
    pub destroying: bool,
}

impl World {
    /// As it is when the first engine begins.
    pub fn new(config: &Config) -> World {
        let mut leader = Process::new(LEADER, 0, !config.rebooted);
        if config.ended {
            leader.zombie = true;
        }
        if config.stopped_before {
            leader.stop = Stop::Taken;
        }
        let mut world = World {
            members: vec![leader],
            starts: 1,
            forks_left: config.forks,
            conts_left: config.hostile,
            user_stops_left: config.user_stops,
            user_stop: config.stopped_before,
            blur: false,
            reused: config.rebooted,
            destroying: false,
        };
        if config.ended && config.reaping == Reaping::Prompt {
            world.members.clear();
        }
        if config.shared {
            let start = world.next_start();
            world.members.push(Process::new(LEADER + 1, start, false));
        }
        if config.set_uid {
            let start = world.next_start();
            let other_user = Process {
                other_user: true,
                ..Process::new(LEADER + 1, start, true)
            };
            world.members.push(other_user);
        }
        world
    }

    fn next_start(&mut self) -> u8 {
        self.starts += 1;
        self.starts
    }

    /// Does a process of the recorded session live in the group?
    pub fn ours_live(&self) -> bool {
        self.members
            .iter()
            .any(|process| process.ours && process.lives())
    }

    /// Is anybody stopped, or about to be?
    pub fn held(&self) -> bool {
        self.members
            .iter()
            .any(|process| process.lives() && process.stop != Stop::No)
    }

    /// What may happen now.
    pub fn moves(&self, config: &Config) -> Vec<Move> {
        let mut moves = Vec::new();
        let live = self
            .members
            .iter()
            .filter(|process| process.lives())
            .count();
        for process in &self.members {
            // Another user's member forks no chain: a SIGSTOP would not reach it, which docs/LIMITS.md states.
            let may_fork = process.ours && process.moves() && !process.other_user;
            if may_fork && self.forks_left > 0 && live < 2 {
                moves.push(Move::Fork(process.pid));
            }
            if process.may_exit() && (process.dying || process.ours) {
                moves.push(Move::Exit(process.pid));
            }
            if process.lives() && process.stop == Stop::Pending && !process.dying {
                moves.push(Move::StopTakesEffect(process.pid));
            }
            if config.threaded
                && process.pid == LEADER
                && process.moves()
                && !process.main_thread_ended
            {
                moves.push(Move::MainThreadExits);
            }
        }
        if config.reaping == Reaping::Late
            && let Some(zombie) = self.members.iter().find(|process| process.zombie)
        {
            // In the order of their numbers: which one is left does not matter to anybody.
            moves.push(Move::Reap(zombie.pid));
        }
        let moving = self.members.iter().any(Process::moves);
        if self.conts_left > 0 && self.held() {
            moves.push(Move::HostileCont);
        }
        if self.user_stops_left > 0 && moving {
            moves.push(Move::UserStop);
        }
        if config.blurs && !self.blur && moving {
            moves.push(Move::Blur);
        }
        if config.reuse && !self.reused && self.members.is_empty() {
            moves.push(Move::NumberReused);
        }
        moves
    }

    /// Does it.
    pub fn apply(&mut self, happening: Move, config: &Config) {
        match happening {
            Move::Fork(_) => self.fork(config),
            Move::Exit(pid) => self.exit(pid, config),
            Move::MainThreadExits => self.with(LEADER, |leader| leader.main_thread_ended = true),
            Move::StopTakesEffect(pid) => self.with(pid, |process| process.stop = Stop::Taken),
            Move::Reap(pid) => self.members.retain(|process| process.pid != pid),
            Move::HostileCont => {
                self.conts_left -= 1;
                self.cont();
            }
            Move::UserStop => {
                self.user_stops_left -= 1;
                self.stop();
                self.user_stop = true;
            }
            Move::Blur => self.blur = true,
            Move::NumberReused => {
                self.reused = true;
                let start = self.next_start();
                self.members.push(Process::new(LEADER, start, false));
            }
        }
    }

    fn with(&mut self, pid: i32, change: impl FnOnce(&mut Process)) {
        if let Some(process) = self.members.iter_mut().find(|process| process.pid == pid) {
            change(process);
        }
    }

    /// Where numbers are used again: the lowest free one but the group's own, as soon as can be. Else a new one.
    fn fork(&mut self, config: &Config) {
        self.forks_left -= 1;
        let start = self.next_start();
        let taken = |pid: i32| self.members.iter().any(|process| process.pid == pid);
        let lowest = if config.reuse { 1 } else { i32::from(start) };
        let pid = (LEADER + lowest..)
            .find(|&pid| !taken(pid))
            .expect("a free pid");
        self.members.push(Process::new(pid, start, true));
        self.members.sort_unstable();
    }

    /// Does a process of this number live?
    pub fn lives(&self, pid: i32) -> bool {
        self.members
            .iter()
            .any(|process| process.pid == pid && process.lives())
    }

    fn exit(&mut self, pid: i32, config: &Config) {
        if config.reaping == Reaping::Prompt {
            self.members.retain(|process| process.pid != pid);
        } else {
            self.with(pid, |process| {
                *process = Process {
                    zombie: true,
                    ..Process::new(pid, process.start, process.ours)
                };
            });
        }
    }

    /// SIGCONT to the group.
    pub fn cont(&mut self) {
        self.user_stop = false;
        for process in &mut self.members {
            process.stop = Stop::No;
        }
    }

    /// SIGSTOP to the group.
    pub fn stop(&mut self) {
        if self
            .members
            .iter()
            .any(|process| process.moves() && !process.other_user)
        {
            self.user_stop = false;
        }
        for process in &mut self.members {
            if process.moves() && !process.other_user {
                process.stop = Stop::Pending;
            }
        }
    }

    /// SIGKILL to the group; `true` if it reached a stranger.
    pub fn kill(&mut self, config: &Config) -> bool {
        let reached: Vec<Process> = self
            .members
            .iter()
            .filter(|process| process.lives() && !process.other_user)
            .copied()
            .collect();
        for process in &reached {
            if config.slow_death {
                self.with(process.pid, |process| {
                    (process.dying, process.stop) = (true, Stop::No);
                });
            } else {
                self.exit(process.pid, config);
            }
        }
        reached.iter().any(|process| !process.ours)
    }
}
