//! How long a client waits.

use std::time::{Duration, Instant};

/// A point in time after which a client gives up.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// How long an ordinary request may take. A loaded machine makes a 20 ms step of anything.
    pub const REQUEST: Duration = Duration::from_secs(20);

    /// That far from now.
    pub fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    /// The earlier of the two.
    #[must_use]
    pub fn earlier(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }

    /// What is left; `None` when it is over.
    pub fn left(self) -> Option<Duration> {
        self.0
            .checked_duration_since(Instant::now())
            .filter(|left| !left.is_zero())
    }
}
