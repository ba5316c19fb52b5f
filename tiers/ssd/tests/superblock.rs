//! Opening: what is repaired, what is refused and left alone, and that generations never repeat.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that can not go on says so by panicking")]

mod common;

use std::collections::HashSet;
use std::sync::Arc;

use cairn_core::{Error, ErrorKind};
use cairn_ssd::SsdError;
use cairn_testkit::dice::Dice;
use cairn_testkit::fault_device::{FaultDevice, Unsynced};
use common::{REGION_BYTES, Rig, SUPERBLOCK_A, SUPERBLOCK_B, blank, device_bytes, format, open, scan};

#[test]
fn either_superblock_may_be_damaged_and_is_repaired() {
    for at in [SUPERBLOCK_A, SUPERBLOCK_B] {
        let rig = Rig::new(1);
        let page = rig.put(1, 500);
        for bit in 0..512 * 8 {
            rig.device.flip_bit(at + bit / 8, u8::try_from(bit % 8).unwrap());
            let again = rig.reopen();
            assert!(again.tier.claim(page.slot, 500));
            again.get(&page).unwrap();
        }
        // Each time the copy was written anew, so the other may fail now.
        rig.device.overwrite(SUPERBLOCK_A + SUPERBLOCK_B - at, &[0xff; 512]);
        rig.reopen().get(&page).unwrap();
    }
}

#[test]
fn the_only_whole_superblock_is_not_written_before_the_other_is_whole() {
    for (damaged, whole) in [(SUPERBLOCK_A, SUPERBLOCK_B), (SUPERBLOCK_B, SUPERBLOCK_A)] {
        let device = blank(1);
        format(device.clone()).unwrap();
        device.overwrite(damaged, &[0xff; 512]);
        let before = device.peek(whole, 512);
        device.cut_power_after(1);
        assert!(matches!(open(device.clone()), Err(SsdError::Device(_))));
        assert_eq!(device.peek(whole, 512), before);
    }
}

#[test]
fn two_damaged_superblocks_are_refused_clearly_and_left_alone() {
    let rig = Rig::new(1);
    rig.device.flip_bit(SUPERBLOCK_A + 30, 1);
    rig.device.flip_bit(SUPERBLOCK_B + 100, 7);
    let before = rig.device.image(Unsynced::Kept);
    let error = open(rig.device.clone()).unwrap_err();
    assert!(matches!(error, SsdError::SuperblocksDamaged));
    assert_eq!(Error::from(error).kind(), ErrorKind::Invalid);
    assert!(matches!(format(rig.device.clone()), Err(SsdError::NotBlank)));
    assert!(before == rig.device.image(Unsynced::Kept));
}

#[test]
fn superblocks_overwritten_with_zeros_are_damage_and_not_a_new_device() {
    let rig = Rig::new(1);
    rig.put(1, 500);
    rig.device.overwrite(0, &[0; 65_536]);
    assert!(matches!(open(rig.device.clone()), Err(SsdError::SuperblocksDamaged)));
}

#[test]
fn a_superblock_that_can_not_be_read_is_done_without() {
    let rig = Rig::new(1);
    let page = rig.put(1, 500);
    rig.device.break_sectors(SUPERBLOCK_A..SUPERBLOCK_A + 512);
    rig.reopen().get(&page).unwrap();
    rig.device.break_sectors(SUPERBLOCK_B..SUPERBLOCK_B + 512);
    assert!(matches!(open(rig.device.clone()), Err(SsdError::Device(_))));
}

#[test]
fn a_foreign_version_is_refused_and_not_touched() {
    let rig = Rig::new(1);
    rig.put(1, 500);
    // One copy sealed by the later version, as in the middle of its upgrade; then both of it, unsealed to this version's eyes.
    let mut block = rig.device.peek(SUPERBLOCK_A, 4_096);
    block[8] = 2;
    let seal = cairn_core::Checksum::of(&block[..504]).to_u64();
    block[504..512].copy_from_slice(&seal.to_le_bytes());
    rig.device.overwrite(SUPERBLOCK_A, &block);
    refused_as_foreign(&rig.device);
    rig.device.overwrite(SUPERBLOCK_A + 8, &[3]);
    rig.device.overwrite(SUPERBLOCK_B + 8, &[3]);
    refused_as_foreign(&rig.device);
}

fn refused_as_foreign(device: &Arc<FaultDevice>) {
    let (before, steps) = (device.image(Unsynced::Kept), device.steps());
    assert!(matches!(open(device.clone()), Err(SsdError::ForeignVersion { known: 1, .. })));
    assert!(matches!(format(device.clone()), Err(SsdError::NotBlank)));
    assert_eq!(device.steps(), steps, "nothing was written");
    assert!(before == device.image(Unsynced::Kept));
}

