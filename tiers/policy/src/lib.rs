//! Pure decisions: what to evict, what to write to flash.
//!
//! No I/O, no clock, no randomness of its own, no locks: plain data in, plain data out, the same order of calls gives the same
//! decisions. So the server, a simulator and a planner run the very same code.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod admission;
mod eviction;
mod lru;

pub use admission::WritePolicy;
pub use eviction::{EvictionPolicy, PageId};
pub use lru::PrefixLru;
