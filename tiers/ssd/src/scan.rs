//! Reading the headers of pages: for a rebuild of a lost directory, and so that a rebuild never brings back what was cleared.

use std::ops::{AddAssign, Range};

use cairn_core::{Generation, HeaderFault, NamespaceId, PageHeader, SlotId};

use crate::block::{Block, EMPTY};
use crate::error::SsdError;
use crate::layout::slot_bytes;
use crate::look::look_at_each;
use crate::region::Cut;
use crate::tier::{Expected, SsdTier};

/// What a scan found. Those of several parts of a device add up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScanReport {
    /// Pages whose header is whole and in its place.
    pub pages: u64,
    /// Slots without a header: never written, or wiped.
    pub empty_slots: u64,
    /// Slots whose header is damaged, misplaced, or left from another use of the region. Skipped.
    pub damaged_slots: u64,
    /// Slots that the device could not read. Skipped.
    pub unreadable_slots: u64,
    /// Regions whose own header is damaged: their slots can not be found this way.
    pub damaged_regions: u64,
}

impl AddAssign for ScanReport {
    fn add_assign(&mut self, other: Self) {
        self.pages += other.pages;
        self.empty_slots += other.empty_slots;
        self.damaged_slots += other.damaged_slots;
        self.unreadable_slots += other.unreadable_slots;
        self.damaged_regions += other.damaged_regions;
    }
}

/// Headers that a rebuild would find although nothing names them.
#[derive(Debug, Default)]
#[must_use = "they are still there"]
pub struct StaleHeaders {
    at: Vec<u64>,
}

impl StaleHeaders {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.at.len() as u64
    }
}

impl SsdTier {
    /// Calls `visit` with the header of every page in these regions, in the order of their slots. Blocks; reads one block a slot and nothing of
    /// the payloads, several at once if the device is a file. To be called before anything is written: what is being written meanwhile may
    /// be missed.
    ///
    /// The same page may appear twice; the higher generation counts. Whether a payload is whole shows when it is read.
    pub fn scan_headers(&self, regions: Range<u32>, visit: &mut dyn FnMut(PageHeader)) -> ScanReport {
        let regions = regions.start..regions.end.min(self.layout.regions);
        let cuts: Vec<Cut> = regions.clone().map(|region| self.cut(region)).collect();
        let damaged_regions = cuts.iter().filter(|cut| **cut == Cut::Unknown).count() as u64;
        let mut report = ScanReport { damaged_regions, ..ScanReport::default() };
        let places = regions.zip(cuts).flat_map(|(region, cut)| self.places_of(region, cut));
        let look = |Place { slot, at, .. }| self.header_at(at, slot);
        look_at_each(&self.disk, places, look, |place, found| match found {
            // A header of another length, or older than the cut, is left from a time when the region was cut otherwise.
            Ok(header)
                if place.slot_bytes == slot_bytes(header.payload_bytes).unwrap_or(0)
                    && header.generation >= place.since =>
            {
                report.pages += 1;
                visit(header);
            }
            Err(NoHeader::Unreadable) => report.unreadable_slots += 1,
            Err(NoHeader::Fault(HeaderFault::Absent)) => report.empty_slots += 1,
            Ok(_) | Err(NoHeader::Fault(_)) => report.damaged_slots += 1,
        });
        report
    }

    /// Whether each of these pages is whole in its slot, as [`SsdTier::read`] finds it. Blocks; several at once if the device is a file, each with
    /// a page of memory.
    pub fn are_whole(&self, pages: &[(SlotId, Expected)]) -> Vec<bool> {
        let is_whole = |(slot, expected): &(SlotId, Expected)| {
            let mut bytes = vec![0; usize::try_from(expected.payload_bytes).unwrap_or(0)];
            self.read(&self.pin(*slot), expected, &mut bytes).is_ok()
        };
        let mut whole = Vec::with_capacity(pages.len());
        look_at_each(&self.disk, pages, is_whole, |_, is_whole| whole.push(is_whole));
        whole
    }

    /// The slots of a region that is cut so.
    fn places_of(&self, region: u32, cut: Cut) -> impl Iterator<Item = Place> {
        let (slot_bytes, since) = match cut {
            Cut::Slots { slot_bytes, since } => (slot_bytes, since),
            Cut::Unknown | Cut::Unused => (u64::MAX, Generation::default()),
        };
        let slots = (0..self.layout.slots(slot_bytes)).map(move |slot| SlotId { region, slot });
        slots.filter_map(move |slot| {
            let at = self.layout.slot_at(slot, slot_bytes)?;
            Some(Place { slot, at, slot_bytes, since })
        })
    }

    /// Finds every header of `namespace` in the slots that `is_live` does not hold for: copies of pages that were evicted, or never
    /// acknowledged, and that a rebuild would find. Blocks; reads one block for each of these slots, and remembers 8 bytes for each header.
    pub fn stale_headers(&self, namespace: &NamespaceId, is_live: &dyn Fn(SlotId) -> bool) -> StaleHeaders {
        let mut found = StaleHeaders::default();
        for region in 0..self.layout.regions {
            let Cut::Slots { slot_bytes, .. } = self.cut(region) else { continue };
            for slot in (0..self.layout.slots(slot_bytes)).map(|slot| SlotId { region, slot }) {
                let Some(at) = self.layout.slot_at(slot, slot_bytes).filter(|_| !is_live(slot)) else { continue };
                if self.header_at(at, slot).is_ok_and(|header| header.namespace == *namespace) {
                    found.at.push(at);
                }
            }
        }
        found
    }

    /// Wipes the headers that [`SsdTier::stale_headers`] found. Nothing may have been written since. Blocks; durable after the next
    /// [`SsdTier::barrier`].
    ///
    /// # Errors
    /// [`SsdError::WriteQuarantined`], or the device's.
    pub fn wipe_stale(&self, found: StaleHeaders) -> Result<(), SsdError> {
        found.at.into_iter().try_for_each(|at| self.disk.write(at, &[&EMPTY]))
    }

    fn header_at(&self, at: u64, slot: SlotId) -> Result<PageHeader, NoHeader> {
        let mut block = Block::empty();
        self.disk.read(at, &mut [&mut block]).map_err(|_| NoHeader::Unreadable)?;
        PageHeader::decode(block.array(), &self.header_key, self.device, slot).map_err(NoHeader::Fault)
    }
}

/// A slot, and what its region's header says of it.
#[derive(Clone, Copy)]
struct Place {
    slot: SlotId,
    at: u64,
    slot_bytes: u64,
    since: Generation,
}

enum NoHeader {
    Unreadable,
    Fault(HeaderFault),
}
