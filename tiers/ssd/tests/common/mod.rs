//! A tier over a device in memory, and pages whose bytes follow from their number.
#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Arc;

use cairn_core::metrics::{Damage, Metrics};
use cairn_core::{Checksum, Generation, NamespaceId, PageHeader, PageKey, SlotId, SystemClock};
use cairn_ssd::{Device, Expected, PageFacts, ReadFault, ScanReport, SsdComponents, SsdError, SsdTier, WriteBatch};
use cairn_testkit::fault_device::{FaultDevice, SeededEntropy};
use cairn_testkit::payload;

pub(crate) const REGION_BYTES: u64 = 65_536;
/// Bytes before the first region, and of every header: `docs/FORMAT.md`.
pub(crate) const FRONT_BYTES: u64 = 65_536;
pub(crate) const BLOCK_BYTES: u64 = 4096;
pub(crate) const SUPERBLOCK_A: u64 = 0;
pub(crate) const SUPERBLOCK_B: u64 = 32_768;
pub(crate) const NAMESPACE: NamespaceId = NamespaceId::from_bytes([7; 32]);

#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) device: Arc<FaultDevice>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tier: Arc<SsdTier>,
}

/// A page that was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) slot: SlotId,
    pub(crate) facts: PageFacts,
    pub(crate) expected: Expected,
}

pub(crate) fn device_bytes(regions: u64) -> u64 {
    FRONT_BYTES + regions * REGION_BYTES
}

pub(crate) fn blank(regions: u64) -> Arc<FaultDevice> {
    Arc::new(FaultDevice::new(usize::try_from(device_bytes(regions)).unwrap()))
}

pub(crate) fn components(device: Arc<dyn Device>) -> SsdComponents {
    let metrics = Arc::new(Metrics::new(&prometheus::Registry::new()).unwrap());
    SsdComponents { device, clock: Arc::new(SystemClock::start()), metrics }
}

pub(crate) fn format(device: Arc<dyn Device>) -> Result<SsdTier, SsdError> {
    SsdTier::format(components(device), REGION_BYTES, &SeededEntropy::new(1))
}

pub(crate) fn open(device: Arc<dyn Device>) -> Result<SsdTier, SsdError> {
    SsdTier::open(components(device))
}

impl Rig {
    /// A freshly formatted tier.
    pub(crate) fn new(regions: u64) -> Self {
        let device = blank(regions);
        format(device.clone()).unwrap();
        Self::over(device)
    }

    pub(crate) fn over(device: Arc<FaultDevice>) -> Self {
        let components = components(device.clone());
        let metrics = components.metrics.clone();
        Self { device, metrics, tier: Arc::new(SsdTier::open(components).unwrap()) }
    }

    /// A tier on what a crash left.
    pub(crate) fn on(image: Vec<u8>) -> Self {
        Self::over(Arc::new(FaultDevice::from_image(image)))
    }

    /// Begins to write a page.
    pub(crate) fn begin(&self, batch: &mut WriteBatch<'_>, number: u64, page_bytes: usize) -> Written {
        begin(&self.tier, batch, number, page_bytes)
    }

    /// The same device, opened as after a crash.
    pub(crate) fn reopen(&self) -> Self {
        Self::over(self.device.clone())
    }

    pub(crate) fn put(&self, number: u64, page_bytes: usize) -> Written {
        let slot = self.tier.reserve(page_bytes as u64).unwrap().expect("a free slot");
        write(&self.tier, slot, number, page_bytes).unwrap()
    }

    pub(crate) fn get(&self, page: &Written) -> Result<Vec<u8>, ReadFault> {
        read(&self.tier, page).inspect_err(|fault| self.tier.note(fault))
    }

    pub(crate) fn damaged(&self, damage: Damage) -> u64 {
        self.metrics.ssd_damaged.of(damage).get()
    }
}

