//! How long a helper is waited for. One that is stopped, frozen or busy answers nothing, and whoever has said how long a command
//! may take must not wait longer for it than that.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use super::Deadline;

/// A question gets this time even where the user's is shorter, or over: `--timeout 0` still asks how things are.
const LEAST: Duration = Duration::from_secs(1);

/// What this thread's questions are held to.
#[derive(Debug, Clone, Default)]
struct Bounds {
    each: Option<Duration>,
    until: Option<Deadline>,
    /// How long a helper that was just started has all the same.
    of_a_new_one: Option<Duration>,
    /// Whether such a one is asked: whoever has its socket's place otherwise is another.
    is_of_a_new_one: bool,
    /// The sockets at which nobody answered in time.
    mute: Rc<RefCell<BTreeSet<PathBuf>>>,
}

thread_local! {
    static BOUNDS: RefCell<Option<Bounds>> = const { RefCell::new(None) };
}

/// While this lives, this thread waits for no helper longer than was said, and asks none again that did not answer in time. One
/// within another is held to both.
#[derive(Debug)]
pub(crate) struct Patience(Option<Bounds>);

impl Patience {
    /// So long for each question, and not more than usual.
    pub(crate) fn for_each(time: Duration) -> Self {
        Self::with(|bounds| bounds.each = Some(bounds.each.map_or(time, |had| had.min(time))))
    }

    /// Until then for all questions together.
    pub(crate) fn until(deadline: Deadline) -> Self {
        Self::with(|bounds| {
            bounds.until = Some(bounds.until.map_or(deadline, |had| had.earlier(deadline)));
        })
    }

    /// A helper that was just started has so long: on a loaded machine it takes a second to its first answer.
    #[cfg(feature = "cli")]
    pub(crate) fn but_for_new_ones(time: Duration) -> Self {
        Self::with(|bounds| bounds.of_a_new_one = Some(time))
    }

    /// While this lives a helper is asked that was just started.
    pub(crate) fn of_a_new_one() -> Self {
        let before = BOUNDS.with_borrow(Clone::clone);
        if let Some(time) = before.as_ref().and_then(|bounds| bounds.of_a_new_one) {
            BOUNDS.set(Some(Bounds {
                each: Some(time),
                is_of_a_new_one: true,
                ..Bounds::default()
            }));
        }
        Self(before)
    }

    fn with(narrow: impl FnOnce(&mut Bounds)) -> Self {
        let before = BOUNDS.with_borrow(Clone::clone);
        let mut bounds = before.clone().unwrap_or_default();
        narrow(&mut bounds);
        BOUNDS.set(Some(bounds));
        Self(before)
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        BOUNDS.set(self.0.take());
    }
}

/// How long the next question may take.
pub(super) fn for_a_question() -> Duration {
    BOUNDS.with_borrow(|bounds| {
        let Some(bounds) = bounds else {
            return Deadline::REQUEST;
        };
        let each = bounds.each.unwrap_or(Deadline::REQUEST);
        let left = bounds
            .until
            .map_or(each, |until| until.left().unwrap_or_default());
        each.min(left).clamp(LEAST, Deadline::REQUEST)
    })
}

/// Nobody answered there.
pub(super) fn note_mute(socket: &Path) {
    BOUNDS.with_borrow(|bounds| {
        if let Some(bounds) = bounds.as_ref().filter(|bounds| !bounds.is_of_a_new_one) {
            bounds.mute.borrow_mut().insert(socket.to_path_buf());
        }
    });
}

/// Whether it is known already that nobody answers there.
pub(crate) fn is_mute(socket: &Path) -> bool {
    BOUNDS.with_borrow(|bounds| {
        bounds
            .as_ref()
            .is_some_and(|bounds| bounds.mute.borrow().contains(socket))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_one_counts_and_the_mute_are_known_as_long_as_it_lasts() {
        let socket = Path::new("/run/x.sock");
        assert_eq!(for_a_question(), Deadline::REQUEST);
        note_mute(socket);
        assert!(!is_mute(socket));
        let outer = Patience::for_each(Duration::from_secs(5));
        assert_eq!(for_a_question(), Duration::from_secs(5));
        {
            let _inner = Patience::until(Deadline::after(Duration::ZERO));
            assert_eq!(for_a_question(), LEAST);
            note_mute(socket);
        }
        assert_eq!(for_a_question(), Duration::from_secs(5));
        assert!(is_mute(socket));
        {
            let _longer = Patience::for_each(Duration::from_secs(3600));
            assert_eq!(for_a_question(), Duration::from_secs(5));
        }
        {
            let _new = Patience::of_a_new_one();
            assert_eq!(for_a_question(), Duration::from_secs(5));
        }
        drop(outer);
        assert!(!is_mute(socket));
        {
            let _short = Patience::for_each(Duration::from_secs(5));
            let _spared = Patience::but_for_new_ones(Duration::from_secs(9));
            assert_eq!(for_a_question(), Duration::from_secs(5));
            let _new = Patience::of_a_new_one();
            assert_eq!(for_a_question(), Duration::from_secs(9));
            note_mute(socket);
            assert!(!is_mute(socket));
        }
        let _longer = Patience::for_each(Duration::from_secs(3600));
        assert_eq!(for_a_question(), Deadline::REQUEST);
    }
}
