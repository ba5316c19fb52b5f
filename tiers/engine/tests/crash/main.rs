//! What is left of the engine's promises when the process, the power or the disk fails, at any point.
//!
//! `house` opens an engine on disks that remember and reads every page of a small universe of pages. `script` puts it through a life:
//! puts, evictions, clears, damage, restarts. `oracle` knows, for a crash at any point of that life, what must be found and what must
//! not. The rigs (`enumerator`, `at_rest`, `in_use`, `directory_files`) try many crashes and faults; `replays` tries those of others.
//! How to repeat a trial: `cairn_testkit::trials`.
#![allow(
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::unwrap_used,
    dead_code,
    reason = "tests count in small numbers and fail by panicking; some of the modules serve the kill tests too"
)]

mod at_rest;
mod directory_files;
mod enumerator;
mod house;
mod in_use;
mod oracle;
mod replays;
mod script;
