//! Rebuild: the directory, made again from the headers of the pages while the engine serves.
//!
//! Each page says who it is, and of two copies of one page the later one counts. A page whose batch may not have passed its barrier is read
//! first: its header says nothing of what became of its payload, and what is written down will be acknowledged. The pages found are taken
//! over a few thousand at a time, parents first; until then they are misses. Only when all is written down does the directory know the
//! device, so a rebuild that is cut short begins anew.
//!
//! It is the writer thread's first work. Which slots are free is not known before it ends: until then nothing is written to the SSD, and
//! puts are told so ([`Skipped::Rebuilding`](cairn_core::metrics::Skipped)).

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use cairn_core::{Generation, NamespaceId, PageHeader, PageKey, Result, SlotId};
use cairn_directory::{Change, DeviceRecord, Record};
use cairn_ssd::{Expected, GENERATION_SPAN, ScanReport, SsdTier};
use tracing::{info, warn};

use crate::endurance::{COMMIT_BYTES, RECORD_BYTES};
use crate::engine::Shared;
use crate::recovery::{COMMIT_RECORDS, OpenMode, forget_all, take_over};
use crate::writer::{BATCH_PAGES_MAX, charged};

/// Regions scanned between two looks at whether the engine is closing.
const SCAN_REGIONS: u32 = 16;

/// Rebuilds, if that is to be done. A failure quarantines writes; what was found so far is served.
pub(crate) fn run(shared: &Shared) {
    if shared.recovery.lock().mode != OpenMode::Rebuilding {
        return;
    }
    let started = shared.clock.now();
    let rebuilt = rebuild(shared);
    if let Err(failed) = &rebuilt {
        shared.quarantine_writes(failed);
    }
    // Before anybody hears that it is over: who puts then is not told to wait.
    shared.queue.open();
    {
        let mut recovery = shared.recovery.lock();
        // Closing, or failed: the next start begins anew.
        if matches!(rebuilt, Ok(true)) {
            recovery.mode = OpenMode::Rebuilt;
            recovery.took += shared.clock.now().since(started);
            info!(pages = recovery.pages, dropped = recovery.dropped, "the directory is made again");
        }
        shared.metrics.rebuilding.set(0);
    }
    shared.rebuilt.notify_all();
    shared.scrub.wake();
}

/// False if the engine is closing.
fn rebuild(shared: &Shared) -> Result<bool> {
    // What the process before this one wrote may be in the page cache only; what is written down must be on the disk.
    shared.tier.barrier()?;
    charged(shared, 0, COMMIT_BYTES, || forget_all(&*shared.directory).map(drop))?;
    let Some((mut records, dropped)) = from_headers(shared) else { return Ok(false) };
    shared.recovery.lock().dropped = dropped;
    // Parents were mostly written before their children.
    records.sort_unstable_by_key(|record| record.generation);
    for some in records.chunks(COMMIT_RECORDS) {
        if shared.queue.is_stopping() {
            return Ok(false);
        }
        take_over_some(shared, some)?;
    }
    shared.tier.settle();
    shared.catalogue.lock().demote_below_holes();
    let device = DeviceRecord { id: shared.tier.device_id(), run: shared.tier.run().number };
    charged(shared, 0, COMMIT_BYTES, || Ok(shared.directory.set_device(device)?))?;
    Ok(true)
}

/// The directory first: what a reader finds is known to it.
fn take_over_some(shared: &Shared, records: &[Record]) -> Result<()> {
    let changes: Vec<Change> = records.iter().copied().map(Change::Put).collect();
    let directory_bytes = COMMIT_BYTES + changes.len() as u64 * RECORD_BYTES;
    charged(shared, 0, directory_bytes, || Ok(shared.directory.commit(&changes)?))?;
    let lost: Vec<Change> = {
        let mut catalogue = shared.catalogue.lock();
        let is_lost = |record: &&Record| !take_over(&shared.tier, &shared.namespaces, &mut catalogue, record);
        let lost = records.iter().filter(is_lost);
        let lost = lost.map(|record| Change::Remove { namespace: record.namespace, key: record.key }).collect();
        catalogue.end_recovery();
        lost
    };
    let mut recovery = shared.recovery.lock();
    recovery.pages += (records.len() - lost.len()) as u64;
    recovery.dropped += lost.len() as u64;
    shared.metrics.recovered_pages.set(i64::try_from(recovery.pages).unwrap_or(i64::MAX));
    drop(recovery);
    if lost.is_empty() {
        return Ok(());
    }
    charged(shared, 0, COMMIT_BYTES + lost.len() as u64 * RECORD_BYTES, || Ok(shared.directory.commit(&lost)?))
}

/// The latest whole copy of each page on the device, and how many headers could not be used. `None` if the engine is closing.
fn from_headers(shared: &Shared) -> Option<(Vec<Record>, u64)> {
    let tier = &shared.tier;
    let mut found: Vec<Record> = Vec::new();
    let mut report = ScanReport::default();
    for first in (0..tier.regions()).step_by(SCAN_REGIONS as usize) {
        if shared.queue.is_stopping() {
            return None;
        }
        let regions = first..first.saturating_add(SCAN_REGIONS);
        report += tier.scan_headers(regions, &mut |header| found.push(record_of(&header)));
    }
    if report.damaged_regions > 0 {
        warn!(regions = report.damaged_regions, "regions whose own header is damaged: their pages are lost");
    }
    found.sort_unstable_by_key(|record| Reverse(record.generation));
    let torn = torn_of(tier, &found);
    let mut latest: HashMap<(NamespaceId, PageKey), Record> = HashMap::with_capacity(found.len());
    for record in found {
        if !torn.contains(&record.generation) {
            latest.entry((record.namespace, record.key)).or_insert(record);
        }
    }
    let dropped = report.damaged_slots + report.unreadable_slots + torn.len() as u64;
    Some((latest.into_values().collect(), dropped))
}

/// Of these records, the latest first, those that a crash may have torn and has.
fn torn_of(tier: &SsdTier, found: &[Record]) -> HashSet<Generation> {
    let mut tail = Tail::default();
    let in_tail = found.iter().filter(|record| tail.has(record.generation));
    let doubtful: Vec<(SlotId, Expected)> = in_tail.map(|record| (record.slot, expected_of(record))).collect();
    let whole = tier.are_whole(&doubtful);
    let torn = doubtful.iter().zip(whole).filter(|(_, whole)| !whole);
    torn.map(|((_, expected), _)| expected.generation).collect()
}

/// The end of a life of the device: what a crash may have torn, because its batch had not passed its barrier. Generations come newest first.
#[derive(Default)]
struct Tail {
    span: u64,
    newest: u64,
}

impl Tail {
    /// Whether a filling may be torn. Two lives never share a span of generations, so the end of each is the end of a span.
    fn has(&mut self, generation: Generation) -> bool {
        let generation = generation.to_u64();
        let span = generation.div_ceil(GENERATION_SPAN);
        if self.newest == 0 || span != self.span {
            *self = Self { span, newest: generation };
        }
        self.newest - generation < BATCH_PAGES_MAX as u64
    }
}

fn expected_of(record: &Record) -> Expected {
    Expected {
        namespace: record.namespace,
        key: record.key,
        generation: record.generation,
        checksum: record.checksum,
        payload_bytes: record.payload_bytes,
    }
}

fn record_of(header: &PageHeader) -> Record {
    Record {
        namespace: header.namespace,
        key: header.key,
        parent: header.parent,
        position: header.position,
        slot: header.slot,
        generation: header.generation,
        payload_bytes: header.payload_bytes,
        checksum: header.checksum,
    }
}
