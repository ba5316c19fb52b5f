//! The storage engine: the way of a page through the tiers.
//!
//! **Put.** [`Engine::begin_put`] says which pages are needed. For each, [`Put::reserve`] takes a frame from the pool (evicting, if it
//! must, what the DRAM policy names), the transport fills it, and [`Put::commit`] seals it (checksum) and publishes it in the
//! [catalogue](catalogue): from here on every reader sees the whole page. What of the chain [admission and the write budget](endurance)
//! let pass goes into the [write queue](write_queue), bounded in bytes and time. The [writer](writer), one thread and the only one that
//! changes pages on the SSD and their records, writes a batch into free slots, passes one barrier, commits the batch to the directory, and only then publishes
//! the SSD location and acknowledges.
//!
//! **Get.** [`Engine::get_prefix`] walks the chain once under the catalogue's lock and takes hold of what it finds: a clone of each DRAM
//! page, a pin on each SSD slot. [`Get::next`] hands pages over in prefix order; pages on the SSD are [loaded](load) into frames ahead of
//! their turn, within a window of bytes, one read a page however many ask. A page leaves only after its checksum has been verified.
//!
//! **Scrub.** What lies on the SSD is [read and verified](scrub) once a period, behind everybody else; damage is a miss before anyone asks.
//!
//! **Who owns what.** Page memory: the pool; an entry, a reader and the write queue each hold a reference, and a page with more than the
//! entry's is never evicted. State of entries: the catalogue, under one lock, held for short steps without I/O. The SSD file and the
//! directory: the writer thread. What bounds it: the pool's size, the write queue's bytes, the read queue's length, the load window of
//! each get, and a deadline on every wait.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod catalogue;
mod emptying;
mod endurance;
mod engine;
mod get;
mod leaving;
mod load;
mod matching;
mod namespace;
mod pace;
mod put;
mod quarantine;
mod rebuild;
mod reclaim;
mod recovery;
mod residents;
mod reuse;
mod room;
mod scrub;
mod settings;
mod sparing;
mod stats;
mod sync;
mod under_way;
mod values;
mod verify;
mod write_queue;
mod writer;

pub use endurance::BudgetStats;
pub use engine::{Closed, Engine};
pub use get::{Get, GetEnd, GetOptions, ServedPage};
pub use matching::Matched;
pub use namespace::{Namespace, NamespaceSummary};
pub use put::{Put, PutReport};
pub use quarantine::{Quarantine, WriteFault};
pub use recovery::{OpenMode, Recovery};
pub use scrub::ScrubStats;
pub use settings::{Components, EngineSettings};
pub use stats::{EngineStats, FlashStats, TierFill};
pub use verify::{Verification, VerifyCounts};
