//! Recovery: what is on the SSD, at start.
//!
//! Page and directory are two witnesses. The directory says what was acknowledged; an entry is taken over if its slot exists and no
//! other entry claims it, and its page is checked against header and checksum by whoever reads it first. A slot that no entry names is
//! free: its write was never acknowledged. A directory that does not know the device, or has slept through a run of it, is no witness: it is
//! [made again](crate::rebuild) from the headers of the pages while the engine serves.

use std::time::Duration;

use cairn_core::{Generation, Result};
use cairn_directory::{Change, DeviceRecord, Directory, Record};
use cairn_ssd::{Run, SsdTier};
use tracing::{info, warn};

use crate::catalogue::Catalogue;
use crate::namespace::Namespaces;
use crate::values::{PageName, Shape};

/// Records in one directory commit.
pub(crate) const COMMIT_RECORDS: usize = 4096;

/// How the data folder was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// There was nothing.
    Fresh,
    /// From the directory.
    Directory,
    /// From the headers of the pages, and that is still under way: what has not been found yet is a miss.
    Rebuilding,
    /// From the headers of the pages: the directory was lost, damaged, of another device or from another time.
    Rebuilt,
}

impl OpenMode {
    /// The mode in words.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Directory => "directory",
            Self::Rebuilding => "rebuilding from headers",
            Self::Rebuilt => "rebuilt from headers",
        }
    }
}

/// What was found at start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// How.
    pub mode: OpenMode,
    /// The run before this one ended in order and without an error.
    pub clean: bool,
    /// Pages found on the SSD.
    pub pages: u64,
    /// Records and headers that could not be used; each costs one page.
    pub dropped: u64,
    /// Records of the directory that were changed for it.
    pub changed_records: u64,
    /// Time that it took.
    pub took: Duration,
}

/// Fills the catalogue with what is on the SSD, or says that it is to be rebuilt, and begins a run of the device. `fresh`: the device was
/// formatted a moment ago.
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
    let before = tier.run();
    let known = directory.device()?;
    let mut found = Recovery {
        mode: OpenMode::Fresh,
        clean: before.clean,
        pages: 0,
        dropped: 0,
        changed_records: 0,
        took: Duration::ZERO,
    };
    if fresh {
        if known.is_some() {
            warn!("the directory knows pages of an SSD file that is not there any more; they are forgotten");
        }
        found.changed_records = forget_all(directory)?;
    } else if known.is_some_and(|known| is_witness(&known, tier, before)) {
        found.mode = OpenMode::Directory;
        from_directory(tier, directory, namespaces, catalogue, &mut found)?;
    } else {
        found.mode = OpenMode::Rebuilding;
        let why = if known.is_some() { "it is of another device or from another time" } else { "it is new" };
        warn!(why, "the directory can not be used; it is made again from the headers of the pages");
    }
    if found.mode != OpenMode::Rebuilding {
        // First the directory: a device that is one run behind it is the same, a directory that is behind is not.
        directory.set_device(DeviceRecord { id: tier.device_id(), run: before.number + 1 })?;
        found.changed_records += 1;
    }
    tier.begin_run()?;
    info!(mode = found.mode.label(), clean = found.clean, pages = found.pages, "the SSD tier is open");
    Ok(found)
}

/// Whether the directory was there in the device's last run. It may be one ahead, if the process ended right then.
fn is_witness(known: &DeviceRecord, tier: &SsdTier, before: Run) -> bool {
    known.id == tier.device_id() && (known.run == before.number || known.run == before.number + 1)
}

fn from_directory(
    tier: &SsdTier,
    directory: &dyn Directory,
    namespaces: &Namespaces,
    catalogue: &mut Catalogue,
    found: &mut Recovery,
) -> Result<()> {
    let mut records = Vec::new();
    let report = directory.scan(&mut |record| records.push(record))?;
    // Parents were mostly written before their children.
    records.sort_unstable_by_key(|record: &Record| record.generation);
    catalogue.expect(records.len());
    let mut lost = Vec::new();
    for record in &records {
        if take_over(tier, namespaces, catalogue, record) {
            found.pages += 1;
        } else {
            lost.push(Change::Remove { namespace: record.namespace, key: record.key });
        }
    }
    catalogue.end_recovery();
    let repaired = tier.repair_regions()?;
    if repaired > 0 {
        warn!(regions = repaired, "headers of regions were damaged; they are written anew by what the directory knows");
    }
    tier.settle();
    catalogue.demote_below_holes();
    found.dropped = report.corrupt_records + lost.len() as u64;
    found.changed_records = lost.len() as u64;
    if found.dropped > 0 {
        warn!(dropped = found.dropped, "some records could not be used; each costs one page");
    }
    Ok(directory.commit(&lost)?)
}

/// Takes a page over that is in its slot; false if it can not be there, or is known from another slot.
pub(crate) fn take_over(tier: &SsdTier, namespaces: &Namespaces, catalogue: &mut Catalogue, record: &Record) -> bool {
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

/// Makes the directory forget all pages: what it says is about another device, or another time. How many there were.
pub(crate) fn forget_all(directory: &dyn Directory) -> Result<u64> {
    let mut forget = Vec::new();
    directory.scan(&mut |record| forget.push(Change::Remove { namespace: record.namespace, key: record.key }))?;
    for some in forget.chunks(COMMIT_RECORDS) {
        directory.commit(some)?;
    }
    Ok(forget.len() as u64)
}
