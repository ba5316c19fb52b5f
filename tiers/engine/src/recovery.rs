//! Recovery: what is on the SSD, from the directory or, if that was lost, from the pages' own headers.
//!
//! Page and directory are two witnesses. The directory says what was acknowledged; an entry is taken over if its slot exists and no
//! other entry claims it, and its page is checked against header and checksum by whoever reads it first. A slot that no entry names is
//! free: its write was never acknowledged. If the directory is new but the device is not, the directory is made again from headers:
//! each page says who it is, and of two copies of one page the later one counts.

use std::collections::HashMap;
use std::time::Duration;

use cairn_core::{Generation, NamespaceId, PageKey, Result};
use cairn_directory::{Change, Directory, Record};
use cairn_ssd::SsdTier;
use tracing::{info, warn};

use crate::catalogue::Catalogue;
use crate::namespace::Namespaces;
use crate::values::{PageName, Shape};

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
            let (records, dropped) = from_headers(tier);
            (OpenMode::Rebuilt, records, dropped)
        }
    };
    // Parents were written before their children, so this is also the order of the chains.
    records.sort_unstable_by_key(|record| record.generation);
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
    let mut latest: HashMap<(NamespaceId, PageKey), Record> = HashMap::new();
    let report = tier.scan_headers(&mut |header| {
        let record = Record {
            namespace: header.namespace,
            key: header.key,
            parent: header.parent,
            position: header.position,
            slot: header.slot,
            generation: header.generation,
            payload_bytes: header.payload_bytes,
            checksum: header.checksum,
        };
        let known = latest.entry((record.namespace, record.key)).or_insert(record);
        if known.generation < record.generation {
            *known = record;
        }
    });
    let lost = report.damaged_slots + report.unreadable_slots;
    (latest.into_values().collect(), lost)
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
