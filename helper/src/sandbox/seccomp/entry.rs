//! What an entry of the allow-list says.

/// One allowed system call.
#[derive(Debug, Clone)]
pub struct Allowed {
    /// Its name, as in syscalls(2).
    pub name: &'static str,
    /// Its number on this architecture.
    pub number: i64,
    /// Alternatives, each a list of conditions that must all hold; none: any arguments.
    pub when: &'static [&'static [Argument]],
    /// When it is needed.
    pub usage: Usage,
    /// Why it is on the list.
    pub reason: &'static str,
}

/// When a call is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// In ordinary service: the integration tests use it.
    Always,
    /// Only in this case, which a test brings about.
    Conditional(Force),
}

/// The cases that ordinary service does not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Force {
    /// A panic: the message, then abort(3).
    Panic,
    /// The C library finds its heap damaged: its own message, then abort(3).
    HeapDamage,
    /// SIGSTOP and SIGCONT during a poll with a timeout.
    StopAndContinue,
    /// Many small allocations, more than the start left room for.
    HeapGrowth,
    /// An allocation above the C library's mmap threshold, grown and freed.
    BigAllocation,
    /// main returns.
    Return,
    /// An invalid memory access: std's handler takes itself off and lets it happen again.
    Segfault,
    /// A clock that the vdso does not serve.
    NoVdsoClock,
}

/// A condition on one argument, of which the kernel looks at the lower 32 bits only.
#[derive(Debug, Clone, Copy)]
pub struct Argument {
    /// Its position, from 0.
    pub index: u8,
    /// What it must be.
    pub value: Value,
}

/// What an argument must be.
#[derive(Debug, Clone, Copy)]
pub enum Value {
    /// Exactly this.
    Is(u32),
    /// This process's own pid.
    OwnPid,
    /// None of these bits is set.
    Without(u32),
    /// All of these bits are set.
    With(u32),
}
