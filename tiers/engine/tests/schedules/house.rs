//! A small engine on a disk and a directory in memory, and callers that check every byte.

use std::sync::Arc;
use std::time::Duration;

use cairn_core::metrics::Metrics;
use cairn_core::{
    Checksum, Clock, Deadline, Declared, Durability, Heads, Identity, KeyScheme, LayerRange, Moment, PageKey,
    Principal, ServerSecret, StateKind, StopReason,
};
use cairn_directory::{Directory, MemoryDirectory, Record};
use cairn_engine::{Components, Engine, EngineSettings, EngineStats, Get, GetOptions, Namespace, PutReport};
use cairn_policy::{ScrubPlan, WritePolicy};
use cairn_pool::{HugePages, PoolSettings};
use cairn_schedules::thread;
use cairn_ssd::{Device, DeviceKind, PageFacts, SsdComponents, SsdTier};
use cairn_testkit::fault_device::{FaultDevice, SeededEntropy};
use cairn_testkit::payload;
use cairn_testkit::schedules::TurnDevice;

pub(crate) const PAGE_BYTES: u64 = 4096;
pub(crate) const BLOCK_BYTES: u64 = 4096;
const FRONT_BYTES: u64 = 65_536;
/// How often somebody looks whether all has ended.
const LOOKS_MAX: usize = 1000;
const SLOT_BYTES: u64 = BLOCK_BYTES + PAGE_BYTES;

/// What an engine has room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Pages in DRAM, two in an arena.
    pub(crate) dram_pages: u64,
    /// Regions of the SSD, ...
    pub(crate) regions: u64,
    /// ... with so many slots each.
    pub(crate) slots: u64,
    /// Pages that may wait to be written.
    pub(crate) waiting_pages: u64,
}

/// Time that stands still.
#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now(&self) -> Moment {
        Moment::default()
    }
}

/// An open engine.
#[derive(Clone)]
pub(crate) struct House {
    pub(crate) engine: Arc<Engine>,
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) device: Arc<TurnDevice>,
    /// What lies behind the device.
    pub(crate) disk: Arc<FaultDevice>,
    pub(crate) directory: Arc<MemoryDirectory>,
}

impl House {
    /// An engine with pages of these chains on its SSD, and none in DRAM.
    pub(crate) fn new(room: Room, on_ssd: &[Vec<PageKey>]) -> Self {
        let region_bytes = BLOCK_BYTES + room.slots * SLOT_BYTES;
        let disk = Arc::new(FaultDevice::new((FRONT_BYTES + room.regions * region_bytes) as usize));
        let device = Arc::new(TurnDevice::new(Arc::clone(&disk)));
        format(device.clone(), region_bytes, on_ssd);
        let directory = Arc::new(MemoryDirectory::new());
        let metrics = new_metrics();
        let components = Components {
            clock: Arc::new(Still),
            entropy: Arc::new(SeededEntropy::new(11)),
            secret: secret(),
            directory: directory.clone(),
            device: device.clone(),
            metrics: Arc::clone(&metrics),
        };
        let engine = Engine::open(settings(room, region_bytes), components).expect("the engine opens");
        let namespace = engine.open_namespace(&Principal::local(), &identity()).expect("the namespace opens");
        // Until then nothing is found, and nothing is written.
        engine.wait_rebuilt();
        device.take_reads();
        Self { engine, namespace, metrics, device, disk, directory }
    }

    fn deadline(&self) -> Deadline {
        Deadline::after(&Still, Duration::from_secs(1))
    }

    /// Puts every page of `chain` that is needed.
    pub(crate) async fn put(&self, chain: &[PageKey], durability: Durability) -> PutReport {
        let put = self.engine.begin_put(&self.namespace, chain.to_vec(), durability, self.deadline());
        let mut put = put.expect("the put begins");
        for page in put.needed().into_iter().flatten() {
            let Ok(mut frame) = put.reserve(page).await else { break };
            payload::fill(chain[page].as_bytes(), &mut frame);
            let checksum = Checksum::of(&frame);
            put.commit(page, frame, checksum);
        }
        put.finish().await
    }

    pub(crate) fn begin_get(&self, chain: &[PageKey]) -> Get {
        let options = GetOptions { first_page: 0, usable_pages: u64::MAX, deadline: self.deadline() };
        self.engine.get_prefix(&self.namespace, chain.to_vec(), options).expect("the get begins")
    }

    /// Gets what there is of `chain` and checks its bytes; how many pages.
    pub(crate) async fn get(&self, chain: &[PageKey]) -> usize {
        let mut get = self.begin_get(chain);
        let mut pages = 0;
        while let Some(served) = get.next().await {
            assert_eq!(served.page, pages, "pages come in order");
            assert!(payload::is_right(chain[served.page].as_bytes(), 0, served.bytes.as_ref()), "wrong bytes");
            pages += 1;
        }
        let end = get.end();
        assert_eq!(end.good_pages, pages);
        assert!(
            matches!(end.stop, StopReason::EndOfChain | StopReason::NotStored | StopReason::NoSpace),
            "a get ended with {end:?}"
        );
        pages
    }

    /// Every page that the directory names, open or closed.
    pub(crate) fn records(&self) -> Vec<Record> {
        let mut records = Vec::new();
        self.directory.reopen().scan(&mut |record| records.push(record)).expect("it can be scanned");
        records
    }

