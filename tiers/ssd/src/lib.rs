//! The SSD tier: pages in slots of one preallocated file.
//!
//! The way of a page in: [`SsdTier::reserve`] a free slot -> [`WriteBatch::write`] header and payload in one write, straight from page memory ->
//! [`WriteBatch::finish`], one barrier for the batch -> the directory names the slot. An acknowledged slot is never overwritten; a slot is
//! [freed](SsdTier::free) only when nothing durable names it.
//!
//! The way out: [`SsdTier::pin`] the slot -> [`PageIo::read`] with the buffer to fill -> the device fills it -> whoever awaits the reply
//! verifies it, and has the buffer, or the reason why not.
//!
//! Between [`PageIo`] and the device is a [`TransferQueue`]: an `io_uring` or threads. Its lines and its depth bound what waits and what is
//! under way; demand goes before prefetch before writes before scrub.
//!
//! Every slot says what it holds, so the tier can be [scanned](SsdTier::scan_headers) without a directory. The bytes, and what is assumed
//! about the disk, are in `docs/FORMAT.md`. After a failed write or barrier the tier takes no more writes until it is opened again.
//!
//! | file | what it does |
//! |---|---|
//! | `device`, `file` | positioned I/O: the seam, and the one preallocated file behind it |
//! | `block` | the unit of all I/O, aligned in memory as direct I/O wants it |
//! | `transfer`, `line` | what a transfer is, and which is next: the seam to whatever moves pages |
//! | `ring_queue`, `uring`, `calibrate` | moved by an `io_uring`; the only `unsafe`; how many at once |
//! | `thread_queue` | moved by threads |
//! | `disk` | every byte read or written is counted here, and the quarantine is kept here |
//! | `layout`, `sector` | where things lie; how the small fixed records are sealed |
//! | `superblock`, `region` | the two kinds of fixed records, and the generations |
//! | `slots` | which slots are taken, and who is reading them |
//! | `tier` | the calls that join them; `tier/regions`: slots, and the life of a region |
//! | `page_io`, `write_batch`, `start` | reads and batches of writes through a queue; which queue |
//! | `look`, `scan`, `inspect` | many small reads at once; all headers, for a rebuild; all there is, for whoever looks at a device that nobody uses |
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod block;
mod calibrate;
mod device;
mod disk;
mod error;
mod file;
mod inspect;
mod layout;
mod line;
mod look;
mod page_io;
#[cfg(feature = "testkit")]
pub mod parsers;
mod region;
mod ring_queue;
mod scan;
mod sector;
mod slots;
mod start;
mod superblock;
mod sync;
mod thread_queue;
mod tier;
mod transfer;
#[allow(unsafe_code, reason = "hands memory to the kernel and takes it back; the one place that does")]
mod uring;
mod write_batch;

pub use block::PageMemory;
pub use device::{Device, DeviceError};
pub use error::{ReadFault, SsdError};
pub use file::FileDevice;
pub use inspect::{Held, RegionCounts, SuperblockState};
pub use layout::slot_bytes;
pub use page_io::{PageIo, ReadJob, ReadReply, Submitted, Withdrawn};
pub use ring_queue::{RingQueue, RingTarget};
pub use scan::{ScanReport, StaleHeaders};
pub use slots::{QuarantinedSlot, ReadPin};
pub use start::{DeviceKind, IoSettings};
pub use superblock::{GENERATION_SPAN, Run};
pub use thread_queue::ThreadQueue;
pub use tier::{Expected, PageFacts, SsdComponents, SsdTier};
pub use transfer::{Full, Parts, Transfer, TransferQueue};
pub use write_batch::WriteBatch;
