//! The engine on the real kernel, with something happening at the very moment that matters: between two of its operations.

use std::cell::RefCell;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use cgleaf::group::engine::{Answer, Destroy, Doubt};
use cgleaf::group::gc::{Gc, Judgement};
use cgleaf::group::guards::AllGuards;
use cgleaf::group::kernel::{Delivery, GroupSignal, Kernel, Place, Proof, Reading};
use cgleaf::group::procfs::ProcfsKernel;
use cgleaf_shared::process::{Pid, Pidfd, Proc, State};
use cgleaf_tests::group::{GroupCase, lives, pid_of, state};
use cgleaf_tests::scratch::wait_until;

const HOST: &str = env!("CARGO_BIN_EXE_group-host");

/// What the engine did, in order. Readings of processes that are no members are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    List,
    Saw(&'static str),
    Signal(GroupSignal),
    Settle,
    Probe(bool),
}

type BeforeRead<'a> = Box<dyn FnMut(&[Done], Pid) + 'a>;

/// The real kernel, with something done before a reading and something changed in it.
struct Injected<'a> {
    inner: ProcfsKernel<'a>,
    done: Vec<Done>,
    before_read: BeforeRead<'a>,
    change: Box<dyn FnMut(Reading) -> Reading + 'a>,
    at_settle: Box<dyn FnMut() + 'a>,
}

impl<'a> Injected<'a> {
    fn new(inner: ProcfsKernel<'a>) -> Self {
        Injected {
            inner,
            done: Vec::new(),
            before_read: Box::new(|_, _| {}),
            change: Box::new(|reading| reading),
            at_settle: Box::new(|| {}),
        }
    }

    fn signals(&self) -> Vec<GroupSignal> {
        let signal = |done: &Done| {
            if let Done::Signal(signal) = done {
                Some(*signal)
            } else {
                None
            }
        };
        self.done.iter().filter_map(signal).collect()
    }
}

impl Kernel for Injected<'_> {
    fn place(&mut self) -> Place {
        self.inner.place()
    }

    fn list(&mut self) -> Option<Vec<Pid>> {
        self.done.push(Done::List);
        self.inner.list()
    }

    fn read(&mut self, pid: Pid) -> Reading {
        (self.before_read)(&self.done, pid);
        let reading = (self.change)(self.inner.read(pid));
        match reading {
            Reading::Live { .. } => self.done.push(Done::Saw("live")),
            Reading::Zombie => self.done.push(Done::Saw("zombie")),
            Reading::Hidden => self.done.push(Done::Saw("hidden")),
            Reading::NoMember => {}
        }
        reading
    }

    fn signal(&mut self, signal: GroupSignal) -> Delivery {
        self.done.push(Done::Signal(signal));
        self.inner.signal(signal)
    }

    fn settle(&mut self) {
        self.done.push(Done::Settle);
        self.inner.settle();
        (self.at_settle)();
    }

    fn probe(&mut self) -> bool {
        let found = self.inner.probe();
        self.done.push(Done::Probe(found));
        found
    }

    fn wait_on(&mut self) -> bool {
        self.inner.wait_on()
    }

    fn destroy_began(&mut self) -> bool {
        self.inner.destroy_began()
    }
}

/// A group whose only process, when it is told to, starts another one and ends: one link of a chain, by hand.
struct Link {
    case: GroupCase,
    leader: Child,
    word: RefCell<Option<ChildStdin>>,
}

impl Link {
    fn new() -> Link {
        let case = GroupCase::new(HOST);
        let mut command = Command::new("setsid");
        command
            .arg(HOST)
            .arg("exec")
            .arg(case.file())
            .arg(case.mark());
        command
            .args(["sh", "-c", "read word; sleep 300 <&- & exit 0"])
            .stdin(Stdio::piped());
        let mut leader = command.spawn().expect("group-host");
        let word = RefCell::new(leader.stdin.take());
        let pid = pid_of(&leader);
        wait_until("the shell", || {
            let proc = Proc::system().expect("/proc");
            proc.process(pid)
                .and_then(|process| process.stat())
                .is_ok_and(|stat| stat.comm == b"sh")
        });
        Link { case, leader, word }
    }

    /// The successor is there and the leader has ended, once only.
    fn move_on(&self) {
        let Some(mut word) = self.word.borrow_mut().take() else {
            return;
        };
        writeln!(word, "go").expect("the shell reads");
        let leader = pid_of(&self.leader);
        wait_until("the end of the leader", || {
            state(leader) == Some(State::Zombie)
        });
        assert_eq!(self.case.living().len(), 1, "its successor");
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = self.leader.kill();
        let _ = self.leader.wait();
    }
}

fn kernel<'a>(proc: &'a Proc, identity: &'a cgleaf::group::GroupIdentity) -> Injected<'a> {
    Injected::new(
        ProcfsKernel::new(proc, identity, Duration::from_secs(30)).expect("a group of its own"),
    )
}

const FREEZE: [Done; 2] = [Done::Signal(GroupSignal::Stop), Done::Settle];

/// Between the listing and the reading the chain moves: nobody is seen, and the group is frozen, looked at and killed.
#[test]
fn a_chain_that_moves_between_two_reads_is_frozen_and_killed() {
    let link = Link::new();
    let (proc, identity) = (Proc::system().expect("/proc"), link.case.identity());
    let mut kernel = kernel(&proc, &identity);
    kernel.before_read = Box::new(|_, pid| {
        if pid == identity.pid {
            link.move_on();
        }
    });
    assert_eq!(
        Destroy::<AllGuards>::default().run(&mut kernel),
        Answer::Ended
    );
    let done = &kernel.done;
    assert_eq!(done[..2], [Done::List, Done::Saw("zombie")], "{done:?}");
    assert_eq!(done[2..4], FREEZE, "{done:?}");
    assert_eq!(kernel.signals(), [GroupSignal::Stop, GroupSignal::Kill]);
    drop(kernel);
    assert!(link.case.living().is_empty());
}

