//! Looking at a device that nobody uses: what each superblock and each slot is, payloads included. Writes nothing.

use cairn_core::metrics::Damage;
use cairn_core::{Checksum, Generation, HeaderFault, PageHeader, SlotId};

use crate::block::{Block, PageMemory};
use crate::layout::slot_bytes;
use crate::region::Cut;
use crate::superblock::{Half, read_copies};
use crate::tier::{Expected, SsdTier, header_damage, read_fault};
use crate::{DeviceError, ReadFault};

/// What one of the two superblocks is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SuperblockState {
    /// Whole; the one with the higher sequence counts.
    Whole {
        /// One more for each write of the pair.
        sequence: u64,
    },
    /// Never written, or wiped.
    Blank,
    /// Of another version.
    Foreign {
        /// Which.
        version: u32,
    },
    /// Anything else.
    Damaged,
    /// The device could not read it.
    Unreadable,
}

/// What a slot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// A page whose header is whole and in its place.
    Page {
        /// What it says.
        header: PageHeader,
        /// Whether the payload is what the header says; `None`: yes.
        fault: Option<Damage>,
    },
    /// A page that is left from an earlier use of the region: nobody believes it.
    Stale,
    /// No header: never written, or wiped.
    Empty,
    /// No whole header.
    Damaged(Damage),
    /// The device could not read it.
    Unreadable,
}

/// What the regions' own headers say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RegionCounts {
    /// Cut into slots.
    pub in_use: u64,
    /// Never used, or trimmed.
    pub unused: u64,
    /// The header is damaged or unreadable.
    pub damaged: u64,
}

impl SsdTier {
    /// What the two superblocks on the device are. Blocks.
    pub fn superblocks(&self) -> [SuperblockState; 2] {
        read_copies(&self.disk).map(|half| match half {
            Half::Whole(superblock) => SuperblockState::Whole { sequence: superblock.sequence },
            Half::Blank => SuperblockState::Blank,
            Half::Foreign { version, .. } => SuperblockState::Foreign { version },
            Half::Damaged => SuperblockState::Damaged,
            Half::Unreadable(_) => SuperblockState::Unreadable,
        })
    }

    /// Calls `visit` with what every slot of every region in use holds, in their order, payloads verified. Blocks; reads all of it, with one
    /// slot of memory.
    pub fn inspect(&self, visit: &mut dyn FnMut(SlotId, Held)) -> RegionCounts {
        let mut counts = RegionCounts::default();
        for region in 0..self.regions() {
            match self.cut(region) {
                Cut::Unused => counts.unused += 1,
                Cut::Unknown => counts.damaged += 1,
                Cut::Slots { slot_bytes, since } => {
                    counts.in_use += 1;
                    for slot in (0..self.layout.slots(slot_bytes)).map(|slot| SlotId { region, slot }) {
                        visit(slot, self.held(slot, slot_bytes, since));
                    }
                }
            }
        }
        counts
    }

    /// Reads the page that `expected` describes and drops its bytes. Blocks.
    ///
    /// # Errors
    /// [`ReadFault`].
    pub fn check(&self, slot: SlotId, expected: &Expected) -> Result<(), ReadFault> {
        let mut memory = PageMemory::new(expected.payload_bytes.min(self.page_bytes_max()));
        self.read(&self.pin(slot), expected, memory.as_mut())
    }

    fn held(&self, slot: SlotId, cut_bytes: u64, since: Generation) -> Held {
        let Some(at) = self.layout.slot_at(slot, cut_bytes) else { return Held::Empty };
        let mut block = Block::empty();
        if let Err(failed) = self.disk.read(at, &mut [&mut block]) {
            return of_failed(failed);
        }
        let header = match PageHeader::decode(block.array(), &self.header_key, self.device, slot) {
            Ok(header) => header,
            Err(HeaderFault::Absent) => return Held::Empty,
            Err(fault) => return Held::Damaged(header_damage(fault)),
        };
        if slot_bytes(header.payload_bytes) != Some(cut_bytes) || header.generation < since {
            return Held::Stale;
        }
        let mut memory = PageMemory::new(header.payload_bytes);
        let payload = memory.as_mut();
        match self.disk.read(at + block.len() as u64, &mut [&mut *payload]) {
            Ok(()) if Checksum::of(payload) == header.checksum => Held::Page { header, fault: None },
            Ok(()) => Held::Page { header, fault: Some(Damage::Payload) },
            Err(failed) => match of_failed(failed) {
                Held::Damaged(fault) => Held::Page { header, fault: Some(fault) },
                other => other,
            },
        }
    }
}

fn of_failed(failed: DeviceError) -> Held {
    match read_fault(failed) {
        ReadFault::Damaged(damage) => Held::Damaged(damage),
        ReadFault::Device(_) | ReadFault::Buffer { .. } => Held::Unreadable,
    }
}
