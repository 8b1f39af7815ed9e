//! Whoever is made while one looks: a chain of forks that has left its group is seen by no look at everybody, and by this.
//!
//! By the time that a listed link is read it has gone; but its successor was made after the look began, and numbers are
//! given in turn. So the numbers given since are read in their order, and those given meanwhile, until there is none that
//! was not read. A chain that lived all that time would have a living link with one of them: it is found, or there is none.

use std::time::{Duration, Instant};

use cgleaf_shared::process::{Pid, Proc, ReadError};

/// How long all looks together may read: where others make processes faster than this reads them it would go on for ever.
const PATIENCE: Duration = Duration::from_secs(5);

/// So many are read however long it takes: on a machine that hardly lets this run, time says nothing of who is faster.
const AT_LEAST: usize = 20_000;

/// A fork is given its number some time before it can be seen, and a busy machine may stop it in between. So many numbers are
/// read once more: before the first, whose processes a listing may have missed, and at the end.
const UNDER_WAY: u16 = 64;

/// What reading all that was made since showed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Followed<T> {
    /// Somebody who was looked for.
    Found(T),
    /// All were read, and none is anybody who is looked for.
    Nobody,
    /// More are made than can be read: nothing is proven.
    TooMany,
}

/// The numbers given since some moment.
#[derive(Debug)]
pub(crate) struct Newcomers {
    until: Instant,
    read: usize,
    last: Option<Pid>,
    /// Those behind which nobody was found: they have ended, or a fork has not come so far that they can be seen.
    absent: Vec<Pid>,
}

impl Newcomers {
    /// Nobody yet; its patience begins to run out.
    pub(crate) fn new() -> Self {
        Self {
            until: Instant::now() + PATIENCE,
            read: 0,
            last: None,
            absent: Vec::new(),
        }
    }

    /// From now on, and whoever is just being made. Who was absent is looked for once more.
    ///
    /// # Errors
    /// If the number that was given last cannot be read.
    pub(crate) fn begin(&mut self, proc: &Proc) -> Result<(), ReadError> {
        let newest = proc.newest_pid()?;
        self.last = Pid::new((newest.get() - i32::from(UNDER_WAY)).max(1));
        Ok(())
    }

    /// Reads whoever was made since, and meanwhile. `see` reads the process of a number: whether it is somebody who is looked
    /// for, or an error where there is no such process, as far as can be seen.
    ///
    /// # Errors
    /// If the number that was given last cannot be read.
    pub(crate) fn follow<T>(
        &mut self,
        proc: &Proc,
        mut see: impl FnMut(Pid) -> Result<Option<T>, ReadError>,
    ) -> Result<Followed<T>, ReadError> {
        let end = proc.pid_max()?;
        let absent = std::mem::take(&mut self.absent);
        if let Some(found) = first_of(&absent, &mut see) {
            return Ok(Followed::Found(found));
        }
        loop {
            let newest = proc.newest_pid()?;
            let last = self.last.replace(newest).unwrap_or(newest);
            if newest == last {
                let from = self.absent.len().saturating_sub(usize::from(UNDER_WAY));
                let late = first_of(&self.absent[from..], &mut see);
                return Ok(late.map_or(Followed::Nobody, Followed::Found));
            }
            for pid in given_between(last, newest, end) {
                if self.read >= AT_LEAST && Instant::now() >= self.until {
                    return Ok(Followed::TooMany);
                }
                self.read += 1;
                match see(pid) {
                    Ok(Some(found)) => return Ok(Followed::Found(found)),
                    Ok(None) => {}
                    Err(_) => self.absent.push(pid),
                }
            }
        }
    }
}

/// The first of these who is looked for.
fn first_of<T>(
    pids: &[Pid],
    see: &mut impl FnMut(Pid) -> Result<Option<T>, ReadError>,
) -> Option<T> {
    pids.iter().find_map(|pid| see(*pid).ok().flatten())
}

/// The numbers after `last` up to `newest`, in the order in which they are given; behind the last before `end` they begin anew.
fn given_between(last: Pid, newest: Pid, end: Pid) -> impl Iterator<Item = Pid> {
    let (last, newest) = (last.get(), newest.get());
    let (first, then) = if newest > last {
        (last + 1..newest + 1, 1..1)
    } else {
        (last + 1..end.get(), 1..newest + 1)
    };
    first.chain(then).filter_map(Pid::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_was_kept_waiting_reads_all_the_same() {
        let proc = Proc::system().expect("/proc");
        let nobody = |pid: Pid| proc.process(pid).map(|_| None::<Pid>);
        let mut newcomers = Newcomers::new();
        newcomers.until = Instant::now();
        newcomers.begin(&proc).expect("the newest number");
        let followed = newcomers.follow(&proc, nobody).expect("all were read");
        assert_eq!(followed, Followed::Nobody);
        newcomers.read = AT_LEAST;
        newcomers.begin(&proc).expect("the newest number");
        let followed = newcomers.follow(&proc, nobody).expect("some were read");
        assert_eq!(followed, Followed::TooMany);
    }

    #[test]
    fn numbers_begin_anew_at_the_end() {
        let given = |last, newest| -> Vec<i32> {
            let pid = |number| Pid::new(number).expect("a pid");
            given_between(pid(last), pid(newest), pid(11))
                .map(Pid::get)
                .collect()
        };
        assert_eq!(given(4, 7), [5, 6, 7]);
        assert_eq!(given(8, 2), [9, 10, 1, 2]);
        assert_eq!(given(10, 1), [1]);
    }
}
