//! The directory: which page is where.
//!
//! Two halves. The durable one ([`Directory`]) holds a record for each page on the SSD and for each namespace; a commit is one atomic,
//! synced batch, and happens after the page's bytes have passed their barrier, so a record never names bytes that are not there. The
//! resident one ([`Index`]) holds an entry for each page of any tier, in memory, and answers every lookup; the engine guards it with
//! one lock and bounds its length by what the tiers hold. At start the durable half is scanned once to fill the resident one; after that
//! it is only written.
//!
//! The durable half can be lost: every slot of the SSD says what it holds, so the engine rebuilds it from there. Therefore damage is
//! never repaired here, it is named ([`DirectoryError::Damaged`]), and the folder is set aside.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(feature = "testkit")]
pub mod conformance;
mod directory;
mod error;
mod index;
mod memory;
#[cfg(feature = "testkit")]
pub mod parsers;
mod record;
mod rocks;

pub use directory::{Change, Directory, ScanReport};
pub use error::DirectoryError;
pub use index::{Entry, Index, NamespaceNo, Node};
pub use memory::MemoryDirectory;
pub use record::{DeviceRecord, NamespaceRecord, Record, RecordFault};
pub use rocks::RocksDirectory;
