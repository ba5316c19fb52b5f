//! What tests and load generators share. Development only: no part of the service depends on it.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod crowded;
pub mod dice;
pub mod fault_device;
pub mod fuzz;
pub mod payload;
pub mod real_disks;
pub mod recorder;
pub mod rigs;
pub mod schedules;
pub mod trials;
