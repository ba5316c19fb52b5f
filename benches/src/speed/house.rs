//! An engine in this process, and the chains that are put into it: what is measured with no server in between.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cairn_core::metrics::Metrics;
use cairn_core::{
    Clock, Error, ErrorKind, Identity, NamespaceId, OsEntropy, PageKey, Principal, ServerSecret, TenantId,
};
use cairn_directory::{Directory, RocksDirectory};
use cairn_engine::{Closed, Components, Engine, EngineSettings, Namespace};
use cairn_policy::{ScrubPlan, WritePolicy};
use cairn_pool::{HugePages, PoolSettings};
use cairn_ssd::{Device, DeviceKind, FileDevice, SsdError};
use cairn_testkit::dice::Dice;

use crate::error::{BenchError, Result};
use crate::store;

/// Size of a region and of an arena, as a server has it by default.
pub(super) const REGION_BYTES: u64 = 64 << 20;
/// Bytes of the SSD file before its first region.
const FRONT_BYTES: u64 = 65_536;
/// Longest orderly stop.
const GRACE: std::time::Duration = std::time::Duration::from_secs(30);

/// An open engine with one namespace.
#[derive(Debug)]
pub(super) struct House {
    pub(super) engine: Arc<Engine>,
    pub(super) namespace: Arc<Namespace>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Arc<dyn Clock>,
}

impl House {
    /// Opens the engine in `folder`. Blocks.
    pub(super) fn in_folder(folder: &Path, sizes: &Sizes, clock: Arc<dyn Clock>) -> Result<Self> {
        let directory = RocksDirectory::open(&directory_path(folder)).map_err(cairn_core::Error::from)?;
        let device = FileDevice::open_or_create(&ssd_path(folder), sizes.ssd_bytes());
        let device = device.map_err(|error| cairn_core::Error::from(SsdError::Device(error)))?;
        Self::open(sizes, Arc::new(device), Arc::new(directory), clock)
    }

    /// Opens an engine on these. Blocks.
    pub(super) fn open(
        sizes: &Sizes,
        device: Arc<dyn Device>,
        directory: Arc<dyn Directory>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let metrics = metrics()?;
        let components = Components {
            clock: clock.clone(),
            entropy: Arc::new(OsEntropy),
            secret: secret(),
            directory,
            device,
            metrics: metrics.clone(),
        };
        let engine = Engine::open(sizes.settings(), components)?;
        engine.wait_rebuilt();
        let namespace = engine.open_namespace(&Principal::local(), &identity(sizes.page_bytes))?;
        Ok(Self { engine, namespace, metrics, clock })
    }

    /// Ends it in order, so that the next one in the folder starts as after a clean stop.
    pub(super) async fn close(self) -> Result<()> {
        match self.engine.close(GRACE).await {
            Closed::Orderly => Ok(()),
            Closed::Abandoned => Err(BenchError::Settings("the engine can not be closed in time".to_owned())),
        }
    }
}

/// How large the tiers of an engine are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) page_bytes: u64,
    pub(super) dram_bytes: u64,
    pub(super) regions: u32,
}

impl Sizes {
    /// Bytes of the SSD file.
    pub(super) fn ssd_bytes(&self) -> u64 {
        FRONT_BYTES + u64::from(self.regions) * REGION_BYTES
    }

    /// Bytes of a slot: header and page.
    pub(super) fn slot_bytes(&self) -> u64 {
        4096 + self.page_bytes
    }

    /// Slots of one region, which begins with a header.
    pub(super) fn region_slots(&self) -> u32 {
        u32::try_from((REGION_BYTES - 4096) / self.slot_bytes()).unwrap_or(u32::MAX)
    }

    /// Pages that are put first: half of what fits, so that none has to leave for those that are put later.
    pub(super) fn slots(&self) -> u32 {
        (self.regions / 2).max(1) * self.region_slots()
    }

    /// As a server has them by default.
    fn settings(&self) -> EngineSettings {
        let arena_bytes = REGION_BYTES.min(self.dram_bytes);
        EngineSettings {
            dram: PoolSettings { bytes: self.dram_bytes, arena_bytes, huge_pages: HugePages::Auto },
            region_bytes: REGION_BYTES,
            ssd_device: DeviceKind::Auto,
            read_threads: 4,
            read_queue: 64,
            write_policy: WritePolicy::All,
            endurance: None,
            scrub: ScrubPlan { period: None, bytes_per_second_max: 0 },
            write_behind_bytes: 256 << 20,
            write_behind_time: Duration::from_secs(60),
            load_window_bytes: 64 << 20,
            chain_pages_max: 65_536,
            page_bytes_max: 32 << 20,
            namespaces_max: 16,
        }
    }
}

/// Metrics that nobody reads but this program.
pub(super) fn metrics() -> cairn_core::Result<Arc<Metrics>> {
    let register = |error| Error::new(ErrorKind::Internal, format!("register the metrics: {error}"));
    Metrics::new(&prometheus::Registry::new()).map(Arc::new).map_err(register)
}

/// Where the SSD file of an engine in `folder` is.
pub(super) fn ssd_path(folder: &Path) -> std::path::PathBuf {
    folder.join("pages")
}

/// Where the directory of an engine in `folder` is.
pub(super) fn directory_path(folder: &Path) -> std::path::PathBuf {
    folder.join("directory")
}

/// The namespace that pages of this size are in.
pub(super) fn namespace_id(page_bytes: u64) -> NamespaceId {
    identity(page_bytes).namespace_id(&secret().tenant_salt(&TenantId::local()))
}

/// What its pages are.
pub(super) fn identity(page_bytes: u64) -> Identity {
    store::identity(page_bytes)
}

fn secret() -> ServerSecret {
    ServerSecret::from_bytes([7; 32])
}

/// The keys of a chain's first pages: as random as real ones.
pub(super) fn chain(chain: u32, pages: u32) -> Vec<PageKey> {
    (0..pages).map(|page| key(chain, page)).collect()
}

/// The key of a page.
pub(super) fn key(chain: u32, page: u32) -> PageKey {
    let mut dice = Dice::new((u64::from(chain) << 32) | u64::from(page));
    let mut bytes = [0; 32];
    bytes.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&dice.roll().to_le_bytes()));
    PageKey::from_bytes(bytes)
}
