//! What can go wrong with page memory.

use std::io;

use cairn_core::{Checksum, Error, ErrorKind, SlotId};
use thiserror::Error;

/// Why a pool did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The arena size can not be used.
    #[error("arena size is no multiple of 4096, or zero arena_bytes={arena_bytes}")]
    ArenaSize {
        /// As set.
        arena_bytes: u64,
    },
    /// The pool would not fill its first arena.
    #[error("pool is smaller than one arena bytes={bytes} arena_bytes={arena_bytes}")]
    SmallerThanArena {
        /// As set.
        bytes: u64,
        /// As set.
        arena_bytes: u64,
    },
    /// Every arena costs a file and a mapping, and a process has only so many.
    #[error("pool has too many arenas, make them larger arenas={arenas} most={most}")]
    TooManyArenas {
        /// That many would be needed.
        arenas: u64,
        /// That many are allowed.
        most: u64,
    },
    /// Starting would end in the out-of-memory killer.
    #[error("pool is larger than the memory there is for it bytes={bytes} limit_bytes={limit_bytes} limit={limit}")]
    LargerThanMemory {
        /// As set.
        bytes: u64,
        /// The tightest limit.
        limit_bytes: u64,
        /// Where it comes from.
        limit: String,
    },
    /// An arena could not be created or mapped.
    #[error("arena could not be mapped arena={arena} bytes={bytes}")]
    Map {
        /// Its number.
        arena: usize,
        /// Its size.
        bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel did not provide the memory of an arena.
    #[error("arena could not be filled with memory arena={arena} bytes={bytes}")]
    Touch {
        /// Its number.
        arena: usize,
        /// Its size.
        bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// The thread that touches the arenas could not be started.
    #[error("warming thread could not be started")]
    Thread(#[source] io::Error),
}

impl From<PoolError> for Error {
    fn from(error: PoolError) -> Self {
        let kind = match &error {
            PoolError::ArenaSize { .. }
            | PoolError::SmallerThanArena { .. }
            | PoolError::TooManyArenas { .. }
            | PoolError::LargerThanMemory { .. } => ErrorKind::Invalid,
            PoolError::Map { .. } | PoolError::Touch { .. } | PoolError::Thread(_) => ErrorKind::Unavailable,
        };
        Error::new(kind, "page pool did not start").caused_by(error)
    }
}

/// The bytes are not those that the writer claimed; the seal was refused and the frame is free again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("page bytes do not match their checksum claimed={claimed:?} found={found:?}")]
pub struct Mismatch {
    /// What the writer said.
    pub claimed: Checksum,
    /// What the bytes give.
    pub found: Checksum,
}

/// The bytes of a sealed page have changed in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("sealed page is damaged region={} slot={} sealed={sealed:?} found={found:?}", .slot.region, .slot.slot)]
pub struct Damaged {
    /// Where the page lies.
    pub slot: SlotId,
    /// The checksum at the seal.
    pub sealed: Checksum,
    /// What the bytes give now.
    pub found: Checksum,
}
