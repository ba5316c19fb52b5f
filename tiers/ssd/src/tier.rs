//! The tier: opening, slots, and verified reads and writes of pages.
//!
//! Locks: `cuts` is held by [`SsdTier::reserve`] alone while the server runs, over the opening of a region, so that no slot of it is used
//! before its header is durable. Slots and pins have a lock of their own that is never held over I/O: [`SsdTier::pin`], [`SsdTier::free`] and
//! the other calls that say so do not block.

use std::sync::Arc;

use cairn_core::metrics::{Damage, Metrics};
use cairn_core::{
    Checksum, Clock, DeviceId, Entropy, Generation, HeaderFault, HeaderKey, NamespaceId, PageHeader, PageKey, Place,
    SlotId,
};

use crate::block::{self, Block, EMPTY};
use crate::device::{Device, DeviceError};
use crate::disk::Disk;
use crate::error::{ReadFault, SsdError};
use crate::layout::{BLOCK_BYTES, FRONT_BYTES, Layout, slot_bytes};
use crate::region::{self, Cut};
use crate::slots::{QuarantinedSlot, ReadPin, Slots};
use crate::superblock::{Superblock, Superblocks};
use crate::sync::Mutex;

/// What the tier is built of.
#[derive(Clone, Debug)]
pub struct SsdComponents {
    /// Where the bytes go.
    pub device: Arc<dyn Device>,
    /// Time, for metrics only.
    pub clock: Arc<dyn Clock>,
    /// Where the `ssd_` metrics are counted.
    pub metrics: Arc<Metrics>,
}

/// What a page's header will say of it, besides where it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageFacts {
    /// Namespace of the page.
    pub namespace: NamespaceId,
    /// Key of the page.
    pub key: PageKey,
    /// Key of the page before it; `None` exactly for position 0.
    pub parent: Option<PageKey>,
    /// Position in its chain.
    pub position: u32,
    /// Checksum of its bytes.
    pub checksum: Checksum,
}

/// What a reader knows of the page it asks for; a page that differs in anything is not served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Namespace of the page.
    pub namespace: NamespaceId,
    /// Key of the page.
    pub key: PageKey,
    /// Number of this filling of the slot.
    pub generation: Generation,
    /// Checksum of its bytes.
    pub checksum: Checksum,
    /// Bytes of the page.
    pub payload_bytes: u64,
}

/// A page that is about to be written: where, and what goes in front of it.
pub(crate) struct Prepared {
    pub(crate) at: u64,
    pub(crate) generation: Generation,
    pub(crate) header: Block,
}

/// The SSD tier over one device. Shared by reference; every call may come from any thread.
#[derive(Debug)]
pub struct SsdTier {
    pub(crate) disk: Disk,
    superblocks: Superblocks,
    pub(crate) device: DeviceId,
    pub(crate) header_key: HeaderKey,
    pub(crate) layout: Layout,
    slots: Arc<Slots>,
    /// What each region's header on the device says.
    cuts: Mutex<Vec<Cut>>,
}

impl SsdTier {
    /// Formats a blank device with regions of `region_bytes` and opens it. Blocks; durable when it returns. After a crash in between, the
    /// device is blank still, or formatted.
    ///
    /// # Errors
    /// [`SsdError::NotBlank`] if either superblock holds anything, [`SsdError::RegionBytes`], [`SsdError::TooSmall`], or the device's.
    pub fn format(components: SsdComponents, region_bytes: u64, entropy: &dyn Entropy) -> Result<Self, SsdError> {
        if !Layout::is_region_size(region_bytes) {
            return Err(SsdError::RegionBytes { region_bytes });
        }
        let device_bytes = components.device.bytes();
        let needed_bytes = region_bytes.saturating_add(FRONT_BYTES);
        if device_bytes < needed_bytes {
            return Err(SsdError::TooSmall { device_bytes, needed_bytes });
        }
        let (mut id, mut key) = ([0; 16], [0; 32]);
        entropy.fill(&mut id).map_err(SsdError::Entropy)?;
        entropy.fill(&mut key).map_err(SsdError::Entropy)?;
        let first = Superblock {
            sequence: 0,
            device: DeviceId::from_bytes(id),
            header_key: HeaderKey::from_bytes(key),
            device_bytes,
            region_bytes,
            generation_limit: 1,
        };
        let disk = Disk::new(components.device, components.clock, components.metrics);
        let superblocks = Superblocks::format(&disk, first)?;
        Ok(Self::with(disk, superblocks))
    }

    /// Opens a formatted device, with every slot free: [`SsdTier::claim`] those that hold pages before the first [`SsdTier::reserve`].
    /// Blocks; reads one block a region. Repairs a superblock that is damaged or behind; takes in the new regions of a device that has grown.
    ///
    /// # Errors
    /// [`SsdError::Blank`] if it is to be formatted; [`SsdError::ForeignVersion`], [`SsdError::SuperblocksDamaged`] or
    /// [`SsdError::Smaller`], which leave it untouched; or the device's.
    pub fn open(components: SsdComponents) -> Result<Self, SsdError> {
        let disk = Disk::new(components.device, components.clock, components.metrics);
        let superblocks = Superblocks::open(&disk)?;
        Ok(Self::with(disk, superblocks))
    }

