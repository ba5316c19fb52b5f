//! Pure decisions: what to evict, what to write to flash, how much of it, and when to verify what is there.
//!
//! No I/O, no clock, no randomness of its own, no locks: plain data in, plain data out, the same order of calls gives the same
//! decisions. So the server, a simulator and a planner run the very same code. Time is passed in.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod admission;
mod bar;
mod budget;
mod endurance;
mod eviction;
mod lru;
mod scrub;
mod sessions;
mod sketch;

pub use admission::{Admission, Link, Verdict, WritePolicy};
pub use budget::{Budget, Ledger};
pub use endurance::Plan;
pub use eviction::{EvictionPolicy, PageId};
pub use lru::PrefixLru;
pub use scrub::{Due, ScrubMark, ScrubPlan, Timetable};
pub use sketch::Sketch;