    /// Pages on the SSD that were found damaged.
    pub(crate) fn damaged(&self) -> u64 {
        self.metrics.ssd_damaged.iter().map(|(_, counter)| counter.get()).sum()
    }

    /// What must be so when nothing is under way, and nothing was damaged.
    pub(crate) fn is_in_order(&self) {
        assert_eq!((self.damaged(), self.metrics.dram_damaged.get(), self.metrics.ssd_read_failed.get()), (0, 0, 0));
        self.is_settled();
    }

    /// What must be so when nothing is under way and no slot in quarantine. Loads that nobody waits for any more, and the writer, which
    /// settles its account after it has answered, are given time to end.
    pub(crate) fn is_settled(&self) {
        let is_busy =
            |stats: EngineStats| stats.dram.used_bytes > stats.dram.pages * PAGE_BYTES || stats.budget.held_bytes > 0;
        for _ in 0..LOOKS_MAX {
            if !is_busy(self.engine.stats()) {
                break;
            }
            thread::yield_now();
        }
        assert_eq!((self.metrics.ssd_write_queue_pages.get(), self.metrics.ssd_write_queue_bytes.get()), (0, 0));
        let stats = self.engine.stats();
        assert!(!stats.write_quarantined);
        assert_eq!(stats.dram.used_bytes, stats.dram.pages * PAGE_BYTES, "frames are lost or held");
        assert_eq!(stats.ssd.used_bytes, stats.ssd.pages * SLOT_BYTES, "slots are lost or held");
        assert_eq!(self.records().len() as u64, stats.ssd.pages, "the directory and the SSD say the same");
        assert_eq!(stats.budget.held_bytes, 0, "write budget is held for nothing");
    }
}

/// Formats a device, and writes chains to it; the engine finds them by their headers.
fn format(device: Arc<dyn Device>, region_bytes: u64, on_ssd: &[Vec<PageKey>]) {
    let components = SsdComponents { device, clock: Arc::new(Still), metrics: new_metrics() };
    let tier = SsdTier::format(components, region_bytes, &SeededEntropy::new(5)).expect("the device is formatted");
    let namespace = identity().namespace_id(&secret().tenant_salt(&Principal::local().tenant));
    for chain in on_ssd {
        for (position, key) in chain.iter().enumerate() {
            let bytes = payload::page(key.as_bytes(), PAGE_BYTES as usize);
            let parent = position.checked_sub(1).map(|parent| chain[parent]);
            let checksum = Checksum::of(&bytes);
            let facts = PageFacts { namespace, key: *key, parent, position: position as u32, checksum };
            let slot = tier.reserve(PAGE_BYTES).unwrap().expect("a free slot");
            tier.write(slot, &facts, &bytes).unwrap();
        }
    }
    tier.barrier().unwrap();
}

/// Where on the device a page lies.
pub(crate) fn place_of(record: &Record, room: Room) -> u64 {
    let region_bytes = BLOCK_BYTES + room.slots * SLOT_BYTES;
    FRONT_BYTES + u64::from(record.slot.region) * region_bytes + BLOCK_BYTES + u64::from(record.slot.slot) * SLOT_BYTES
}

/// A chain of its own.
pub(crate) fn chain(name: u32, pages: u32) -> Vec<PageKey> {
    let namespace = identity().namespace_id(&secret().tenant_salt(&Principal::local().tenant));
    let mut keys: Vec<PageKey> = Vec::new();
    for page in 0..pages {
        keys.push(PageKey::of_tokens(&namespace, keys.last(), &[name, page], &[]));
    }
    keys
}

fn new_metrics() -> Arc<Metrics> {
    Arc::new(Metrics::new(&prometheus::Registry::new()).expect("metrics register once"))
}

fn secret() -> ServerSecret {
    ServerSecret::from_bytes([7; 32])
}

fn settings(room: Room, region_bytes: u64) -> EngineSettings {
    EngineSettings {
        dram: PoolSettings {
            bytes: room.dram_pages * PAGE_BYTES,
            arena_bytes: 2 * PAGE_BYTES,
            huge_pages: HugePages::Off,
        },
        region_bytes,
        ssd_device: DeviceKind::Positioned,
        read_threads: 2,
        read_queue: 2,
        write_policy: WritePolicy::All,
        endurance: None,
        scrub: ScrubPlan { period: None, bytes_per_second_max: 0 },
        write_behind_bytes: room.waiting_pages * PAGE_BYTES,
        write_behind_time: Duration::from_secs(600),
        load_window_bytes: 2 * PAGE_BYTES,
        chain_pages_max: 16,
        page_bytes_max: PAGE_BYTES,
        namespaces_max: 2,
    }
}

fn identity() -> Identity {
    Identity {
        model: "small".into(),
        model_revision: "r1".into(),
        adapter: Declared::None,
        positions: Declared::Is("rope theta=1000000".into()),
        kind: StateKind::Attention,
        dtype: "bf16".into(),
        layout: "NHD".into(),
        layout_version: "1".into(),
        page_tokens: 2,
        page_bytes: PAGE_BYTES,
        layers: LayerRange { first: 0, count: 1, of: 1 },
        heads: Heads::Replicated,
        quantisation: Declared::None,
        cache_salt: Declared::None,
        keys: KeyScheme::Tokens,
    }
}