/// Between the two readings of the witness it ends.
#[test]
fn a_witness_that_ends_before_its_second_reading_is_no_proof() {
    let link = Link::new();
    let (proc, identity) = (Proc::system().expect("/proc"), link.case.identity());
    let mut kernel = kernel(&proc, &identity);
    kernel.before_read = Box::new(|done, pid| {
        if pid == identity.pid && done.contains(&Done::Saw("live")) {
            link.move_on();
        }
    });
    assert_eq!(
        Destroy::<AllGuards>::default().run(&mut kernel),
        Answer::Ended
    );
    let done = &kernel.done;
    assert_eq!(
        done[..3],
        [Done::List, Done::Saw("live"), Done::Saw("zombie")],
        "{done:?}"
    );
    assert_eq!(done[3..5], FREEZE, "{done:?}");
    assert_eq!(kernel.signals(), [GroupSignal::Stop, GroupSignal::Kill]);
    drop(kernel);
    assert!(link.case.living().is_empty());
}

fn sleeper() -> (GroupCase, Child) {
    let case = GroupCase::new(HOST);
    let leader = case.exec("sleep", &["300"]);
    (case, leader)
}

fn end(mut leader: Child) {
    leader.kill().expect("SIGKILL");
    leader.wait().expect("its end");
}

fn unreadable(reading: Reading) -> Reading {
    match reading {
        Reading::Live { id, stopped, .. } => Reading::Live {
            id,
            stopped,
            proof: Proof::Unreadable,
        },
        other => other,
    }
}

#[test]
fn a_member_that_cannot_be_read_is_stopped_continued_and_not_killed() {
    let (case, leader) = sleeper();
    let (proc, identity) = (Proc::system().expect("/proc"), case.identity());
    let mut kernel = kernel(&proc, &identity);
    kernel.change = Box::new(unreadable);
    let answer = Destroy::<AllGuards>::default().run(&mut kernel);
    assert_eq!(answer, Answer::Alive(Doubt::StoppedAndUnreadable));
    let signals = kernel.signals();
    assert!(
        signals.starts_with(&[GroupSignal::Stop]) && signals.ends_with(&[GroupSignal::Cont]),
        "{signals:?}"
    );
    assert!(!signals.contains(&GroupSignal::Kill));
    wait_until("it goes on", || {
        state(pid_of(&leader)) != Some(State::Stopped)
    });
    assert!(lives(pid_of(&leader)));
    end(leader);
}

#[test]
fn a_stopped_group_that_cannot_be_read_gets_no_signal() {
    let (case, leader) = sleeper();
    let pid = pid_of(&leader);
    Pidfd::open(pid)
        .expect("a pidfd")
        .send_signal(nix::libc::SIGSTOP)
        .expect("SIGSTOP");
    wait_until("the stop", || state(pid) == Some(State::Stopped));
    let (proc, identity) = (Proc::system().expect("/proc"), case.identity());
    let mut kernel = kernel(&proc, &identity);
    kernel.change = Box::new(unreadable);
    let answer = Destroy::<AllGuards>::default().run(&mut kernel);
    assert_eq!(answer, Answer::Alive(Doubt::StoppedAndUnreadable));
    assert_eq!(kernel.signals(), []);
    drop(kernel);
    assert_eq!(state(pid), Some(State::Stopped));
    end(leader);
}

/// gc, on a group of which nobody is ever seen: twenty frozen looks, each taken back, and the record is kept.
#[test]
fn gc_takes_every_freeze_back() {
    let (case, leader) = sleeper();
    let (proc, identity) = (Proc::system().expect("/proc"), case.identity());
    let mut kernel = kernel(&proc, &identity);
    kernel.change = Box::new(|_| Reading::NoMember);
    let judgement = Gc::<AllGuards>::default().run(&mut kernel);
    assert!(matches!(judgement, Judgement::Kept(_)), "{judgement:?}");
    let pairs: Vec<GroupSignal> = [GroupSignal::Stop, GroupSignal::Cont]
        .into_iter()
        .cycle()
        .take(40)
        .collect();
    assert_eq!(kernel.signals(), pairs);
    drop(kernel);
    wait_until("it goes on", || {
        state(pid_of(&leader)) != Some(State::Stopped)
    });
    end(leader);
}

/// A panic in the middle of a freeze takes it back.
#[test]
fn a_panic_leaves_nobody_stopped() {
    let (case, leader) = sleeper();
    let pid = pid_of(&leader);
    let (proc, identity) = (Proc::system().expect("/proc"), case.identity());
    let mut kernel = kernel(&proc, &identity);
    kernel.change = Box::new(unreadable);
    kernel.at_settle = Box::new(move || {
        wait_until("the stop", || state(pid) == Some(State::Stopped));
        panic!("in the middle of a freeze");
    });
    let run = catch_unwind(AssertUnwindSafe(|| {
        let mut kernel = kernel;
        Destroy::<AllGuards>::default().run(&mut kernel)
    }));
    assert!(run.is_err());
    wait_until("it goes on", || state(pid) != Some(State::Stopped));
    assert!(lives(pid));
    end(leader);
}
