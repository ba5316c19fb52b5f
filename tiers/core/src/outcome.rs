//! How things end when nothing is wrong: values, never errors.

/// A place where pages are kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tier {
    /// Host memory.
    Dram,
    /// Local flash.
    Ssd,
}

impl Tier {
    /// The label in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Dram => "dram",
            Self::Ssd => "ssd",
        }
    }
}

/// How long a put is meant to last, or was made to last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Durability {
    /// In DRAM: may vanish at any crash.
    Memory,
    /// Page and directory entry have passed a barrier: survives any crash, until it is evicted or cleared.
    Ssd,
}

impl Durability {
    /// The label in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Ssd => "ssd",
        }
    }
}

/// What became of one page of a put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageOutcome {
    /// Its bytes were taken and are visible; this durable.
    Stored(Durability),
    /// It was there already, nothing had to be sent; this durable.
    Present(Durability),
    /// It is not there.
    NotStored(NotStored),
}

/// Why a page was not stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NotStored {
    /// No page memory could be freed in time: everything is in use.
    NoSpace,
    /// The page before it is not there, so it could never be found.
    ParentMissing,
    /// The bytes do not match the checksum that came with them.
    ChecksumMismatch,
    /// The client never sent it, or did not finish.
    NotSent,
    /// The deadline passed first.
    Deadline,
}

impl NotStored {
    /// Every reason; the closed set of the metric label.
    pub const ALL: [Self; 5] =
        [Self::NoSpace, Self::ParentMissing, Self::ChecksumMismatch, Self::NotSent, Self::Deadline];

    /// The label in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::NoSpace => "no_space",
            Self::ParentMissing => "parent_missing",
            Self::ChecksumMismatch => "checksum_mismatch",
            Self::NotSent => "not_sent",
            Self::Deadline => "deadline",
        }
    }
}

/// Why admission kept pages off the SSD. They are stored all the same, in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeptOff {
    /// The put did not ask for the SSD.
    NotRequested,
    /// The page was not used a second time.
    NotReused,
    /// The session has not shown a second turn.
    FirstTurn,
    /// Other chains are worth more of the write budget.
    LowValue,
    /// The write budget does not cover the chain.
    BudgetSpent,
}

impl KeptOff {
    /// Every reason; the closed set of the metric label.
    pub const ALL: [Self; 5] =
        [Self::NotRequested, Self::NotReused, Self::FirstTurn, Self::LowValue, Self::BudgetSpent];

    /// The label in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::NotRequested => "not_requested",
            Self::NotReused => "not_reused",
            Self::FirstTurn => "first_turn",
            Self::LowValue => "low_value",
            Self::BudgetSpent => "budget_spent",
        }
    }
}

/// Why a prefix ends where it ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StopReason {
    /// Every page asked for is there.
    EndOfChain,
    /// The rest could not be used by a request of this length, so it was not read.
    MaxTokens,
    /// The next page is not stored: it was never committed, or has been evicted.
    NotStored,
    /// The next page was found damaged on the SSD; it has been dropped.
    Damaged,
    /// The next page could not be read from the SSD.
    ReadFailed,
    /// The next page is on the SSD and no page memory could be freed to load it.
    NoSpace,
    /// The deadline passed.
    Deadline,
}

impl StopReason {
    /// Every reason; the closed set of the metric label.
    pub const ALL: [Self; 7] = [
        Self::EndOfChain,
        Self::MaxTokens,
        Self::NotStored,
        Self::Damaged,
        Self::ReadFailed,
        Self::NoSpace,
        Self::Deadline,
    ];

    /// The label in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::EndOfChain => "end_of_chain",
            Self::MaxTokens => "max_tokens",
            Self::NotStored => "not_stored",
            Self::Damaged => "damaged",
            Self::ReadFailed => "read_failed",
            Self::NoSpace => "no_space",
            Self::Deadline => "deadline",
        }
    }
}
