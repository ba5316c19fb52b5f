//! The engine under many schedules: its writer, its loads, its callers, each step of them in any order.
#![allow(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "tests count in small numbers and fail by panicking"
)]

mod eviction;
mod house;
mod loads;
mod scrub;
mod write_queue;
