//! Looks at all that a data folder holds: both superblocks, every region's header, every slot with its payload, and every entry of the directory.
//!
//! Page and entry are two witnesses. A page that its entry names must be whole. A page that no entry names is nobody's: its put was never
//! acknowledged, or it was evicted. An entry whose page is not there is a miss. Which of them a start would drop, repair or adopt is said; nothing
//! is changed.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;

use cairn_core::metrics::{Damage, Label, Metrics};
use cairn_core::{PageHeader, SlotId, SystemClock};
use cairn_directory::{Directory, DirectoryError, Record, RocksDirectory};
use cairn_ssd::{Expected, FileDevice, Held, ReadFault, RegionCounts, SsdComponents, SsdError, SsdTier};
use prometheus::Registry;

use super::OfflineError;
use super::report::{DirectoryState, Fault, FaultyPage, PageCounts, Report, SsdState};
use crate::data_folder::StoppedFolder;

/// Looks at the folder at `dir`. Blocks; reads all of it.
pub(super) fn run(dir: &Path) -> Result<Report, OfflineError> {
    let folder = StoppedFolder::take(dir)?;
    let (mut directory, records) = read_directory(&folder)?;
    let mut look = Look::new(records);
    let ssd = match open_tier(&folder)? {
        Ok(tier) => {
            if directory.is_whole() && directory.device != Some(tier.device_id()) {
                directory.fault =
                    Some("it names the pages of another ssd file; the next start makes it again".to_owned());
            }
            let regions = look.at(&tier);
            SsdState { superblocks: Some(tier.superblocks()), regions, bytes: tier.capacity_bytes(), fault: None }
        }
        Err(fault) => {
            look.nothing_is_there();
            SsdState { superblocks: None, regions: RegionCounts::default(), bytes: 0, fault: Some(fault) }
        }
    };
    Ok(Report { dir: dir.to_owned(), ssd, directory, pages: look.counts, faulty: look.faulty })
}

