//! Reading every page's header, for a rebuild of a lost directory.

use cairn_core::{HeaderFault, PageHeader, SlotId};

use crate::block::Block;
use crate::layout::slot_bytes;
use crate::region::Cut;
use crate::tier::SsdTier;

/// What a scan found.
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

impl SsdTier {
    /// Calls `visit` with the header of every page on the device, in the order of their slots. Blocks; reads one block a slot and nothing of
    /// the payloads, with one block of memory. To be called before anything is written: what is being written meanwhile may be missed.
    ///
    /// The same page may appear twice; the higher generation counts. Whether a payload is whole shows when it is read.
    pub fn scan_headers(&self, visit: &mut dyn FnMut(PageHeader)) -> ScanReport {
        let mut report = ScanReport::default();
        for region in 0..self.layout.regions {
            match self.cut(region) {
                Cut::Slots(slot_bytes) => self.scan_region(region, slot_bytes, visit, &mut report),
                Cut::Unknown => report.damaged_regions += 1,
                Cut::Unused => {}
            }
        }
        report
    }

    fn scan_region(&self, region: u32, cut_bytes: u64, visit: &mut dyn FnMut(PageHeader), report: &mut ScanReport) {
        let mut block = Block::empty();
        for slot in 0..self.layout.slots(cut_bytes) {
            let slot = SlotId { region, slot };
            let Some(at) = self.layout.slot_at(slot, cut_bytes) else { return };
            if self.disk.read(at, &mut [&mut block]).is_err() {
                report.unreadable_slots += 1;
                continue;
            }
            match PageHeader::decode(block.array(), &self.header_key, self.device, slot) {
                // A header of another length is left from a time when the region was cut otherwise.
                Ok(header) if slot_bytes(header.payload_bytes) == Some(cut_bytes) => {
                    report.pages += 1;
                    visit(header);
                }
                Err(HeaderFault::Absent) => report.empty_slots += 1,
                Ok(_) | Err(_) => report.damaged_slots += 1,
            }
        }
    }
}
