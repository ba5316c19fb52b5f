//! Where things lie: pure arithmetic on the numbers of `docs/FORMAT.md` section 2.

use cairn_core::{HEADER_BYTES, SlotId};

/// Everything starts at a multiple of this: headers of all kinds take one block.
pub(crate) const BLOCK_BYTES: u64 = HEADER_BYTES as u64;
/// Bytes before the first region.
pub(crate) const FRONT_BYTES: u64 = 65_536;
/// Where the two superblocks lie.
pub(crate) const SUPERBLOCKS_AT: [u64; 2] = [0, 32_768];

/// Bytes of the slot of a page of `page_bytes`: header, payload, and zeros up to a whole block. `None` for a page of 0 bytes and for one
/// that no disk could hold.
pub fn slot_bytes(page_bytes: u64) -> Option<u64> {
    if page_bytes == 0 {
        return None;
    }
    page_bytes.checked_next_multiple_of(BLOCK_BYTES)?.checked_add(BLOCK_BYTES)
}

/// How a device is cut into regions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) region_bytes: u64,
    pub(crate) regions: u32,
}

impl Layout {
    /// Whether a device can be cut into regions of this size.
    pub(crate) fn is_region_size(region_bytes: u64) -> bool {
        region_bytes.is_multiple_of(BLOCK_BYTES) && region_bytes >= 2 * BLOCK_BYTES
    }

    /// Cuts a device; `region_bytes` is not 0.
    pub(crate) fn of(device_bytes: u64, region_bytes: u64) -> Self {
        let regions = device_bytes.saturating_sub(FRONT_BYTES) / region_bytes;
        Self { region_bytes, regions: u32::try_from(regions).unwrap_or(u32::MAX) }
    }

    /// Bytes of all regions.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.region_bytes * u64::from(self.regions)
    }

    /// Bytes of a region that slots can have.
    pub(crate) fn slot_space_bytes(&self) -> u64 {
        self.region_bytes - BLOCK_BYTES
    }

    /// The largest page that fits a region.
    pub(crate) fn page_bytes_max(&self) -> u64 {
        self.slot_space_bytes() - BLOCK_BYTES
    }

    /// Slots of a region that is cut into slots of `slot_bytes`.
    pub(crate) fn slots(&self, slot_bytes: u64) -> u32 {
        u32::try_from(self.slot_space_bytes() / slot_bytes.max(1)).unwrap_or(u32::MAX)
    }

    /// Where a region's header lies.
    pub(crate) fn region_at(&self, region: u32) -> u64 {
        FRONT_BYTES + self.region_bytes * u64::from(region)
    }

    /// Where a slot lies; `None` if there is no such slot.
    pub(crate) fn slot_at(&self, slot: SlotId, slot_bytes: u64) -> Option<u64> {
        let exists = slot.region < self.regions && slot.slot < self.slots(slot_bytes);
        exists.then(|| self.region_at(slot.region) + BLOCK_BYTES + slot_bytes * u64::from(slot.slot))
    }
}
