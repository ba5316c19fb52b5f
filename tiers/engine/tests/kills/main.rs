//! What is left of the engine's promises when its process is killed: real processes, real files, a real RocksDB.
//!
//! `life` is a process that goes through a script of the crash tests and ends itself at a numbered change of its files; `journal` is what it
//! leaves behind for whoever judges it by the crash tests' oracle. `killed` kills at every point, and again and again while it starts;
//! `power_cut` loses what was not synced as well.
//!
//! A target of its own, and nothing else in its process may open such files: a process that is being started shares the locks of the one
//! that starts it for a moment, and who closes a file and opens it again meanwhile finds it locked.
#![allow(
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::unwrap_used,
    dead_code,
    reason = "tests count in small numbers and fail by panicking; of the crash tests' modules a part is used"
)]

#[path = "../crash/house.rs"]
mod house;
mod journal;
mod killed;
mod life;
#[path = "../crash/oracle.rs"]
mod oracle;
mod power_cut;
#[path = "../crash/script.rs"]
mod script;
