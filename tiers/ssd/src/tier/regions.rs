//! Slots and the regions they are in: taken, filled once, emptied, trimmed, out of use.

use cairn_core::metrics::Damage;
use cairn_core::{Generation, Moment, Place, SlotId};

use super::SsdTier;
use crate::block::EMPTY;
use crate::error::SsdError;
use crate::layout::BLOCK_BYTES;
use crate::region::{self, Cut};
use crate::slots::QuarantinedSlot;

impl SsdTier {
    /// Takes a free slot for a page of `page_bytes`; `None` if there is none: something must be evicted. The slot is the caller's until it
    /// [frees](SsdTier::free) it. Blocks; opening a region writes its header and waits for the disk.
    ///
    /// # Errors
    /// [`SsdError::PageBytes`] if no region can hold such a page, [`SsdError::WriteQuarantined`], or the device's; no slot is taken then.
    /// Of these, [`DeviceError::Full`] passes: the next call may find room.
    pub fn reserve(&self, page_bytes: u64) -> Result<Option<SlotId>, SsdError> {
        let slot_bytes = self.fitting(page_bytes)?;
        self.disk.writable()?;
        let mut cuts = self.cuts.lock();
        let Some(Place { slot, opened }) = self.slots.take(slot_bytes, self.disk.clock.now()) else { return Ok(None) };
        if let Err(error) = self.cut_for(slot.region, slot_bytes, opened, &mut cuts[slot.region as usize]) {
            self.slots.free(slot);
            return Err(error);
        }
        Ok(Some(slot))
    }

    /// Makes the region's header say that it has slots of this size.
    fn cut_for(&self, region: u32, slot_bytes: u64, opened: bool, cut: &mut Cut) -> Result<(), SsdError> {
        if matches!(*cut, Cut::Slots { slot_bytes: cut_bytes, .. } if cut_bytes == slot_bytes) && !opened {
            return Ok(());
        }
        if opened {
            // It may have been trimmed, in this life or an earlier one.
            self.disk.allocate(self.layout.region_at(region), self.layout.region_bytes)?;
        }
        // Pages of an earlier filling must not be found again. If the header was damaged, though, the pages in the region are live.
        let since = if opened { self.superblocks.upcoming_generation() } else { Generation::default() };
        *cut = Cut::Unknown;
        region::write(&self.disk, &self.layout, self.device, region, slot_bytes, since)?;
        *cut = Cut::Slots { slot_bytes, since };
        Ok(())
    }

    /// After the last [`SsdTier::claim`]: writes the headers anew that are damaged, of regions in which pages were found, so that a rebuild finds
    /// these too; how many. Blocks; durable when it returns.
    ///
    /// # Errors
    /// [`SsdError::WriteQuarantined`], or the device's.
    pub fn repair_regions(&self) -> Result<u32, SsdError> {
        let mut repaired = 0;
        for (region, cut) in (0..).zip(self.cuts.lock().iter_mut()) {
            if *cut == Cut::Unknown
                && let Some(slot_bytes) = self.slots.slot_bytes(region)
            {
                self.cut_for(region, slot_bytes, false, cut)?;
                repaired += 1;
            }
        }
        Ok(repaired)
    }

    /// After the last [`SsdTier::claim`]: what no page was found in is dead or empty, and regions are filled on behind their last page. Does
    /// not block.
    pub fn settle(&self) {
        let cuts = self.cuts.lock();
        self.slots.settle(|region| !matches!(cuts.get(region as usize), Some(Cut::Unused) | None));
    }

    /// Tells the device that the bytes of one region that was emptied, and has not been filled again, are not needed. False if there is none.
    /// Blocks; durable after the next [`SsdTier::barrier`]: until then a crash may bring back what a scan finds there. Nothing durable may
    /// name a page there, which is so if [`SsdTier::free`] was used as it says.
    ///
    /// # Errors
    /// The device's; the region is as good as before.
    pub fn trim(&self) -> Result<bool, SsdError> {
        // Held over the call, so that the region is not filled meanwhile.
        let mut cuts = self.cuts.lock();
        let Some(region) = self.slots.take_emptied() else { return Ok(false) };
        let at = self.layout.region_at(region);
        self.trimmed.lock().push(region);
        if self.disk.trim(at, self.layout.region_bytes)?
            && let Some(cut) = cuts.get_mut(region as usize)
        {
            *cut = Cut::Unused;
        }
        Ok(true)
    }

