//! The engine as its callers see it. One file for each kind of behaviour; `rig` opens an engine and checks every byte.
#![allow(clippy::disallowed_methods, clippy::cast_possible_truncation, reason = "tests make their own clocks and small numbers")]

mod damage;
mod eviction;
mod identity;
mod keys;
mod puts_and_gets;
mod restart;
mod rig;
