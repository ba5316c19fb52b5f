//! Recovery: what is on the SSD, from the directory or, if that was lost, from the pages' own headers.
//!
//! Page and directory are two witnesses. The directory says what was acknowledged; an entry is taken over if its slot exists and no
//! other entry claims it, and its page is checked against header and checksum by whoever reads it first. A slot that no entry names is
//! free: its write was never acknowledged. If the directory is new but the device is not, the directory is made again from headers:
//! each page says who it is, and of two copies of one page the later one counts. A page whose batch may not have passed its barrier is
//! read first: its header says nothing of what became of its payload, and what is written down will be acknowledged.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use cairn_core::{Generation, NamespaceId, PageHeader, PageKey, Result};
use cairn_directory::{Change, Directory, Record};
use cairn_ssd::{Expected, GENERATION_SPAN, SsdTier};
use tracing::{info, warn};

use crate::catalogue::Catalogue;
use crate::namespace::Namespaces;
use crate::values::{PageName, Shape};
use crate::writer::BATCH_PAGES_MAX;

/// Records in one directory commit of a rebuild.
const COMMIT_RECORDS: usize = 4096;

/// How the data folder was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// There was nothing.
    Fresh,
    /// From the directory.
    Directory,
    /// From the headers of the pages: the directory was lost, damaged or of another device.
    Rebuilt,
}

impl OpenMode {
    /// The mode in words.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Directory => "directory",
            Self::Rebuilt => "rebuilt from headers",
        }
    }
}

/// What was found at start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// How.
    pub mode: OpenMode,
    /// Pages found on the SSD.
    pub pages: u64,
    /// Records and headers that could not be used; each costs one page.
    pub dropped: u64,
    /// Time that it took.
    pub took: Duration,
}

/// Fills the catalogue with what is on the SSD. `fresh`: the device was formatted a moment ago.
pub(crate) fn recover(
    tier: &SsdTier,
    fresh: bool,
    directory: &dyn Directory,
    namespaces: &Namespaces,
    catalogue: &mut Catalogue,
) -> Result<Recovery> {
    for record in directory.namespaces()? {
        let namespace = namespaces.open(record.id, &record.tenant, &record.identity);
        catalogue.set_shape(
            namespace.no(),
            Shape { id: record.id, tenant: Some(namespace.tenant_no()), page_bytes: namespace.page_bytes() },
        );
    }
    let device = directory.device()?;
    let known_device = device == Some(tier.device_id());
    if fresh && device.is_some() {
        warn!("the directory knows pages of an SSD file that is not there any more; they are forgotten");
    }
    let (mode, mut records, mut dropped) = match (fresh, known_device) {
        (true, _) => (OpenMode::Fresh, Vec::new(), 0),
        (false, true) => {
            let (records, dropped) = from_directory(directory)?;
            (OpenMode::Directory, records, dropped)
        }
        (false, false) => {
            // What the process before this one wrote may be in the page cache only; what is written down must be on the disk.
            tier.barrier()?;
            let (records, dropped) = from_headers(tier);
            (OpenMode::Rebuilt, records, dropped)
        }
    };
    // Parents were written before their children, so this is also the order of the chains.
    records.sort_unstable_by_key(|record| record.generation);
    catalogue.expect(records.len());
    let mut pages = 0;
    let mut lost = Vec::new();
    for record in &records {
        if take_over(tier, namespaces, catalogue, record) {
            pages += 1;
        } else {
            dropped += 1;
            lost.push(Change::Remove { namespace: record.namespace, key: record.key });
        }
    }
    catalogue.demote_below_holes();
    write_down(mode, &records, lost, tier, directory)?;
    if dropped > 0 {
        warn!(dropped, "some records or headers could not be used; each costs one page");
    }
    info!(mode = mode.label(), pages, "the SSD tier is open");
    Ok(Recovery { mode, pages, dropped, took: Duration::ZERO })
}

fn from_directory(directory: &dyn Directory) -> Result<(Vec<Record>, u64)> {
    let mut records = Vec::new();
    let report = directory.scan(&mut |record| records.push(record))?;
    Ok((records, report.corrupt_records))
}

fn from_headers(tier: &SsdTier) -> (Vec<Record>, u64) {
    warn!("the directory does not know this device; it is made again from the headers of the pages");
    let mut found: Vec<Record> = Vec::new();
    let report = tier.scan_headers(&mut |header| found.push(record_of(&header)));
    found.sort_unstable_by_key(|record| Reverse(record.generation));
    let mut latest: HashMap<(NamespaceId, PageKey), Record> = HashMap::with_capacity(found.len());
    let mut tail = Tail::default();
    let mut torn = 0;
    for record in found {
        let in_tail = tail.has(record.generation);
        let Entry::Vacant(place) = latest.entry((record.namespace, record.key)) else { continue };
        if in_tail && !is_whole(tier, &record) {
            torn += 1;
        } else {
            place.insert(record);
        }
    }
    (latest.into_values().collect(), report.damaged_slots + report.unreadable_slots + torn)
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

fn is_whole(tier: &SsdTier, record: &Record) -> bool {
    let expected = Expected {
        namespace: record.namespace,
        key: record.key,
        generation: record.generation,
        checksum: record.checksum,
        payload_bytes: record.payload_bytes,
    };
    let mut bytes = vec![0; usize::try_from(record.payload_bytes).unwrap_or(0)];
    tier.read(&tier.pin(record.slot), &expected, &mut bytes).is_ok()
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

fn take_over(tier: &SsdTier, namespaces: &Namespaces, catalogue: &mut Catalogue, record: &Record) -> bool {
    let no = namespaces.find_or_number(record.namespace);
    match catalogue.shape(no).filter(|shape| shape.id == record.namespace) {
        Some(shape) if shape.page_bytes != record.payload_bytes => return false,
        Some(_) => {}
        None => catalogue.set_shape(no, Shape { id: record.namespace, tenant: None, page_bytes: record.payload_bytes }),
    }
    if record.generation == Generation::default() || !tier.claim(record.slot, record.payload_bytes) {
        return false;
    }
    let name = PageName { namespace: no, key: record.key, parent: record.parent, position: record.position };
    let taken = catalogue.recover(&name, record.slot, record.generation, record.checksum);
    if !taken {
        tier.free(record.slot);
    }
    taken
}

/// Makes the directory say what was found.
fn write_down(
    mode: OpenMode,
    records: &[Record],
    lost: Vec<Change>,
    tier: &SsdTier,
    directory: &dyn Directory,
) -> Result<()> {
    if mode != OpenMode::Directory {
        // Whatever it says is about another device.
        let mut foreign = Vec::new();
        directory.scan(&mut |record| {
            foreign.push(Change::Remove { namespace: record.namespace, key: record.key });
        })?;
        for some in foreign.chunks(COMMIT_RECORDS) {
            directory.commit(some)?;
        }
        for some in records.chunks(COMMIT_RECORDS) {
            let changes: Vec<Change> = some.iter().copied().map(Change::Put).collect();
            directory.commit(&changes)?;
        }
    }
    if !lost.is_empty() {
        directory.commit(&lost)?;
    }
    if mode != OpenMode::Directory {
        directory.set_device(tier.device_id())?;
    }
    Ok(())
}
