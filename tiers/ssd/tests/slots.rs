//! Slots and regions: who may have them when, and what ends all writing.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that can not go on says so by panicking")]

mod common;

use cairn_core::{Error, ErrorKind, SlotId};
use cairn_ssd::SsdError;
use cairn_testkit::fault_device::Fault;
use common::{Rig, facts, scan};

#[test]
fn a_full_tier_says_none_until_a_region_is_empty() {
    let rig = Rig::new(1);
    let pages: Vec<_> = (0..7).map(|number| rig.put(number, 4_096)).collect();
    assert_eq!(rig.tier.reserve(4_096).unwrap(), None);
    assert_eq!(rig.tier.available(4_096, 10), 0);
    assert_eq!((rig.tier.used_bytes(), rig.metrics.ssd_used_bytes.get()), (7 * 8_192, 7 * 8_192));
    rig.tier.free(pages[3].slot);
    assert_eq!(rig.tier.reserve(4_096).unwrap(), None, "a region is filled once");
    assert_eq!((rig.tier.used_bytes(), rig.metrics.ssd_dead_bytes.get()), (6 * 8_192, 8_192));
    pages.iter().for_each(|page| rig.tier.free(page.slot));
    assert_eq!((rig.tier.used_bytes(), rig.metrics.ssd_dead_bytes.get()), (0, 0));
    assert_eq!(rig.tier.reserve(4_096).unwrap(), Some(pages[0].slot));
}

#[test]
fn a_page_that_no_region_can_hold_is_refused_clearly() {
    let rig = Rig::new(1);
    assert_eq!(rig.tier.page_bytes_max(), 57_344);
    for page_bytes in [0, 57_345, u64::MAX] {
        let error = rig.tier.reserve(page_bytes).unwrap_err();
        assert!(matches!(error, SsdError::PageBytes { .. }));
        assert_eq!(Error::from(error).kind(), ErrorKind::Invalid);
    }
    assert_eq!(rig.tier.used_bytes(), 0);
}

#[test]
fn a_region_is_used_by_another_page_size_when_its_last_page_is_gone() {
    let rig = Rig::new(1);
    let small: Vec<_> = (0..7).map(|number| rig.put(number, 4_096)).collect();
    assert_eq!(rig.tier.reserve(20_000).unwrap(), None);
    small.iter().for_each(|page| rig.tier.free(page.slot));
    let large = rig.put(50, 20_000);
    rig.tier.barrier().unwrap();
    rig.get(&large).unwrap();
    let again = rig.reopen();
    let (found, _) = scan(&again.tier);
    assert_eq!(found.len(), 1, "headers of the earlier pages are not taken for pages");
    assert_eq!(found[0].key, large.facts.key);
    assert!(!again.tier.claim(large.slot, 4_096), "a record of the earlier size is refused");
    assert!(again.tier.claim(large.slot, 20_000));
    assert!(!again.tier.claim(large.slot, 20_000), "a slot has one owner");
}

#[test]
fn pages_of_an_earlier_cut_of_a_region_are_not_found_in_the_new_one() {
    let rig = Rig::new(1);
    let small: Vec<_> = (0..7).map(|number| rig.put(number, 4_096)).collect();
    small.iter().for_each(|page| rig.tier.free(page.slot));
    // The first slot begins at the same place in both, and nothing is written into it yet.
    rig.tier.reserve(20_000).unwrap().unwrap();
    let (found, report) = scan(&rig.reopen().tier);
    assert_eq!(found, []);
    assert!(report.damaged_slots > 0);
}

#[test]
fn a_slot_freed_while_it_is_read_is_not_handed_out_before_the_last_reader_is_done() {
    let rig = Rig::new(1);
    let page = rig.put(1, 50_000);
    let (first, second) = (rig.tier.pin(page.slot), rig.tier.pin(page.slot));
    rig.tier.free(page.slot);
    assert_eq!(rig.tier.reserve(50_000).unwrap(), None);
    assert_eq!(rig.tier.reserve(500).unwrap(), None, "nor is its region cut for another size");
    drop(first);
    assert!(rig.tier.is_pinned(page.slot));
    rig.get(&page).unwrap();
    assert_eq!(rig.tier.reserve(50_000).unwrap(), None);
    drop(second);
    assert!(!rig.tier.is_pinned(page.slot));
    assert_eq!(rig.tier.used_bytes(), 0);
    assert_eq!(rig.tier.reserve(50_000).unwrap(), Some(page.slot));
}

