//! The SSD tier under many schedules: slots, barriers, batches, transfers, and the threads that move them.
#![allow(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "tests count in small numbers and fail by panicking"
)]

mod barriers;
mod batches;
#[path = "../common/mod.rs"]
mod common;
mod ring;
mod slots;
mod threads;
mod transfers;
