//! What an engine is made of: settings (plain data) and components (the outside world, through its seams).

use std::sync::Arc;
use std::time::Duration;

use cairn_core::{Clock, Entropy, Error, Result, ServerSecret, metrics::Metrics};
use cairn_directory::Directory;
use cairn_policy::{Plan, ScrubPlan, WritePolicy};
use cairn_pool::PoolSettings;
use cairn_ssd::{Device, DeviceKind};

/// Plain settings of an engine.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Page memory.
    pub dram: PoolSettings,
    /// Size of an SSD region in bytes: the unit in which page sizes share the device. Counts when the device is formatted; one that is in
    /// use keeps its own.
    pub region_bytes: u64,
    /// What moves pages to and from the SSD.
    pub ssd_device: DeviceKind,
    /// Threads that do, if it is threads: reads that the device works on at once.
    pub read_threads: usize,
    /// Reads that may wait for the device.
    pub read_queue: usize,
    /// What is written to the SSD.
    pub write_policy: WritePolicy,
    /// How much may be written to the SSD; `None`: as much as the policy names.
    pub endurance: Option<Plan>,
    /// How often what lies on the SSD is read and verified.
    pub scrub: ScrubPlan,
    /// Most bytes of page memory that wait to be written, and never more than half of it all; a page that does not fit is not written
    /// behind.
    pub write_behind_bytes: u64,
    /// Longest time that a page waits to be written, if nobody waits for it.
    pub write_behind_time: Duration,
    /// Most bytes that one get loads from the SSD ahead of its reader.
    pub load_window_bytes: u64,
    /// Most pages in one chain.
    pub chain_pages_max: usize,
    /// Largest page in bytes.
    pub page_bytes_max: u64,
    /// Most namespaces.
    pub namespaces_max: usize,
}

impl EngineSettings {
    /// The largest page that the limit and an arena allow.
    pub(crate) fn page_bytes_limit(&self) -> u64 {
        let arena_bytes = self.dram.arena_bytes.min(self.dram.bytes);
        self.page_bytes_max.min(arena_bytes - arena_bytes % 4096)
    }

    pub(crate) fn validate(&self) -> Result<()> {
        if self.read_threads == 0 || self.read_queue == 0 || self.chain_pages_max == 0 || self.namespaces_max == 0 {
            return Err(Error::invalid(
                "read_threads, read_queue, chain_pages_max and namespaces_max must each be at least 1",
            ));
        }
        Ok(())
    }
}

/// The outside world of an engine.
#[derive(Debug)]
pub struct Components {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Secret that tenants' salts are derived from.
    pub secret: ServerSecret,
    /// Durable entries.
    pub directory: Arc<dyn Directory>,
    /// The SSD.
    pub device: Arc<dyn Device>,
    /// Where the engine counts.
    pub metrics: Arc<Metrics>,
}
