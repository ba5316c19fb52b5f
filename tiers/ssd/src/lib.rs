//! The SSD tier: pages in slots of one preallocated file.
//!
//! The way of a page in: [`SsdTier::reserve`] a free slot -> [`SsdTier::write`] header and payload in one write, straight from page memory ->
//! [`SsdTier::barrier`] once for a batch -> the directory names the slot. An acknowledged slot is never overwritten; a slot is
//! [freed](SsdTier::free) only when nothing durable names it.
//!
//! The way out: [`SsdTier::pin`] the slot -> [`ReadQueue::submit`] with the buffer to fill -> a read thread fills and verifies it -> the
//! buffer comes back, or the reason why not. The queue's depth and the number of its threads bound what is under way.
//!
//! Every slot says what it holds, so the tier can be [scanned](SsdTier::scan_headers) without a directory. The bytes, and what is assumed
//! about the disk, are in `docs/FORMAT.md`. After a failed write or barrier the tier takes no more writes until it is opened again.
//!
//! | file | what it does |
//! |---|---|
//! | `device`, `file` | positioned I/O: the seam, and the one preallocated file behind it |
//! | `disk` | every byte read or written is counted here, and the quarantine is kept here |
//! | `layout`, `sector` | where things lie; how the small fixed records are sealed |
//! | `superblock`, `region` | the two kinds of fixed records, and the generations |
//! | `slots` | which slots are taken, and who is reading them |
//! | `tier` | the calls that join them |
//! | `scan`, `read_queue` | all headers, for a rebuild; the read threads |
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod device;
mod disk;
mod error;
mod file;
mod layout;
#[cfg(feature = "testkit")]
pub mod parsers;
mod read_queue;
mod region;
mod scan;
mod sector;
mod slots;
mod superblock;
mod tier;

pub use device::{Device, DeviceError};
pub use error::{ReadFault, SsdError};
pub use file::FileDevice;
pub use layout::slot_bytes;
pub use read_queue::{ReadJob, ReadQueue, ReadReply, Submitted};
pub use scan::ScanReport;
pub use slots::ReadPin;
pub use superblock::GENERATION_SPAN;
pub use tier::{Expected, PageFacts, SsdComponents, SsdTier};
