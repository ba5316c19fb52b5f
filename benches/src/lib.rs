//! Load for Cairn, and the judge of what comes back.
//!
//! Every page that this crate stores is a function of its key ([`cairn_testkit::payload`]), so every byte that a server ever returns is
//! checked, and a load test is a correctness test. It talks to servers through `cairn-client` alone, as an engine would, and starts its own
//! if it is not given one ([`cairnd`]).
//!
//! Load comes from a [`trace`] or is made up ([`generator`]); [`replay`] is the load test, [`demo`] the demonstration, [`speed`] the
//! benchmark, [`kill`] the rig that crashes a server again and again.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod cairnd;
pub mod demo;
pub mod error;
pub mod figures;
pub mod generator;
pub mod kill;
pub mod load;
pub mod machine;
pub mod progress;
pub mod replay;
pub mod sizes;
pub mod speed;
pub mod store;
pub mod sweep;
pub mod trace;
