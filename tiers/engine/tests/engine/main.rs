//! The engine as its callers see it. One file for each kind of behaviour; `rig` opens an engine and checks every byte.
#![allow(
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "tests make their own clocks and small numbers, and fail by panicking"
)]

mod damage;
mod endurance;
mod eviction;
mod identity;
mod keys;
mod puts_and_gets;
mod quarantine;
mod rebuild;
mod reclaim;
mod restart;
mod rig;
mod scrub;
mod slow_disk;
mod verify;
