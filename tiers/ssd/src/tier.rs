//! The tier: opening, runs, and verified reads and writes of pages. Slots and their regions are in [`regions`].
//!
//! Locks: `cuts` is held over the opening of a region, so that no slot of it is used before its header is durable, and over its trimming, so
//! that it is not opened meanwhile; only by whoever writes. Slots and pins have a lock of their own that is never held over I/O: [`SsdTier::pin`], [`SsdTier::free`] and
//! the other calls that say so do not block.

use std::sync::Arc;

use cairn_core::metrics::{Damage, Metrics};
use cairn_core::{
    Checksum, Clock, DeviceId, Entropy, Generation, HeaderFault, HeaderKey, NamespaceId, PageHeader, PageKey, SlotId,
};

use crate::block::{self, Block, EMPTY};
use crate::device::{Device, DeviceError};
use crate::disk::Disk;
use crate::error::{ReadFault, SsdError};
use crate::layout::{FRONT_BYTES, Layout, slot_bytes};
use crate::region::{self, Cut};
use crate::slots::{ReadPin, Slots};
use crate::superblock::{Run, Superblock, Superblocks};
use crate::sync::Mutex;

mod regions;

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
    /// Regions that were trimmed, and no good barrier has followed: what they held may be there after a crash.
    trimmed: Mutex<Vec<u32>>,
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
            run: Run::default(),
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

    /// Opens a formatted device to look at it: repairs nothing, writes nothing. What it says is what [`SsdTier::open`] would go by. A device that
    /// is smaller than it was is looked at as far as it reaches.
    ///
    /// # Errors
    /// As [`SsdTier::open`].
    pub fn open_to_look(components: SsdComponents) -> Result<Self, SsdError> {
        let disk = Disk::new(components.device, components.clock, components.metrics);
        let superblocks = Superblocks::look(&disk)?;
        Ok(Self::with(disk, superblocks))
    }

    fn with(disk: Disk, superblocks: Superblocks) -> Self {
        let current = superblocks.current();
        let layout = current.layout();
        let cuts = Mutex::new(region::read_all(&disk, &layout, current.device));
        let slots = Slots::new(&layout, Arc::clone(&disk.metrics));
        Self {
            disk,
            superblocks,
            device: current.device,
            header_key: current.header_key,
            layout,
            slots,
            cuts,
            trimmed: Mutex::default(),
        }
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
        let before = self.trimmed.lock().len();
        self.disk.barrier()?;
        self.trimmed.lock().drain(..before);
        Ok(())
    }

    /// Reads the page in a pinned slot into `into`, which has exactly the page's length. Blocks. The bytes have been verified when it
    /// returns: header against `expected`, payload against its checksum. On any fault `into` is zeroed.
    ///
    /// # Errors
    /// [`ReadFault`].
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
            return Err(fault);
        }
        self.judge(pin.slot(), expected, &header, into)
    }

    /// Where the page must be, if it is in this slot.
    pub(crate) fn page_at(&self, slot: SlotId, expected: &Expected) -> Result<u64, ReadFault> {
        let at = slot_bytes(expected.payload_bytes).and_then(|slot_bytes| self.layout.slot_at(slot, slot_bytes));
        at.ok_or(ReadFault::Damaged(Damage::OtherPage))
    }

    /// Verifies what came from the device; wipes what came instead, which may be another tenant's.
    pub(crate) fn judge(
        &self,
        slot: SlotId,
        expected: &Expected,
        header: &Block,
        payload: &mut [u8],
    ) -> Result<(), ReadFault> {
        let outcome = self.verify(slot, expected, header, payload);
        if outcome.is_err() {
            payload.fill(0);
        }
        outcome
    }

    /// Counts a fault in `ssd_damaged` or `ssd_read_failed`. For whoever has found that the page should have been there: one that was wiped or
    /// freed while it was being read is no damage.
    pub fn note(&self, fault: &ReadFault) {
        match fault {
            ReadFault::Damaged(damage) => self.disk.metrics.ssd_damaged.of(*damage).inc(),
            ReadFault::Device(_) => self.disk.metrics.ssd_read_failed.inc(),
            ReadFault::Buffer { .. } => {}
        }
    }

    fn verify(&self, slot: SlotId, expected: &Expected, header: &Block, payload: &[u8]) -> Result<(), ReadFault> {
        let header = PageHeader::decode(header.array(), &self.header_key, self.device, slot)
            .map_err(|fault| ReadFault::Damaged(header_damage(fault)))?;
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

    /// Bytes written to the device through this tier, pages or not, each write counted when it begins, whatever comes of it. Only grows.
    pub fn written_bytes(&self) -> u64 {
        self.disk.written_bytes()
    }

    /// The run that was begun last, in this life of the tier or an earlier one. Does not block.
    pub fn run(&self) -> Run {
        self.superblocks.current().run
    }

    /// Begins the next run. Blocks; durable when it returns: until [`SsdTier::end_run`], whoever opens the device finds that it was not closed.
    ///
    /// # Errors
    /// [`SsdError::WriteQuarantined`], or the device's.
    pub fn begin_run(&self) -> Result<(), SsdError> {
        self.superblocks.set_run(&self.disk, Run { number: self.run().number + 1, clean: false })
    }

    /// Says that the run has ended in order: everything that was acknowledged is on the device and in the directory, and no error was met.
    /// Blocks; durable when it returns.
    ///
    /// # Errors
    /// [`SsdError::WriteQuarantined`], or the device's.
    pub fn end_run(&self) -> Result<(), SsdError> {
        self.superblocks.set_run(&self.disk, Run { clean: true, ..self.run() })
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

    /// Takes writes again after one failed. Blocks on two small writes, each with a barrier, that show whether the device does. For who has
    /// seen to it that no write is under way, and that nothing that was written since the last good barrier was acknowledged.
    ///
    /// # Errors
    /// The device's: it takes no writes still.
    pub fn release_writes(&self) -> Result<(), SsdError> {
        self.disk.release();
        self.shut_doubtful_regions()?;
        // What was not acknowledged may be torn. A rebuild reads the last pages of each span of generations before it believes them, and
        // these are the last of theirs now.
        self.superblocks.begin_span(&self.disk)
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

/// What a header that is none says of its slot.
pub(crate) fn header_damage(fault: HeaderFault) -> Damage {
    match fault {
        HeaderFault::Absent => Damage::HeaderAbsent,
        HeaderFault::Hash => Damage::HeaderHash,
        _ => Damage::HeaderForeign,
    }
}

/// A device that ends before the page does was truncated: the page is lost. After anything else it may be whole.
pub(crate) fn read_fault(error: DeviceError) -> ReadFault {
    match error {
        DeviceError::Short { .. } => ReadFault::Damaged(Damage::Truncated),
        error => ReadFault::Device(error),
    }
}
