//! Damage on the disk is found, named, counted, and costs only the damaged page.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that can not go on says so by panicking")]

mod common;

use cairn_core::metrics::Damage;
use cairn_ssd::ReadFault;
use cairn_testkit::fault_device::{Fault, Unsynced};
use common::{BLOCK_BYTES, REGION_BYTES, Rig, damage, of_header, scan, slot_at};

const PAGE_BYTES: usize = 1_000;

#[test]
fn a_page_comes_back_as_it_was_written_and_is_found_by_a_scan() {
    let sizes = [1, 255, 4_095, 4_096, 4_097, 20_000, 57_344];
    let rig = Rig::new(4);
    let pages: Vec<_> = (0..).zip(sizes).map(|(number, bytes)| rig.put(number, bytes)).collect();
    rig.tier.barrier().unwrap();
    assert!(pages.iter().all(|page| rig.get(page).is_ok()));
    let (found, report) = scan(&rig.reopen().tier);
    assert_eq!(report.pages, 7);
    assert_eq!((report.damaged_slots, report.unreadable_slots, report.damaged_regions), (0, 0, 0));
    for (page, header) in pages.iter().zip(&found) {
        assert_eq!((page.facts, page.expected), (of_header(header).facts, of_header(header).expected));
    }
}

#[test]
fn case_12_a_flip_of_any_bit_of_a_header_is_a_miss_of_that_page_alone() {
    let rig = Rig::new(1);
    let (before, page, after) = (rig.put(1, PAGE_BYTES), rig.put(2, PAGE_BYTES), rig.put(3, PAGE_BYTES));
    let at = slot_at(page.slot, PAGE_BYTES as u64);
    for bit in 0..192 * 8 {
        let (byte, bit) = (at + bit / 8, u8::try_from(bit % 8).unwrap());
        rig.device.flip_bit(byte, bit);
        let found = damage(rig.get(&page));
        assert!(matches!(found, Damage::HeaderAbsent | Damage::HeaderHash), "{found:?}");
        rig.device.flip_bit(byte, bit);
    }
    assert_eq!(rig.damaged(Damage::HeaderAbsent), 64);
    assert_eq!(rig.damaged(Damage::HeaderHash), 184 * 8);
    for page in [before, page, after] {
        rig.get(&page).unwrap();
    }
}

#[test]
fn case_12_a_flip_of_any_bit_of_a_payload_is_a_miss_and_is_counted() {
    let rig = Rig::new(1);
    let page = rig.put(1, PAGE_BYTES);
    let at = slot_at(page.slot, PAGE_BYTES as u64) + BLOCK_BYTES;
    for bit in 0..PAGE_BYTES as u64 * 8 {
        let (byte, bit) = (at + bit / 8, u8::try_from(bit % 8).unwrap());
        rig.device.flip_bit(byte, bit);
        assert_eq!(damage(rig.get(&page)), Damage::Payload);
        rig.device.flip_bit(byte, bit);
    }
    assert_eq!(rig.damaged(Damage::Payload), PAGE_BYTES as u64 * 8);
    rig.get(&page).unwrap();
}

#[test]
fn case_12_a_flip_in_a_region_header_costs_no_page_that_the_directory_knows() {
    let rig = Rig::new(2);
    let page = rig.put(1, PAGE_BYTES);
    let header_at = common::FRONT_BYTES;
    for bit in 0..512 * 8 {
        let (byte, bit) = (header_at + bit / 8, u8::try_from(bit % 8).unwrap());
        rig.device.flip_bit(byte, bit);
        let again = rig.reopen();
        assert_eq!(scan(&again.tier).1.damaged_regions, 1);
        assert!(again.tier.claim(page.slot, PAGE_BYTES as u64));
        again.get(&page).unwrap();
        rig.device.flip_bit(byte, bit);
    }
    rig.device.flip_bit(header_at + 32, 0);
    let again = rig.reopen();
    assert!(again.tier.claim(page.slot, PAGE_BYTES as u64));
    again.put(2, PAGE_BYTES);
    assert_eq!(scan(&again.reopen().tier).1.pages, 2, "the next page repairs the region's header");
}

#[test]
fn a_page_copied_to_another_slot_is_not_served_there() {
    let rig = Rig::new(2);
    let (page, other) = (rig.put(1, PAGE_BYTES), rig.put(2, PAGE_BYTES));
    let (from, to) = (slot_at(page.slot, PAGE_BYTES as u64), slot_at(other.slot, PAGE_BYTES as u64));
    rig.device.copy(from, to, 2 * usize::try_from(BLOCK_BYTES).unwrap());
    assert_eq!(damage(rig.get(&other)), Damage::HeaderForeign);
    assert_eq!(rig.damaged(Damage::HeaderForeign), 1);
    rig.get(&page).unwrap();
    let (found, report) = scan(&rig.reopen().tier);
    assert_eq!((found.len(), report.damaged_slots), (1, 1));
}

