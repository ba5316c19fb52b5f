//! The time seam: monotonic moments, and deadlines on them.
//!
//! Wall-clock time appears in logs only; it may jump, and nothing here depends on it.

use std::fmt;
use std::time::{Duration, Instant};

/// A point on a clock's monotonic time line, in nanoseconds since the clock's own start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Moment(u64);

impl Moment {
    /// A moment `since_start` after the clock's start.
    pub fn from_start(since_start: Duration) -> Self {
        Self(u64::try_from(since_start.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Time since the clock's start.
    pub const fn since_start(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Time from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment `by` later; the end of time if that overflows.
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Where time comes from. The real one is [`SystemClock`]; tests bring their own.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The present moment. Never goes backwards.
    fn now(&self) -> Moment;
}

/// The machine's monotonic clock.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Starts a clock at zero.
    #[expect(clippy::disallowed_methods, reason = "this is the seam that everyone else goes through")]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        Moment::from_start(self.start.elapsed())
    }
}

/// The moment by which a call has ended. Carried from the door to the disk; nothing waits without one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Deadline(Moment);

impl Deadline {
    /// A deadline `budget` from now.
    pub fn after(clock: &dyn Clock, budget: Duration) -> Self {
        Self(clock.now().after(budget))
    }

    /// Time left; zero once it has passed.
    pub fn remaining(self, clock: &dyn Clock) -> Duration {
        self.0.since(clock.now())
    }

    /// Whether it has passed.
    pub fn passed(self, clock: &dyn Clock) -> bool {
        clock.now() >= self.0
    }
}
