//! The life of a region: filled once, emptied, trimmed, filled again; and bytes in quarantine, which are passed over.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that can not go on says so by panicking")]

mod common;

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use cairn_core::metrics::Damage;
use cairn_ssd::{Device, DeviceError, FileDevice, SsdError};
use cairn_testkit::crowded::Crowded;
use cairn_testkit::fault_device::{FaultDevice, Unsynced};
use common::{FRONT_BYTES, REGION_BYTES, Rig, device_bytes, scan};

const SLOTS: u64 = 7;

#[test]
fn an_emptied_region_is_trimmed_once_and_filled_again() {
    let rig = Rig::new(2);
    let pages: Vec<_> = (0..SLOTS).map(|number| rig.put(number, 4_096)).collect();
    assert!(!rig.tier.trim().unwrap(), "nothing was emptied");
    pages.iter().for_each(|page| rig.tier.free(page.slot));
    assert!(rig.tier.trim().unwrap());
    assert!(!rig.tier.trim().unwrap());
    assert_eq!(rig.metrics.ssd_trimmed_bytes.get(), REGION_BYTES);
    let there = rig.device.peek(FRONT_BYTES, usize::try_from(REGION_BYTES).unwrap());
    assert!(there.iter().all(|byte| *byte == 0));
    let page = rig.put(50, 20_000);
    rig.get(&page).unwrap();
}

#[test]
fn a_region_that_is_filled_again_is_not_trimmed() {
    let rig = Rig::new(1);
    let page = rig.put(1, 4_096);
    rig.tier.free(page.slot);
    let next = rig.put(2, 4_096);
    assert!(!rig.tier.trim().unwrap());
    rig.get(&next).unwrap();
}

#[test]
fn a_region_that_was_emptied_before_a_crash_is_trimmed_after_it() {
    let rig = Rig::new(2);
    let kept = rig.put(1, 4_096);
    let gone = rig.put(2, 20_000);
    rig.tier.barrier().unwrap();
    let again = rig.reopen();
    assert!(again.tier.claim(kept.slot, 4_096));
    again.tier.settle();
    assert!(again.tier.trim().unwrap());
    assert!(!again.tier.trim().unwrap(), "a region with a page is left alone");
    again.get(&kept).unwrap();
    assert!(again.get(&gone).is_err());
}

#[test]
fn a_trim_that_a_crash_undid_brings_no_page_back_once_the_region_is_filled_again() {
    let rig = Rig::new(1);
    let page = rig.put(1, 4_096);
    rig.tier.barrier().unwrap();
    rig.tier.free(page.slot);
    assert!(rig.tier.trim().unwrap());
    let undone = Rig::on(rig.device.image(Unsynced::Lost));
    assert_eq!(scan(&undone.tier).0.len(), 1);
    undone.tier.settle();
    let slot = undone.tier.reserve(4_096).unwrap().unwrap();
    assert_eq!((slot, scan(&undone.reopen().tier).0.len()), (page.slot, 0));
}

#[test]
fn after_a_restart_filling_goes_on_behind_the_last_page() {
    let rig = Rig::new(2);
    let pages: Vec<_> = (0..4).map(|number| rig.put(number, 4_096)).collect();
    rig.tier.barrier().unwrap();
    let again = rig.reopen();
    for page in [&pages[0], &pages[2]] {
        assert!(again.tier.claim(page.slot, 4_096));
    }
    again.tier.settle();
    assert_eq!((again.tier.used_bytes(), again.metrics.ssd_dead_bytes.get()), (2 * 8_192, 8_192));
    assert_eq!(again.tier.reserve(4_096).unwrap(), Some(pages[3].slot));
}

#[test]
fn bytes_in_quarantine_are_passed_over_by_every_page_size_until_they_are_released() {
    let rig = Rig::new(1);
    let pages: Vec<_> = (0..SLOTS).map(|number| rig.put(number, 4_096)).collect();
    rig.tier.quarantine(pages[0].slot, Damage::Payload);
    assert_eq!(rig.tier.quarantined().len(), 1);
    assert_eq!((rig.metrics.ssd_quarantined_bytes.get(), rig.tier.used_bytes()), (8_192, 6 * 8_192));
    pages[1..].iter().for_each(|page| rig.tier.free(page.slot));
    let small: Vec<_> = (10..16).map(|number| rig.put(number, 4_096)).collect();
    assert!(small.iter().all(|page| page.slot != pages[0].slot));
    assert_eq!(rig.tier.reserve(4_096).unwrap(), None);
    small.iter().for_each(|page| rig.tier.free(page.slot));
    // Its first slot would lie over the bad bytes.
    let large = rig.put(50, 20_000);
    assert_eq!(large.slot.slot, 1);
    rig.tier.free(large.slot);
    assert_eq!(rig.tier.release(), 1);
    assert_eq!(rig.put(60, 4_096).slot, pages[0].slot);
    assert_eq!(scan(&rig.reopen().tier).0.len(), 1);
}

#[test]
fn a_region_with_nothing_but_bytes_in_quarantine_holds_no_page() {
    let rig = Rig::new(2);
    let bad = rig.put(1, 50_000);
    rig.tier.quarantine(bad.slot, Damage::HeaderHash);
    assert_eq!(rig.put(2, 50_000).slot.region, 1);
    assert_eq!(rig.tier.reserve(50_000).unwrap(), None);
    assert_eq!(rig.tier.used_bytes(), 57_344);
}

#[test]
fn a_trimmed_region_gives_its_room_back_to_the_filesystem() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let device = Arc::new(FileDevice::open_or_create(&path, device_bytes(4)).unwrap());
    let tier = common::format(device.clone()).unwrap();
    let allocated = || std::fs::metadata(&path).unwrap().blocks() * 512;
    let full = allocated();
    let slot = tier.reserve(20_000).unwrap().unwrap();
    tier.free(slot);
    if !tier.trim().unwrap() || full < device_bytes(4) {
        eprintln!("skipped: the filesystem of {} has no holes", folder.path().display());
        return;
    }
    // The filesystem may need some blocks to note the hole.
    assert!(allocated() < full - REGION_BYTES / 2);
    assert_eq!(tier.reserve(20_000).unwrap(), Some(slot));
    assert!(allocated() >= full, "the room is asked for before the region is filled");
    assert_eq!(device.bytes(), device_bytes(4));
}

#[test]
fn a_full_filesystem_refuses_a_region_without_ending_all_writing() {
    let device = Arc::new(Crowded::new(FaultDevice::new(usize::try_from(device_bytes(2)).unwrap()), true));
    let tier = common::format(device.clone()).unwrap();
    for _ in 0..3 {
        let refused = tier.reserve(4_096).unwrap_err();
        assert!(matches!(refused, SsdError::Device(DeviceError::Full { .. })), "{refused}");
    }
    assert!(!tier.is_write_quarantined());
    assert_eq!(tier.used_bytes(), 0);
    device.set_full(false);
    assert!(tier.reserve(4_096).unwrap().is_some());
}
