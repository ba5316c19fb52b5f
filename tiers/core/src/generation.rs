//! Generations: numbers that change whenever a slot gets other content.

use std::fmt;

/// The number of one filling of one slot. Grows over the life of a data folder and never repeats, over restarts and crashes too:
/// the SSD tier hands numbers out below a limit that it has made durable first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Generation(u64);

impl Generation {
    /// Takes a generation read from disk, or handed out by the SSD tier.
    pub const fn from_u64(value: u64) -> Self {
        Self(value)
    }

    /// The number itself.
    pub const fn to_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
