//! R4: the parsers of superblock and region header, fed with a million changed blocks each; and whole devices with changed blocks.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that can not go on says so by panicking"
)]

mod common;

use std::sync::Arc;

use cairn_core::{DeviceId, Generation, HEADER_BYTES};
use cairn_ssd::parsers::{parse_region_header, parse_superblock, region_header, seal, superblock};
use cairn_testkit::fault_device::{FaultDevice, Unsynced};
use cairn_testkit::fuzz::Target;
use cairn_testkit::trials::Rig;
use common::{Rig as Device, open, read, scan};

const DEVICE: DeviceId = DeviceId::from_bytes([5; 16]);
/// Bytes of a sealed sector.
const SECTOR_BYTES: usize = 512;

fn block(input: &[u8]) -> &[u8; HEADER_BYTES] {
    input.try_into().expect("inputs keep their length")
}

fn seal_block(input: &mut [u8]) {
    let sealed = seal(*block(input));
    input.copy_from_slice(&sealed);
}

#[test]
fn any_block_is_a_superblock_of_numbers_that_can_be_or_none() {
    let numbers = [[1 << 30, 1 << 20, 1, 1], [1 << 40, 256 << 20, 1 << 20, 65_537], [65_536 + 8192, 8192, 3, 2]];
    let target = Target {
        name: "R4 superblock",
        command: "-p cairn-ssd --test fuzz -- --nocapture any_block_is_a_superblock",
        corpus: numbers.into_iter().map(|numbers| superblock(numbers).to_vec()).collect(),
        fixed: true,
        used_bytes: SECTOR_BYTES,
        seal: &seal_block,
    };
    target.run(1, |input| {
        let Some(found) = parse_superblock(block(input)) else { return Ok(()) };
        let [_, region_bytes, sequence, limit] = found;
        let can_be = region_bytes >= 8192
            && region_bytes % 4096 == 0
            && sequence.max(limit) < u64::MAX / 2
            && parse_superblock(&superblock(found)) == Some(found)
            && seal(*block(input))[..SECTOR_BYTES] == input[..SECTOR_BYTES];
        if can_be { Ok(()) } else { Err(format!("{found:?}")) }
    });
}

#[test]
fn any_block_is_a_region_header_that_fits_its_place_or_none() {
    let (device_bytes, region_bytes) = (65_536 + 4 * (1 << 20), 1 << 20);
    let headers = [(0, 8192, 0), (3, 1 << 19, 77), (1, (1 << 20) - 4096, 1 << 40)];
    let corpus = headers.map(|(region, slot_bytes, since)| {
        region_header(DEVICE, region, slot_bytes, Generation::from_u64(since)).to_vec()
    });
    let target = Target {
        name: "R4 region header",
        command: "-p cairn-ssd --test fuzz -- --nocapture any_block_is_a_region_header",
        corpus: corpus.into(),
        fixed: true,
        used_bytes: SECTOR_BYTES,
        seal: &seal_block,
    };
    target.run(1, |input| {
        for region in 0..4 {
            let found = parse_region_header(block(input), DEVICE, region, device_bytes, region_bytes);
            let Some((slot_bytes, since)) = found else { continue };
            let again = region_header(DEVICE, region, slot_bytes, since);
            let can_be = slot_bytes > 4096
                && slot_bytes % 4096 == 0
                && slot_bytes <= region_bytes - 4096
                && parse_region_header(&again, DEVICE, region, device_bytes, region_bytes) == found;
            if !can_be {
                return Err(format!("{found:?}"));
            }
        }
        Ok(())
    });
}

#[test]
fn any_device_opens_or_is_refused_and_serves_no_wrong_bytes() {
    let rig = Rig {
        name: "R4 device images",
        target: "-p cairn-ssd --test fuzz -- --nocapture any_device_opens",
        trials: 20_000,
        nightly: 1_000_000,
        each: 1,
    };
    let made = Device::new(4);
    let pages: Vec<_> = (1..=12).map(|page| made.put(page, [300, 4300, 8300][page as usize % 3])).collect();
    let image = made.device.image(Unsynced::Kept);
    rig.run(
        || (),
        |(), _, dice| {
            let (mut image, mut sealed) = (image.clone(), false);
            for _ in 0..=dice.place(8) {
                // Mostly where fixed records and headers lie.
                let at = match dice.place(3) {
                    0 => [0, 32_768][dice.place(2)] + dice.place(SECTOR_BYTES),
                    1 => 65_536 * (1 + dice.place(4)) + dice.place(SECTOR_BYTES),
                    _ => dice.place(image.len()),
                };
                let Some(byte) = image.get_mut(at) else { continue };
                *byte = if dice.place(2) == 0 { *byte ^ (1 << dice.place(8)) } else { dice.roll().to_le_bytes()[0] };
                if dice.place(8) == 0 {
                    let start = at - at % HEADER_BYTES;
                    seal_block(&mut image[start..start + HEADER_BYTES]);
                    sealed = true;
                }
            }
            let Ok(tier) = open(Arc::new(FaultDevice::from_image(image))) else { return Ok(()) };
            scan(&tier);
            // The reader checks the bytes of what it is given.
            let served = pages.iter().filter(|page| read(&tier, page).is_ok()).count();
            // A sealed block may say anything, such as another secret of the device.
            if !sealed && served + 9 < pages.len() {
                Err(format!("of 12 pages {served} are left after nine changes"))
            } else {
                Ok(())
            }
        },
    );
}
