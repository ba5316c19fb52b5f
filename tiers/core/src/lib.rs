//! The words of Cairn as types.
//!
//! Everything else in the house speaks in these: who is calling ([`Principal`]), what state it is ([`Identity`], [`NamespaceId`]),
//! which page ([`PageKey`]), what proves its bytes ([`Checksum`], [`PageHeader`], [`Generation`]), how long the caller waits
//! ([`Deadline`]), how it ends ([`StopReason`], [`PageOutcome`]: values) or fails ([`Error`]: what the caller should do).
//!
//! The crate does no I/O. Time and randomness come in through [`Clock`] and [`Entropy`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod checksum;
mod clock;
mod entropy;
mod error;
mod generation;
mod grid;
mod header;
mod identity;
mod key;
pub mod metrics;
mod outcome;
mod tenant;
mod units;

pub use checksum::{Checksum, RunningChecksum};
pub use clock::{Clock, Deadline, Moment, SystemClock};
pub use entropy::{Entropy, OsEntropy};
pub use error::{Error, ErrorKind, Result, in_one_line};
pub use generation::Generation;
pub use grid::{Grid, Place};
pub use header::{DeviceId, HEADER_BYTES, HeaderFault, HeaderKey, PageHeader, SlotId};
pub use identity::{
    Adapter, Declared, HeadRange, Heads, Identity, IdentityFault, KeyScheme, LayerRange, NamespaceId, Quantisation,
    StateKind,
};
pub use key::{ChainFault, PageInputs, PageKey, chain_from_engine_hashes, chain_from_tokens, usable_pages};
pub use outcome::{Durability, KeptOff, NotStored, PageOutcome, StopReason, Tier};
pub use tenant::{Principal, ServerSecret, TenantId, TenantSalt};
pub use units::{ByteSize, Span, Thousandths};
