//! How fast Cairn is, as a share of what the machine can do.
//!
//! A limit and what it bounds are measured in turns, in the same run on the same machine, and judged by the median of the rounds' ratios: a
//! busy machine slows both. Each [`Part`] stands alone and cleans up behind itself.

use std::path::PathBuf;
use std::sync::Arc;

use cairn_core::{Clock, SystemClock};
use tokio::task::spawn_blocking;

use crate::error::Result;
use crate::figures::Figure;

mod checksum;
mod disk;
mod fio;
mod house;
mod many;
mod rebuild;
mod restart;
mod wire;
mod writes;

/// What can be measured alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Match in an index of many entries, and the memory that they take.
    Match,
    /// Start after a clean stop, with many entries.
    Restart,
    /// Cold gets, write-behind, durable puts and a rebuild, beside `fio`.
    Disk,
    /// Checksums of pages.
    Checksum,
    /// The gRPC path, and a server at rest.
    Wire,
}

impl Part {
    /// Every part, in the order in which they are measured: the first looks at the memory of a process that has done nothing else yet.
    pub const ALL: [Self; 5] = [Self::Match, Self::Restart, Self::Disk, Self::Checksum, Self::Wire];
}

/// What is measured, and how thoroughly.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which parts.
    pub parts: Vec<Part>,
    /// Rounds of those that go by rounds.
    pub rounds: usize,
    /// Entries of the index in which chains are matched; about 600 bytes of memory each while it is filled.
    pub match_entries: u32,
    /// Entries that a restart finds.
    pub restart_entries: u32,
    /// A folder on the disk that is to be measured; 6 GiB are written there and removed again.
    pub folder: PathBuf,
}

/// Measures what the plan says.
///
/// # Errors
/// Whatever keeps a figure from being measured. A missed budget is in the figure, not an error.
pub async fn measure(plan: &Plan) -> Result<Vec<Figure>> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let mut figures = Vec::new();
    for part in Part::ALL.into_iter().filter(|part| plan.parts.contains(part)) {
        figures.extend(match part {
            Part::Match => many::measure(plan.match_entries, clock.clone()).await?,
            Part::Restart => restart::measure(plan, clock.clone()).await?,
            Part::Disk => disk::measure(plan, &clock).await?,
            Part::Checksum => checksum::measure(plan.rounds, &*clock),
            Part::Wire => wire::measure(plan.rounds).await?,
        });
    }
    Ok(figures)
}

/// Runs what blocks beside the tasks, so that ctrl-c is heard meanwhile.
async fn blocking<T: Send + 'static>(run: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    spawn_blocking(run).await?
}