    fn with(disk: Disk, superblocks: Superblocks) -> Self {
        let current = superblocks.current();
        let layout = current.layout();
        let cuts = Mutex::new(region::read_all(&disk, &layout, current.device));
        let slots = Slots::new(&layout, Arc::clone(&disk.metrics));
        Self { disk, superblocks, device: current.device, header_key: current.header_key, layout, slots, cuts }
    }

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
        let Some(Place { slot, opened }) = self.slots.take(slot_bytes) else { return Ok(None) };
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

    /// Holds a slot for a reader. Does not block. Taken under the lock under which the slot was found, so that it is not freed in between.
    pub fn pin(&self, slot: SlotId) -> ReadPin {
        self.slots.pin(slot)
    }

    /// Whether any reader holds the slot. Does not block.
    pub fn is_pinned(&self, slot: SlotId) -> bool {
        self.slots.is_pinned(slot)
    }

    /// Writes a page into a reserved slot: header, payload and zero tail in one write, from where they are. Blocks. Readable at once, durable
    /// after the next [`SsdTier::barrier`]. Returns the generation of this filling, which was never used before.
    ///
    /// # Errors
    /// [`SsdError::NotReserved`], [`SsdError::Parent`], [`SsdError::WriteQuarantined`], or the device's: the slot's content is then unknown
    /// and the tier takes no more writes.
    pub fn write(&self, slot: SlotId, facts: &PageFacts, payload: &[u8]) -> Result<Generation, SsdError> {
        let Prepared { at, generation, header } = self.prepare(slot, facts, payload.len() as u64)?;
        let tail = payload.len().next_multiple_of(block::BYTES) - payload.len();
        self.disk.write(at, &[&header, payload, &EMPTY[..tail]])?;
        Ok(generation)
    }

    /// Gives a reserved slot its next generation, and makes the header of the page that will be in it.
    pub(crate) fn prepare(&self, slot: SlotId, facts: &PageFacts, payload_bytes: u64) -> Result<Prepared, SsdError> {
        if facts.parent.is_some() != (facts.position > 0) {
            return Err(SsdError::Parent { position: facts.position });
        }
        let slot_bytes = self.fitting(payload_bytes)?;
        let at = self.taken_at(slot, slot_bytes);
        let at = at.ok_or(SsdError::NotReserved { slot, page_bytes: payload_bytes })?;
        let generation = self.superblocks.next_generation(&self.disk)?;
        let PageFacts { namespace, key, parent, position, checksum } = *facts;
        let header = PageHeader {
            device: self.device,
            slot,
            namespace,
            key,
            parent,
            position,
            generation,
            payload_bytes,
            checksum,
        };
        let mut block = Block::empty();
        header.encode(&self.header_key, block.array_mut());
        Ok(Prepared { at, generation, header: block })
    }

    /// Returns when everything written before is durable. Blocks; one at a time.
    ///
    /// # Errors
    /// [`SsdError::WriteQuarantined`] or the device's: nothing written since the last good barrier may be acknowledged.
    pub fn barrier(&self) -> Result<(), SsdError> {
        self.disk.barrier()
    }

    /// Reads the page in a pinned slot into `into`, which has exactly the page's length. Blocks. The bytes have been verified when it
    /// returns: header against `expected`, payload against its checksum. On any fault `into` is zeroed.
    ///
    /// # Errors
    /// [`ReadFault`], counted here in `ssd_damaged` or `ssd_read_failed`, and nowhere else.
    pub fn read(&self, pin: &ReadPin, expected: &Expected, into: &mut [u8]) -> Result<(), ReadFault> {
        let buffer_bytes = into.len() as u64;
        if buffer_bytes != expected.payload_bytes {
            return Err(ReadFault::Buffer { page_bytes: expected.payload_bytes, buffer_bytes });
        }
        let mut header = Block::empty();
        let place = self.page_at(pin.slot(), expected);
        let read = place.and_then(|at| self.disk.read(at, &mut [&mut header, &mut *into]).map_err(read_fault));
        if let Err(fault) = read {
            into.fill(0);
            self.note(&fault);
            return Err(fault);
        }
        self.judge(pin.slot(), expected, &header, into)
    }

    /// Where the page must be, if it is in this slot.
    pub(crate) fn page_at(&self, slot: SlotId, expected: &Expected) -> Result<u64, ReadFault> {
        let at = slot_bytes(expected.payload_bytes).and_then(|slot_bytes| self.layout.slot_at(slot, slot_bytes));
        at.ok_or(ReadFault::Damaged(Damage::OtherPage))
    }