    /// Takes the slot that a page of `page_bytes` was found to have, when the tier is opened. False if it is taken already, does not exist, or
    /// its region has slots of another size: what names it is wrong. Does not block.
    pub fn claim(&self, slot: SlotId, page_bytes: u64) -> bool {
        let Ok(slot_bytes) = self.fitting(page_bytes) else { return false };
        let agrees = match self.cuts.lock().get(slot.region as usize) {
            Some(Cut::Slots { slot_bytes: cut_bytes, .. }) => *cut_bytes == slot_bytes,
            // What names the slot is a second witness: a region whose header was lost may be in use. Its pages are verified by who reads them.
            Some(Cut::Unknown | Cut::Unused) => true,
            None => false,
        };
        agrees && self.slots.claim(slot, slot_bytes)
    }

    /// Gives a taken slot back, at once or when its last [`ReadPin`] is dropped. Does not block.
    ///
    /// Only when nothing durable names the slot: the removal of its entry has been committed, or it was never committed. The slot may be
    /// overwritten from now on.
    pub fn free(&self, slot: SlotId) {
        self.slots.free(slot);
    }

    /// The same for a slot whose bytes were found damaged: nothing is written there until it is [released](SsdTier::release).
    pub fn quarantine(&self, slot: SlotId, damage: Damage) {
        self.slots.quarantine(slot, damage);
    }

    /// The slots in quarantine. Does not block.
    pub fn quarantined(&self) -> Vec<QuarantinedSlot> {
        self.slots.quarantined()
    }

    /// Puts the slots in quarantine back in use, each with the next filling of its region; how many. Does not block.
    pub fn release(&self) -> u64 {
        self.slots.release()
    }

    /// Free slots for pages of `page_bytes`, counted up to `enough`. Does not block.
    pub fn available(&self, page_bytes: u64, enough: u64) -> u64 {
        self.fitting(page_bytes).map_or(0, |slot_bytes| self.slots.available(slot_bytes, enough))
    }

    /// Whether `region` is being filled. Does not block.
    pub fn is_open(&self, region: u32) -> bool {
        self.slots.is_open(region)
    }

    /// Lets nothing more be written into `region` before it has been empty. Does not block.
    pub fn drain(&self, region: u32) {
        self.slots.drain(region);
    }

    /// Slots that `region` is cut into; 0 if it is empty. Does not block.
    pub fn slots_of(&self, region: u32) -> u32 {
        self.slots.slot_bytes(region).map_or(0, |slot_bytes| self.layout.slots(slot_bytes))
    }

    /// Bytes of the largest page that a slot of `region` holds; 0 if it is empty. Does not block.
    pub fn page_bytes_in(&self, region: u32) -> u64 {
        self.slots.slot_bytes(region).map_or(0, |slot_bytes| slot_bytes - BLOCK_BYTES)
    }

    /// Regions of the device.
    pub fn regions(&self) -> u32 {
        self.layout.regions
    }

    /// Slots taken in `region`: pages, and slots that are being written or are out of use. Does not block.
    pub fn taken_in(&self, region: u32) -> u32 {
        self.slots.taken_in(region)
    }

    /// Slots taken in all regions. Does not block.
    pub fn taken(&self) -> u64 {
        self.slots.taken()
    }

    /// Slots for pages of `page_bytes` that one region can be cut into.
    pub fn slots_in_region(&self, page_bytes: u64) -> u64 {
        self.fitting(page_bytes).map_or(0, |slot_bytes| self.layout.slot_space_bytes() / slot_bytes)
    }

    /// Calls `visit` for every region that has pages, or slots that are being written or out of use, with the moment at which it was begun to
    /// be filled, if that was since the tier was opened. Does not block.
    pub fn in_use(&self, visit: &mut dyn FnMut(u32, Option<Moment>)) {
        self.slots.in_use(visit);
    }

    /// Lets no scan after a crash look into empty regions of which it is not known what their header on the medium says: the write of it failed,
    /// or the barrier after a trim. What they held may have been cleared.
    pub(super) fn shut_doubtful_regions(&self) -> Result<(), SsdError> {
        let mut cuts = self.cuts.lock();
        let trimmed = self.trimmed.lock().clone();
        for (region, cut) in (0..).zip(cuts.iter_mut()) {
            let is_doubtful = *cut == Cut::Unknown || trimmed.contains(&region);
            if is_doubtful && self.slots.taken_in(region) == 0 {
                self.disk.write(self.layout.region_at(region), &[&EMPTY])?;
                *cut = Cut::Unused;
            }
        }
        Ok(())
    }
}