#[test]
fn a_file_of_something_else_is_not_formatted() {
    let device = blank(1);
    device.overwrite(SUPERBLOCK_A, b"someone's photos");
    assert!(matches!(open(device.clone()), Err(SsdError::SuperblocksDamaged)));
    assert!(matches!(format(device), Err(SsdError::NotBlank)));
}

#[test]
fn a_blank_device_says_so_and_sizes_that_can_not_be_are_refused() {
    assert!(matches!(open(blank(1)), Err(SsdError::Blank)));
    assert!(matches!(format(Arc::new(FaultDevice::new(100_000))), Err(SsdError::TooSmall { .. })));
    let entropy = cairn_testkit::fault_device::SeededEntropy::new(1);
    for region_bytes in [0, 1, 4_096, 8_193, u64::MAX] {
        let outcome = cairn_ssd::SsdTier::format(common::components(blank(1)), region_bytes, &entropy);
        assert!(matches!(outcome, Err(SsdError::RegionBytes { .. } | SsdError::TooSmall { .. })));
    }
}

#[test]
fn generations_never_repeat_over_100_openings_without_a_close() {
    let mut rig = Rig::new(1);
    let (mut seen, mut highest) = (HashSet::new(), 0);
    let mut dice = Dice::new(5);
    for opening in 0..100 {
        for number in 0..3 {
            let page = rig.put(number, 500);
            let generation = page.expected.generation.to_u64();
            assert!(seen.insert(generation) && generation > highest, "opening {opening}");
            highest = generation;
            rig.tier.free(page.slot);
        }
        let mut image = rig.device.image(Unsynced::Dice(dice.roll()));
        // The loss of one copy does not bring an old limit back.
        if dice.below(2) == 0 {
            let lost = usize::try_from([SUPERBLOCK_A, SUPERBLOCK_B][dice.place(2)]).unwrap();
            image[lost..lost + 512].fill(0xff);
        }
        rig = Rig::over(Arc::new(FaultDevice::from_image(image)));
    }
}

#[test]
fn more_pages_than_one_step_of_the_limit_are_written_with_ascending_generations() {
    let rig = Rig::new(1);
    let slot = rig.tier.reserve(64).unwrap().unwrap();
    let mut last = 0;
    for _ in 0..70_000 {
        let generation = rig.tier.write(slot, &common::facts(0, 64), &[1; 64]).unwrap().to_u64();
        assert_eq!(generation, last + 1);
        last = generation;
    }
}

#[test]
fn a_larger_device_brings_more_regions_and_keeps_the_pages() {
    let rig = Rig::new(1);
    let page = rig.put(1, 50_000);
    assert_eq!(rig.tier.reserve(50_000).unwrap(), None);
    let mut image = rig.device.image(Unsynced::Kept);
    image.resize(usize::try_from(device_bytes(3)).unwrap(), 0);
    let grown = Rig::over(Arc::new(FaultDevice::from_image(image)));
    assert!(grown.tier.claim(page.slot, 50_000));
    assert_eq!(grown.tier.capacity_bytes(), 3 * REGION_BYTES);
    grown.get(&page).unwrap();
    let more = [grown.put(2, 50_000), grown.put(3, 50_000)];
    let again = grown.reopen();
    more.iter().for_each(|page| drop(again.get(page).unwrap()));
}

#[test]
fn a_smaller_device_is_refused_and_left_alone() {
    let rig = Rig::new(3);
    let mut image = rig.device.image(Unsynced::Kept);
    image.truncate(usize::try_from(device_bytes(2)).unwrap());
    let device = Arc::new(FaultDevice::from_image(image));
    assert!(matches!(open(device.clone()), Err(SsdError::Smaller { .. })));
    assert_eq!(device.steps(), 0);
}

#[test]
fn a_power_cut_at_any_step_of_formatting_leaves_a_device_that_opens_or_is_blank() {
    for (step, seed) in (0..5).flat_map(|step| (0..50).map(move |seed| (step, seed))) {
        let device = blank(1);
        device.cut_power_after(step);
        assert_eq!(format(device.clone()).is_ok(), step >= 4);
        let after = Arc::new(FaultDevice::from_image(device.image(Unsynced::Dice(seed))));
        let tier = match open(after.clone()) {
            Err(SsdError::Blank) => format(after).unwrap(),
            opened => opened.unwrap(),
        };
        assert_eq!(scan(&tier).0.len(), 0);
    }
}