    /// Verifies what came from the device; counts a fault, and wipes what came instead, which may be another tenant's.
    pub(crate) fn judge(
        &self,
        slot: SlotId,
        expected: &Expected,
        header: &Block,
        payload: &mut [u8],
    ) -> Result<(), ReadFault> {
        let outcome = self.verify(slot, expected, header, payload);
        if let Err(fault) = &outcome {
            payload.fill(0);
            self.note(fault);
        }
        outcome
    }

    /// Counts a fault.
    pub(crate) fn note(&self, fault: &ReadFault) {
        match fault {
            ReadFault::Damaged(damage) => self.disk.metrics.ssd_damaged.of(*damage).inc(),
            ReadFault::Device(_) => self.disk.metrics.ssd_read_failed.inc(),
            ReadFault::Buffer { .. } => {}
        }
    }

    fn verify(&self, slot: SlotId, expected: &Expected, header: &Block, payload: &[u8]) -> Result<(), ReadFault> {
        let header = PageHeader::decode(header.array(), &self.header_key, self.device, slot).map_err(|fault| {
            ReadFault::Damaged(match fault {
                HeaderFault::Absent => Damage::HeaderAbsent,
                HeaderFault::Hash => Damage::HeaderHash,
                _ => Damage::HeaderForeign,
            })
        })?;
        let PageHeader { namespace, key, generation, checksum, payload_bytes, .. } = header;
        if (Expected { namespace, key, generation, checksum, payload_bytes }) != *expected {
            return Err(ReadFault::Damaged(Damage::OtherPage));
        }
        if Checksum::of(payload) != expected.checksum {
            return Err(ReadFault::Damaged(Damage::Payload));
        }
        Ok(())
    }

    /// Overwrites the header in a taken slot with zeros, so that a rebuild from headers never finds the page again. Blocks; durable after
    /// the next [`SsdTier::barrier`]. A reader that holds the slot meanwhile may find the page damaged.
    ///
    /// # Errors
    /// [`SsdError::NotReserved`] if the slot is not in a region in use, [`SsdError::WriteQuarantined`], or the device's.
    pub fn wipe(&self, slot: SlotId) -> Result<(), SsdError> {
        let slot_bytes = self.slots.slot_bytes(slot.region).unwrap_or(0);
        let at = self.layout.slot_at(slot, slot_bytes).filter(|_| slot_bytes > 0);
        let at = at.ok_or(SsdError::NotReserved { slot, page_bytes: 0 })?;
        self.disk.write(at, &[&EMPTY])
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

    /// Bytes written to the device through this tier, pages or not, each write counted when it begins, whatever comes of it. Only grows.
    pub fn written_bytes(&self) -> u64 {
        self.disk.written_bytes()
    }

    /// Slots for pages of `page_bytes` that one region can be cut into.
    pub fn slots_in_region(&self, page_bytes: u64) -> u64 {
        self.fitting(page_bytes).map_or(0, |slot_bytes| self.layout.slot_space_bytes() / slot_bytes)
    }

    /// The device's id, made when it was formatted.
    pub fn device_id(&self) -> DeviceId {
        self.device
    }

    /// The largest page that fits a region, in bytes.
    pub fn page_bytes_max(&self) -> u64 {
        self.layout.page_bytes_max()
    }

    /// Bytes of all regions.
    pub fn capacity_bytes(&self) -> u64 {
        self.layout.capacity_bytes()
    }

    /// Bytes of the taken slots, counted whole.
    pub fn used_bytes(&self) -> u64 {
        self.slots.used_bytes()
    }

    /// Whether the tier takes no writes because a write or a barrier failed.
    pub fn is_write_quarantined(&self) -> bool {
        self.disk.is_write_quarantined()
    }

    /// What the device is, in words.
    pub fn describe(&self) -> &str {
        self.disk.device.describe()
    }

    /// What the region's header on the device says.
    pub(crate) fn cut(&self, region: u32) -> Cut {
        self.cuts.lock().get(region as usize).copied().unwrap_or(Cut::Unknown)
    }

    fn fitting(&self, page_bytes: u64) -> Result<u64, SsdError> {
        let fits = slot_bytes(page_bytes).filter(|slot_bytes| *slot_bytes <= self.layout.slot_space_bytes());
        fits.ok_or(SsdError::PageBytes { page_bytes, page_bytes_max: self.layout.page_bytes_max() })
    }

    fn taken_at(&self, slot: SlotId, slot_bytes: u64) -> Option<u64> {
        let cut_bytes = self.slots.slot_bytes(slot.region)?;
        self.layout.slot_at(slot, slot_bytes).filter(|_| cut_bytes == slot_bytes)
    }
}

/// A device that ends before the page does was truncated: the page is lost. After anything else it may be whole.
pub(crate) fn read_fault(error: DeviceError) -> ReadFault {
    match error {
        DeviceError::Short { .. } => ReadFault::Damaged(Damage::Truncated),
        error => ReadFault::Device(error),
    }
}
