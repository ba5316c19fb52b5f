//! The parsers of the sealed sectors, one by one, for their fuzzer. Built with the feature `testkit` only.

use cairn_core::{DeviceId, Generation, HEADER_BYTES, HeaderKey};

use crate::block::Block;
use crate::layout::Layout;
use crate::region::{self, Cut};
use crate::sector;
use crate::superblock::{Half, Run, Superblock};

/// A superblock with these numbers, sealed: device_bytes, region_bytes, sequence, generation limit.
pub fn superblock(numbers: [u64; 4]) -> [u8; HEADER_BYTES] {
    let [device_bytes, region_bytes, sequence, generation_limit] = numbers;
    let (device, header_key) = (DeviceId::from_bytes([7; 16]), HeaderKey::from_bytes([9; 32]));
    let run = Run { number: sequence / 2, clean: false };
    Superblock { sequence, device, header_key, device_bytes, region_bytes, generation_limit, run }
        .encode()
        .array()
        .to_owned()
}

/// The numbers in a superblock, if it is one; its layout is computed too, as an opening would.
pub fn parse_superblock(block: &[u8; HEADER_BYTES]) -> Option<[u64; 4]> {
    let Half::Whole(found) = Superblock::decode(&Block::of(block)) else { return None };
    let layout = found.layout();
    let _ = (layout.capacity_bytes(), layout.page_bytes_max(), layout.region_at(layout.regions));
    Some([found.device_bytes, found.region_bytes, found.sequence, found.generation_limit])
}

/// The header of region `region` of a device, sealed.
pub fn region_header(device: DeviceId, region: u32, slot_bytes: u64, since: Generation) -> [u8; HEADER_BYTES] {
    *region::encode(device, region, slot_bytes, since).array()
}

/// The size of the slots and the lowest generation in the header of region `region` of a device, if it is one.
pub fn parse_region_header(
    block: &[u8; HEADER_BYTES],
    device: DeviceId,
    region: u32,
    device_bytes: u64,
    region_bytes: u64,
) -> Option<(u64, Generation)> {
    match region::decode(&Block::of(block), &Layout::of(device_bytes, region_bytes), device, region) {
        Cut::Slots { slot_bytes, since } => Some((slot_bytes, since)),
        Cut::Unused | Cut::Unknown => None,
    }
}

/// Seals a block, whatever is in it.
pub fn seal(block: [u8; HEADER_BYTES]) -> [u8; HEADER_BYTES] {
    *sector::seal(Block::of(&block)).array()
}
