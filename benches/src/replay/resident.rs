//! Watches how much memory the server has in use while a load runs.

use std::time::Duration;

use cairn_client::Client;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::error::Result;

/// Pause between two samples.
const SAMPLE_GAP: Duration = Duration::from_millis(200);
/// What a server may need besides its page memory: 256 MiB and 5 % of it.
const OVERHEAD_BYTES: u64 = 256 << 20;

/// The most memory seen, and what is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Memory {
    /// Most resident bytes in any sample.
    pub(super) bytes_max: u64,
    /// Configured page memory, 5 % of it and 256 MiB.
    pub(super) limit_bytes: u64,
}

/// A task that samples until it is told to finish.
pub(super) struct Watch {
    task: JoinHandle<Result<Memory>>,
    finish: oneshot::Sender<()>,
}

impl Watch {
    pub(super) fn start(admin: Client) -> Self {
        let (finish, finished) = oneshot::channel();
        Self { task: tokio::spawn(sample(admin, finished)), finish }
    }

    /// Takes a last sample and returns what was seen.
    pub(super) async fn finish(self) -> Result<Memory> {
        // The task is gone only if a sample failed; its result says so.
        let _ = self.finish.send(());
        self.task.await?
    }
}

async fn sample(admin: Client, mut finished: oneshot::Receiver<()>) -> Result<Memory> {
    let mut memory = Memory::default();
    loop {
        let last = timeout(SAMPLE_GAP, &mut finished).await.is_ok();
        let stats = admin.stats().await?;
        let dram_bytes = stats.dram.map_or(0, |dram| dram.capacity_bytes);
        memory.limit_bytes = limit_bytes(dram_bytes);
        memory.bytes_max = memory.bytes_max.max(stats.server.map_or(0, |server| server.resident_bytes));
        if last {
            return Ok(memory);
        }
    }
}

fn limit_bytes(dram_bytes: u64) -> u64 {
    dram_bytes + dram_bytes / 20 + OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_page_memory_and_a_twentieth_and_256_mib() {
        assert_eq!(limit_bytes(20 << 30), (21 << 30) + (256 << 20));
    }
}