#[test]
fn a_page_of_another_device_is_not_served_although_it_is_whole() {
    let (rig, other) = (Rig::new(1), common::blank(1));
    let entropy = cairn_testkit::fault_device::SeededEntropy::new(99);
    cairn_ssd::SsdTier::format(common::components(other.clone()), REGION_BYTES, &entropy).unwrap();
    let other = Rig::over(other);
    let (page, stranger) = (rig.put(1, PAGE_BYTES), other.put(1, PAGE_BYTES));
    let at = slot_at(page.slot, PAGE_BYTES as u64);
    rig.device.overwrite(at, &other.device.peek(slot_at(stranger.slot, PAGE_BYTES as u64), 8_192));
    assert_eq!(damage(rig.get(&page)), Damage::HeaderHash);
}

#[test]
fn an_old_content_of_the_same_slot_is_not_served() {
    let rig = Rig::new(1);
    let old = rig.put(1, PAGE_BYTES);
    let at = slot_at(old.slot, PAGE_BYTES as u64);
    let image = rig.device.peek(at, 8_192);
    rig.tier.free(old.slot);
    let new = rig.put(1, PAGE_BYTES);
    assert_eq!(new.slot, old.slot);
    rig.device.overwrite(at, &image);
    assert_eq!(damage(rig.get(&new)), Damage::OtherPage);
    assert_eq!(rig.damaged(Damage::OtherPage), 1);
}

#[test]
fn a_write_that_the_disk_lost_is_a_miss_of_the_new_page() {
    let rig = Rig::new(1);
    rig.put(1, PAGE_BYTES);
    rig.device.inject(Fault::LoseWrite);
    let page = rig.put(2, PAGE_BYTES);
    assert_eq!(damage(rig.get(&page)), Damage::HeaderAbsent);
}

#[test]
fn a_page_torn_by_a_power_cut_is_a_miss_and_never_served() {
    let rig = Rig::new(1);
    rig.put(1, 20_000);
    rig.tier.barrier().unwrap();
    let page = rig.put(2, 20_000);
    let mut served = 0;
    for seed in 0..300 {
        let image = rig.device.image(Unsynced::Dice(seed));
        let again = Rig::over(std::sync::Arc::new(cairn_testkit::fault_device::FaultDevice::from_image(image)));
        match again.get(&page) {
            Ok(_) => served += 1,
            Err(ReadFault::Damaged(_)) => {}
            Err(fault) => panic!("{fault}"),
        }
    }
    assert!((50..150).contains(&served), "about a third is kept whole, the rest lost or torn: served={served}");
}

#[test]
fn a_header_inside_a_payload_is_never_taken_for_a_page() {
    let rig = Rig::new(2);
    let small = rig.put(1, PAGE_BYTES);
    let forged = rig.device.peek(slot_at(small.slot, PAGE_BYTES as u64), 4_096);
    // A page of the larger size holds true headers wherever a small slot could begin.
    let payload = forged.repeat(4);
    let slot = rig.tier.reserve(payload.len() as u64).unwrap().unwrap();
    let facts = common::facts(3, payload.len());
    rig.tier.write(slot, &facts, &payload).unwrap();
    let (found, report) = scan(&rig.reopen().tier);
    assert_eq!((found.len(), report.damaged_slots), (2, 0));
}

#[test]
fn a_sector_that_can_not_be_read_costs_one_page_and_is_no_damage() {
    let rig = Rig::new(1);
    let (page, other) = (rig.put(1, PAGE_BYTES), rig.put(2, PAGE_BYTES));
    let at = slot_at(page.slot, PAGE_BYTES as u64);
    rig.device.break_sectors(at..at + 512);
    assert!(matches!(rig.get(&page), Err(ReadFault::Device(_))));
    assert_eq!(rig.metrics.ssd_read_failed.get(), 1);
    rig.get(&other).unwrap();
    let (found, report) = scan(&rig.reopen().tier);
    assert_eq!((found.len(), report.unreadable_slots), (1, 1));
}

#[test]
fn a_record_that_names_an_impossible_place_is_a_miss_and_no_panic() {
    let rig = Rig::new(1);
    let page = rig.put(1, PAGE_BYTES);
    for (region, slot) in [(0, u32::MAX), (u32::MAX, 0), (1, 0), (0, 8)] {
        let elsewhere = common::Written { slot: cairn_core::SlotId { region, slot }, ..page };
        assert_eq!(damage(rig.get(&elsewhere)), Damage::OtherPage);
        assert!(!rig.tier.claim(elsewhere.slot, PAGE_BYTES as u64));
        rig.tier.free(cairn_core::SlotId { region: region.max(1), slot });
    }
    assert!(!rig.tier.claim(page.slot, u64::MAX));
    rig.get(&page).unwrap();
}