/// The tier, or why none of its pages can be read.
fn open_tier(folder: &StoppedFolder) -> Result<Result<SsdTier, String>, OfflineError> {
    let path = folder.ssd_file();
    if !path.exists() {
        return Ok(Err("there is no ssd file".to_owned()));
    }
    let device = Arc::new(FileDevice::open_read_only(&path)?);
    let metrics = Arc::new(Metrics::new(&Registry::new())?);
    let components = SsdComponents { device, clock: Arc::new(SystemClock::start()), metrics };
    match SsdTier::open_to_look(components) {
        Ok(tier) => Ok(Ok(tier)),
        Err(error @ (SsdError::Blank | SsdError::SuperblocksDamaged)) => Ok(Err(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

/// What can be said of the directory, and its entries in the order of their slots.
fn read_directory(folder: &StoppedFolder) -> Result<(DirectoryState, Vec<Record>), OfflineError> {
    let mut state = DirectoryState::default();
    let mut records = Vec::new();
    let read = RocksDirectory::open_to_look(&folder.directory()).and_then(|directory| {
        state.device = directory.device()?.map(|known| known.id);
        state.namespaces = directory.namespaces()?.len() as u64;
        let scanned = directory.scan(&mut |record| records.push(record))?;
        (state.corrupt_records, state.corrupt_namespaces) = (scanned.corrupt_records, scanned.corrupt_namespaces);
        Ok(())
    });
    match read {
        Ok(()) => {}
        Err(error @ DirectoryError::Damaged { .. }) => state.fault = Some(error.to_string()),
        Err(error) => return Err(error.into()),
    }
    state.entries = records.len() as u64;
    records.sort_unstable_by_key(|record| record.slot);
    Ok((state, records))
}

/// What has been looked at so far.
struct Look {
    records: Vec<Record>,
    /// Of each record, whether its slot has been looked at.
    seen: Vec<bool>,
    counts: PageCounts,
    faulty: Vec<FaultyPage>,
}

impl Look {
    fn new(records: Vec<Record>) -> Self {
        Self { seen: vec![false; records.len()], records, counts: PageCounts::default(), faulty: Vec::new() }
    }

    fn at(&mut self, tier: &SsdTier) -> RegionCounts {
        let mut progress = Progress::new(tier.regions());
        let regions = tier.inspect(&mut |slot, held| {
            progress.show(slot.region);
            self.slot(slot, held);
        });
        self.rest(tier);
        regions
    }

    /// One slot, and the entries that name it; more than one is one too many.
    fn slot(&mut self, slot: SlotId, held: Held) {
        let first = self.records.partition_point(|record| record.slot < slot);
        let named = self.records[first..].iter().take_while(|record| record.slot == slot).count();
        let mut is_named = false;
        for at in first..first + named {
            self.seen[at] = true;
            let record = self.records[at];
            match held {
                Held::Page { header, fault } if is_of(&header, &record) => {
                    is_named = true;
                    self.entry(&record, fault.map(Fault::Damaged));
                }
                Held::Page { .. } | Held::Stale | Held::Empty => self.entry(&record, Some(Fault::NoPage)),
                Held::Damaged(damage) => self.entry(&record, Some(Fault::Damaged(damage))),
                Held::Unreadable => self.entry(&record, Some(Fault::Unreadable)),
            }
        }
        let counts = &mut self.counts;
        match held {
            Held::Page { .. } if is_named => {}
            Held::Page { fault: None, .. } => counts.without_entry += 1,
            Held::Page { .. } => counts.torn_without_entry += 1,
            Held::Stale => counts.stale += 1,
            Held::Damaged(_) | Held::Unreadable if named == 0 => counts.torn_without_entry += 1,
            Held::Empty | Held::Damaged(_) | Held::Unreadable => {}
        }
    }

    /// Entries whose slots no region's header told of: their regions are unused, or their header was lost.
    fn rest(&mut self, tier: &SsdTier) {
        for at in 0..self.records.len() {
            if self.seen[at] {
                continue;
            }
            let record = self.records[at];
            let fault = match tier.check(record.slot, &expected(&record)) {
                Ok(()) => None,
                Err(ReadFault::Damaged(Damage::HeaderAbsent | Damage::OtherPage)) => Some(Fault::NoPage),
                Err(ReadFault::Damaged(damage)) => Some(Fault::Damaged(damage)),
                Err(_) => Some(Fault::Unreadable),
            };
            self.entry(&record, fault);
        }
    }

    fn nothing_is_there(&mut self) {
        for at in 0..self.records.len() {
            let record = self.records[at];
            self.entry(&record, Some(Fault::NoPage));
        }
    }

    fn entry(&mut self, record: &Record, fault: Option<Fault>) {
        match fault {
            None => {
                self.counts.whole += 1;
                self.counts.whole_bytes += record.payload_bytes;
                return;
            }
            Some(Fault::NoPage) => self.counts.without_page += 1,
            Some(Fault::Damaged(damage)) => *self.counts.damaged.entry(damage.text()).or_default() += 1,
            Some(Fault::Unreadable) => self.counts.unreadable += 1,
        }
        if let Some(fault) = fault {
            FaultyPage::add(&mut self.faulty, record, fault);
        }
    }
}

/// Whether the page that a header tells of is the one that the entry names.
fn is_of(header: &PageHeader, record: &Record) -> bool {
    let PageHeader { namespace, key, generation, checksum, payload_bytes, .. } = *header;
    Expected { namespace, key, generation, checksum, payload_bytes } == expected(record)
}

fn expected(record: &Record) -> Expected {
    let Record { namespace, key, generation, checksum, payload_bytes, .. } = *record;
    Expected { namespace, key, generation, checksum, payload_bytes }
}

/// Tells a person at a terminal how far it is.
struct Progress {
    regions: u32,
    percent: u32,
    shown: bool,
}

impl Progress {
    fn new(regions: u32) -> Self {
        Self { regions, percent: 0, shown: std::io::stderr().is_terminal() }
    }

    fn show(&mut self, region: u32) {
        let percent = u32::try_from(u64::from(region) * 100 / u64::from(self.regions.max(1))).unwrap_or(0);
        if self.shown && percent >= self.percent + 5 {
            self.percent = percent;
            eprintln!("{percent} %");
        }
    }
}

/// Damage by how it shows.
pub(super) type DamageCounts = BTreeMap<&'static str, u64>;
