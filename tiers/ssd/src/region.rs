//! Region headers: what size the slots of each region have.

use cairn_core::{DeviceId, Generation};

use crate::block::Block;
use crate::disk::Disk;
use crate::error::SsdError;
use crate::layout::{BLOCK_BYTES, Layout};
use crate::look::look_at_each;
use crate::sector::{self, Sector};

const MAGIC: [u8; 8] = *b"CAIRNREG";

/// What a region's header on the device says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    /// The region was never used, or has been trimmed since.
    Unused,
    /// The region has slots of this size.
    Slots {
        /// Their size.
        slot_bytes: u64,
        /// Pages of a lower generation are left from an earlier cut.
        since: Generation,
    },
    /// The header is damaged or can not be read. Written anew with the region's next page.
    Unknown,
}

/// Reads the headers of all regions. One that can not be read costs nothing but itself.
pub(crate) fn read_all(disk: &Disk, layout: &Layout, device: DeviceId) -> Vec<Cut> {
    let mut cuts = Vec::with_capacity(layout.regions as usize);
    let look = |region| read(disk, layout, device, region);
    look_at_each(disk, 0..layout.regions, look, |_, cut| cuts.push(cut));
    cuts
}

fn read(disk: &Disk, layout: &Layout, device: DeviceId, region: u32) -> Cut {
    let mut block = Block::empty();
    match disk.read(layout.region_at(region), &mut [&mut block]) {
        Ok(()) => decode(&block, layout, device, region),
        Err(_) => Cut::Unknown,
    }
}

pub(crate) fn decode(block: &Block, layout: &Layout, device: DeviceId, region: u32) -> Cut {
    match sector::look(block, &MAGIC) {
        Sector::Blank => return Cut::Unused,
        Sector::Whole => {}
        Sector::Foreign { .. } | Sector::Damaged => return Cut::Unknown,
    }
    let found = u32::from_le_bytes(sector::take(block, 12));
    let owner = DeviceId::from_bytes(sector::take(block, 16));
    let slot_bytes = u64::from_le_bytes(sector::take(block, 32));
    let possible = slot_bytes.is_multiple_of(BLOCK_BYTES) && slot_bytes > BLOCK_BYTES && layout.slots(slot_bytes) > 0;
    let since = Generation::from_u64(u64::from_le_bytes(sector::take(block, 40)));
    if found == region && owner == device && possible { Cut::Slots { slot_bytes, since } } else { Cut::Unknown }
}

/// Writes a region's header and makes it durable: before the region's first slot of this size is used.
pub(crate) fn write(
    disk: &Disk,
    layout: &Layout,
    device: DeviceId,
    region: u32,
    slot_bytes: u64,
    since: Generation,
) -> Result<(), SsdError> {
    let block = encode(device, region, slot_bytes, since);
    disk.write(layout.region_at(region), &[&block])?;
    disk.barrier()
}

pub(crate) fn encode(device: DeviceId, region: u32, slot_bytes: u64, since: Generation) -> Block {
    let mut block = sector::start(&MAGIC);
    sector::put(&mut block, 12, &region.to_le_bytes());
    sector::put(&mut block, 16, device.as_bytes());
    sector::put(&mut block, 32, &slot_bytes.to_le_bytes());
    sector::put(&mut block, 40, &since.to_u64().to_le_bytes());
    sector::seal(block)
}