pub(crate) fn facts(number: u64, page_bytes: usize) -> PageFacts {
    let key = key(number);
    let position = u32::try_from(number % 3).unwrap();
    let parent = (position > 0).then(|| self::key(number + 1_000_000));
    let checksum = Checksum::of(&payload::page(key.as_bytes(), page_bytes));
    PageFacts { namespace: NAMESPACE, key, parent, position, checksum }
}

pub(crate) fn key(number: u64) -> PageKey {
    let mut bytes = [0xa5; 32];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    PageKey::from_bytes(bytes)
}

pub(crate) fn write(tier: &SsdTier, slot: SlotId, number: u64, page_bytes: usize) -> Result<Written, SsdError> {
    let facts = facts(number, page_bytes);
    let generation = tier.write(slot, &facts, &payload::page(facts.key.as_bytes(), page_bytes))?;
    Ok(Written { slot, facts, expected: expected(&facts, generation, page_bytes as u64) })
}

/// Begins to write a page into a free slot.
pub(crate) fn begin(tier: &SsdTier, batch: &mut WriteBatch<'_>, number: u64, page_bytes: usize) -> Written {
    let slot = tier.reserve(page_bytes as u64).unwrap().expect("a free slot");
    let facts = facts(number, page_bytes);
    let generation = batch.write(slot, &facts, payload::page(facts.key.as_bytes(), page_bytes)).unwrap();
    Written { slot, facts, expected: expected(&facts, generation, page_bytes as u64) }
}

/// A page that was written by other means.
pub(crate) fn written(slot: SlotId, facts: PageFacts, generation: Generation, page_bytes: usize) -> Written {
    Written { slot, facts, expected: expected(&facts, generation, page_bytes as u64) }
}

fn expected(facts: &PageFacts, generation: Generation, payload_bytes: u64) -> Expected {
    let PageFacts { namespace, key, checksum, .. } = *facts;
    Expected { namespace, key, generation, checksum, payload_bytes }
}

pub(crate) fn of_header(header: &PageHeader) -> Written {
    let PageHeader { namespace, key, parent, position, generation, payload_bytes, checksum, slot, .. } = *header;
    let facts = PageFacts { namespace, key, parent, position, checksum };
    Written { slot, facts, expected: expected(&facts, generation, payload_bytes) }
}

/// Reads the page; whatever is served is right.
pub(crate) fn read(tier: &SsdTier, page: &Written) -> Result<Vec<u8>, ReadFault> {
    let mut bytes = vec![0xee; usize::try_from(page.expected.payload_bytes).unwrap()];
    let outcome = tier.read(&tier.pin(page.slot), &page.expected, &mut bytes);
    match outcome {
        Ok(()) => assert!(payload::is_right(page.facts.key.as_bytes(), 0, &bytes), "a wrong byte was served"),
        Err(_) => assert!(bytes.iter().all(|byte| *byte == 0), "bytes of a page that failed were left behind"),
    }
    outcome.map(|()| bytes)
}

pub(crate) fn scan(tier: &SsdTier) -> (Vec<PageHeader>, ScanReport) {
    let mut headers = Vec::new();
    let report = tier.scan_headers(0..u32::MAX, &mut |header| headers.push(header));
    (headers, report)
}

/// Where a slot lies, computed from `docs/FORMAT.md`.
pub(crate) fn slot_at(slot: SlotId, page_bytes: u64) -> u64 {
    let slot_bytes = BLOCK_BYTES + page_bytes.next_multiple_of(BLOCK_BYTES);
    FRONT_BYTES + u64::from(slot.region) * REGION_BYTES + BLOCK_BYTES + u64::from(slot.slot) * slot_bytes
}

pub(crate) fn damage(outcome: Result<Vec<u8>, ReadFault>) -> Damage {
    match outcome {
        Err(ReadFault::Damaged(damage)) => damage,
        other => panic!("the page should be damaged, and is {:?}", other.map(|bytes| bytes.len())),
    }
}