#[test]
fn a_wiped_page_is_not_found_by_a_scan() {
    let rig = Rig::new(1);
    let (page, other) = (rig.put(1, 500), rig.put(2, 500));
    rig.tier.wipe(page.slot).unwrap();
    rig.tier.barrier().unwrap();
    let (found, report) = scan(&rig.reopen().tier);
    assert_eq!(found.iter().map(|header| header.key).collect::<Vec<_>>(), [other.facts.key]);
    assert_eq!(report.damaged_slots, 0);
}

#[test]
fn a_write_goes_only_into_a_slot_reserved_for_that_size() {
    let rig = Rig::new(2);
    let page = rig.put(1, 500);
    for (slot, page_bytes) in [
        (page.slot, 5_000),
        (SlotId { region: 1, slot: 0 }, 500),
        (SlotId { region: 9, slot: 0 }, 500),
        (SlotId { region: 0, slot: 999 }, 500),
    ] {
        let outcome = rig.tier.write(slot, &facts(2, page_bytes), &vec![1; page_bytes]);
        assert!(matches!(outcome, Err(SsdError::NotReserved { .. })));
    }
    let orphan = cairn_ssd::PageFacts { parent: None, position: 3, ..facts(0, 500) };
    assert!(matches!(rig.tier.write(page.slot, &orphan, &[0; 500]), Err(SsdError::Parent { position: 3 })));
    rig.get(&page).unwrap();
    assert!(!rig.tier.is_write_quarantined());
}

#[test]
fn after_a_failed_barrier_nothing_is_written_and_everything_is_read() {
    let rig = Rig::new(1);
    let page = rig.put(1, 500);
    rig.tier.barrier().unwrap();
    rig.device.inject(Fault::FailBarrier);
    assert!(matches!(rig.tier.barrier(), Err(SsdError::Device(_))));
    let steps = rig.device.steps();
    assert!(matches!(rig.tier.barrier(), Err(SsdError::WriteQuarantined)));
    assert!(matches!(rig.tier.reserve(500), Err(SsdError::WriteQuarantined)));
    assert!(matches!(common::write(&rig.tier, page.slot, 1, 500), Err(SsdError::WriteQuarantined)));
    assert!(matches!(rig.tier.wipe(page.slot), Err(SsdError::WriteQuarantined)));
    assert_eq!(rig.device.steps(), steps, "the device was not asked again");
    assert_eq!(rig.metrics.ssd_write_quarantined.get(), 1);
    rig.get(&page).unwrap();
    let again = rig.reopen();
    assert_eq!(again.metrics.ssd_write_quarantined.get(), 0);
    again.put(2, 500);
}

#[test]
fn a_failed_write_ends_writing_and_leaves_the_slot_to_be_freed() {
    for fault in [Fault::FailWrite, Fault::ShortWrite { kept_bytes: 700 }] {
        let rig = Rig::new(1);
        let page = rig.put(1, 500);
        let slot = rig.tier.reserve(500).unwrap().unwrap();
        rig.device.inject(fault);
        assert!(matches!(common::write(&rig.tier, slot, 2, 500), Err(SsdError::Device(_))));
        assert!(rig.tier.is_write_quarantined());
        rig.tier.free(slot);
        assert_eq!(rig.tier.used_bytes(), 8_192);
        rig.get(&page).unwrap();
    }
}

#[test]
fn a_region_that_can_not_be_opened_takes_no_slot() {
    let rig = Rig::new(2);
    rig.device.inject(Fault::FailWrite);
    assert!(matches!(rig.tier.reserve(500), Err(SsdError::Device(_))));
    assert_eq!(rig.tier.used_bytes(), 0);
}

#[test]
fn every_byte_written_is_counted() {
    let rig = Rig::new(1);
    assert_eq!(rig.metrics.ssd_written_bytes.get(), 0);
    rig.put(1, 5_000);
    // Region header; two superblocks for the first generations; header, payload and tail.
    assert_eq!(rig.metrics.ssd_written_bytes.get(), 4_096 + 2 * 4_096 + 4_096 + 8_192);
    rig.put(2, 5_000);
    assert_eq!(rig.metrics.ssd_written_bytes.get(), 5 * 4_096 + 8_192 + 4_096 + 4_096);
}
