//! Why a benchmark could not be run, or what it found wrong.

use std::io;
use std::path::PathBuf;

use thiserror::Error as ThisError;

use crate::cairnd::CairndError;
use crate::trace::TraceError;

/// The result of a benchmark.
pub type Result<T> = std::result::Result<T, BenchError>;

/// Why a benchmark failed.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum BenchError {
    /// The trace can not be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// There is no server.
    #[error(transparent)]
    Cairnd(#[from] CairndError),
    /// A call failed.
    #[error("the server failed a call")]
    Call(#[from] cairn_core::Error),
    /// A file can not be made, read or written.
    #[error("{action} path={}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The machine does not do or tell what is measured.
    #[error("measure {what}")]
    Measure {
        /// What is measured.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// Settings that do not go together.
    #[error("{0}")]
    Settings(String),
    /// The server returned bytes that are not those of the page asked for.
    #[error("the server returned wrong bytes wrong_bytes={wrong_bytes}")]
    WrongBytes {
        /// How many.
        wrong_bytes: u64,
    },
    /// Pages that were acknowledged as durable are not there.
    #[error("acknowledged pages are not found lost={lost} acknowledged={acknowledged}")]
    LostPages {
        /// How many are missing.
        lost: u64,
        /// Of how many.
        acknowledged: u64,
    },
    /// A kill after which an acknowledged page was missing or wrong.
    #[error("kills broke a promise failures={failures} kills={kills}")]
    Kills {
        /// How many did.
        failures: u64,
        /// Of how many.
        kills: u64,
    },
    /// The server used more memory than its settings allow.
    #[error("the server is larger than its limit resident_bytes={resident_bytes} limit_bytes={limit_bytes}")]
    TooLarge {
        /// The most that was seen.
        resident_bytes: u64,
        /// Configured DRAM, 5 % and 256 MiB.
        limit_bytes: u64,
    },
    /// A figure misses its budget.
    #[error("figures miss their budget: {names}")]
    BudgetMissed {
        /// Their names.
        names: String,
    },
    /// A task of the benchmark itself died.
    #[error("a task of the benchmark ended early")]
    Task(#[from] tokio::task::JoinError),
    /// Someone pressed ctrl-c.
    #[error("interrupted")]
    Interrupted,
}

impl BenchError {
    /// What happened and why, as one line.
    pub fn chain(&self) -> String {
        cairn_core::in_one_line(self)
    }
}
