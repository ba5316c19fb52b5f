//! Damage on the SSD: a miss with a reason, never wrong bytes, and it costs only the damaged page.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use cairn_core::metrics::Damage;
use cairn_core::{Durability, ErrorKind, PageKey, StopReason, Tier};
use cairn_testkit::fault_device::{Fault, FaultDevice};

use crate::rig::{PAGE_BYTES, Rig, chain, find_payload, flip_bit};

/// A rig whose SSD holds a chain of `pages`, and nothing in DRAM.
async fn cold(pages: usize) -> (Rig, Vec<PageKey>) {
    let rig = Rig::new(pages as u64 + 64, pages as u64 + 64);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let keys = chain(&namespace, 1, pages);
    assert_eq!(cairn.put(&namespace, &keys, Durability::Ssd).await.durability, Durability::Ssd);
    drop(cairn);
    (rig, keys)
}

#[tokio::test]
async fn case_12_a_flipped_payload_bit_is_a_miss_and_costs_only_its_page() {
    let (rig, keys) = cold(10).await;
    flip_bit(&rig, find_payload(&rig, &keys[4]) + 5000);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let got = cairn.get(&namespace, &keys).await;
    assert_eq!((got.end.good_pages, got.end.stop), (4, StopReason::Damaged));
    assert_eq!(cairn.metrics.ssd_damaged.of(Damage::Payload).get(), 1);
    // The next one is told so at once; the damage is counted once.
    assert_eq!(cairn.get(&namespace, &keys).await.end.stop, StopReason::NotStored);
    assert_eq!(cairn.metrics.ssd_damaged.of(Damage::Payload).get(), 1);
    // One put of one page mends the chain: the pages after it were kept.
    let put = cairn.begin(&namespace, &keys, Durability::Memory);
    assert_eq!(put.needed(), vec![4..5]);
    drop(put);
    cairn.put(&namespace, &keys, Durability::Ssd).await;
    assert_eq!(cairn.get(&namespace, &keys).await.end.good_pages, 10);
    // For good: also after a restart.
    drop(cairn);
    let cairn = rig.open().await;
    assert_eq!(cairn.get(&cairn.namespace(), &keys).await.end.good_pages, 10);
}

#[tokio::test]
async fn case_12_a_flipped_header_bit_is_a_miss_and_costs_only_its_page() {
    let (rig, keys) = cold(6).await;
    // The header is the block before the payload; byte 100 lies in the key.
    flip_bit(&rig, find_payload(&rig, &keys[2]) - 4096 + 100);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let got = cairn.get(&namespace, &keys).await;
    assert_eq!((got.end.good_pages, got.end.stop), (2, StopReason::Damaged));
    assert_eq!(cairn.metrics.ssd_damaged.of(Damage::HeaderHash).get(), 1);
    drop(cairn);
    // A rebuild from headers skips it and adopts the others.
    std::fs::remove_dir_all(rig.directory_path()).expect("the directory is lost");
    let cairn = rig.open().await;
    assert_eq!(cairn.engine.stats().recovery.pages, 5);
    let namespace = cairn.namespace();
    assert_eq!(cairn.get(&namespace, &keys).await.end.good_pages, 2);
    cairn.put(&namespace, &keys, Durability::Memory).await;
    assert_eq!(cairn.get(&namespace, &keys).await.end.good_pages, 6);
}

#[tokio::test]
async fn a_page_copied_over_another_is_recognised() {
    let (rig, keys) = cold(4).await;
    let (from, to) = (find_payload(&rig, &keys[0]) - 4096, find_payload(&rig, &keys[2]) - 4096);
    let file = OpenOptions::new().read(true).write(true).open(rig.ssd_path()).expect("the SSD file");
    let mut slot = vec![0; 4096 + PAGE_BYTES as usize];
    file.read_exact_at(&mut slot, from).expect("a slot");
    file.write_all_at(&slot, to).expect("copied over another");
    let cairn = rig.open().await;
    let got = cairn.get(&cairn.namespace(), &keys).await;
    assert_eq!((got.end.good_pages, got.end.stop), (2, StopReason::Damaged));
}

#[tokio::test]
async fn case_11_a_truncated_file_loses_what_is_beyond_its_end_and_serves_the_rest() {
    let (rig, keys) = cold(40).await;
    let cairn = rig.open().await;
    let cut = find_payload(&rig, &keys[25]) + PAGE_BYTES / 2;
    OpenOptions::new().write(true).open(rig.ssd_path()).expect("the file").set_len(cut).expect("cut short");
    let namespace = cairn.namespace();
    let got = cairn.get(&namespace, &keys).await;
    assert_eq!((got.end.good_pages, got.end.stop), (25, StopReason::Damaged));
    assert!(cairn.metrics.ssd_damaged.of(Damage::Truncated).get() >= 1);
    // Others are served, and new pages too, from memory if need be.
    let others = chain(&namespace, 2, 10);
    assert_eq!(cairn.put(&namespace, &others, Durability::Memory).await.good_pages, 10);
    assert_eq!(cairn.get(&namespace, &others).await.end.good_pages, 10);
}

#[tokio::test]
async fn case_31_pages_behind_a_gap_are_not_read_and_go_before_useful_ones() {
    let (mut rig, keys) = cold(128).await;
    // One load at a time: none is under way when a get has ended.
    rig.settings.load_window_bytes = PAGE_BYTES;
    flip_bit(&rig, find_payload(&rig, &keys[0]));
    flip_bit(&rig, find_payload(&rig, &keys[1]));
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    // Finding out costs at most the load window; from then on the 126 others are not touched.
    assert_eq!(cairn.get(&namespace, &keys).await.end.good_pages, 0);
    cairn.get_with(&namespace, &keys[..2], 1, u64::MAX, cairn.deadline()).await;
    let reads = cairn.metrics.ssd_read_seconds.get_sample_count();
    assert_eq!(cairn.get(&namespace, &keys).await.end.good_pages, 0);
    assert_eq!(cairn.matched(&namespace, &keys), 0);
    assert_eq!(cairn.metrics.ssd_read_seconds.get_sample_count(), reads);
    // Useful pages, put before and used since, outlive them on a full SSD.
    let useful = chain(&namespace, 2, 60);
    let report = cairn.put(&namespace, &useful, Durability::Ssd).await;
    let skipped: Vec<_> = cairn.metrics.ssd_skipped.iter().map(|(why, pages)| (why, pages.get())).collect();
    assert_eq!(report.durability, Durability::Ssd, "{report:?} {skipped:?} {:?}", cairn.engine.stats());
    for name in 3..6 {
        let report = cairn.put(&namespace, &chain(&namespace, name, 30), Durability::Ssd).await;
        let skipped: Vec<_> = cairn.metrics.ssd_skipped.iter().map(|(why, pages)| (why, pages.get())).collect();
        assert_eq!(report.durability, Durability::Ssd, "{skipped:?} {:?}", cairn.engine.stats());
    }
    assert_eq!(cairn.matched(&namespace, &useful), 60);
}

#[tokio::test]
async fn a_damaged_page_that_is_also_in_dram_is_served_from_there() {
    let rig = Rig::new(64, 64);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let keys = chain(&namespace, 1, 4);
    cairn.put(&namespace, &keys, Durability::Ssd).await;
    flip_bit(&rig, find_payload(&rig, &keys[1]));
    assert_eq!(cairn.get(&namespace, &keys).await.tiers, vec![Tier::Dram; 4]);
}

#[tokio::test]
async fn case_14_a_put_that_fails_on_the_disk_is_told_so_and_leaves_nothing_there() {
    let rig = Rig::new(64, 64);
    let device = Arc::new(FaultDevice::new(rig.ssd_bytes as usize));
    let cairn = rig.open_on(device.clone()).await;
    let namespace = cairn.namespace();
    let safe = chain(&namespace, 1, 4);
    assert_eq!(cairn.put(&namespace, &safe, Durability::Ssd).await.durability, Durability::Ssd);
    device.inject(Fault::FailWrite);
    let failed = chain(&namespace, 2, 4);
    let report = cairn.put(&namespace, &failed, Durability::Ssd).await;
    assert_eq!((report.good_pages, report.durability), (4, Durability::Memory), "never more than was reached");
    // Nothing more is written, reads go on.
    assert!(cairn.engine.stats().write_quarantined);
    assert_eq!(cairn.engine.stats().ssd.pages, 4);
    assert_eq!(cairn.get(&namespace, &safe).await.end.good_pages, 4);
    drop(cairn);
    // After a restart the failed pages are a miss, the others are there, and puts work again.
    let cairn = rig.open_on(device).await;
    let namespace = cairn.namespace();
    assert_eq!(cairn.get(&namespace, &failed).await.end.stop, StopReason::NotStored);
    assert_eq!(cairn.get(&namespace, &safe).await.tiers, vec![Tier::Ssd; 4]);
    assert_eq!(cairn.put(&namespace, &failed, Durability::Ssd).await.durability, Durability::Ssd);
}

#[tokio::test]
async fn a_failed_barrier_acknowledges_nothing_and_is_not_repeated() {
    let rig = Rig::new(64, 64);
    let device = Arc::new(FaultDevice::new(rig.ssd_bytes as usize));
    let cairn = rig.open_on(device.clone()).await;
    let namespace = cairn.namespace();
    cairn.written(&namespace).await;
    device.inject(Fault::FailBarrier);
    let report = cairn.put(&namespace, &chain(&namespace, 1, 4), Durability::Ssd).await;
    assert_eq!(report.durability, Durability::Memory);
    let steps = device.steps();
    let report = cairn.put(&namespace, &chain(&namespace, 2, 4), Durability::Ssd).await;
    assert_eq!((report.good_pages, report.durability), (4, Durability::Memory));
    assert_eq!(device.steps(), steps, "no write and no barrier after the failed one");
}

#[tokio::test]
async fn a_page_on_a_sector_that_can_not_be_read_is_a_miss_and_a_put_mends_it() {
    let rig = Rig::new(64, 64);
    let device = Arc::new(FaultDevice::new(rig.ssd_bytes as usize));
    let cairn = rig.open_on(device.clone()).await;
    let keys = chain(&cairn.namespace(), 1, 4);
    cairn.put(&cairn.namespace(), &keys, Durability::Ssd).await;
    drop(cairn);
    let cairn = rig.open_on(device.clone()).await;
    let namespace = cairn.namespace();
    // The third slot of the first region.
    let at = 65_536 + 4096 + 2 * (PAGE_BYTES + 4096);
    device.break_sectors(at..at + 512);
    let got = cairn.get(&namespace, &keys).await;
    assert_eq!((got.end.good_pages, got.end.stop), (2, StopReason::ReadFailed));
    // The next one is told at once, and what a match promises is there.
    assert_eq!(cairn.matched(&namespace, &keys), 2);
    assert_eq!(cairn.begin(&namespace, &keys, Durability::Ssd).needed(), vec![2..3]);
    assert_eq!(cairn.put(&namespace, &keys, Durability::Ssd).await.durability, Durability::Ssd);
    assert_eq!(cairn.get(&namespace, &keys).await.end.good_pages, 4);
}

#[tokio::test]
async fn a_clear_that_the_disk_refused_says_so_every_time() {
    let rig = Rig::new(64, 64);
    let device = Arc::new(FaultDevice::new(rig.ssd_bytes as usize));
    let cairn = rig.open_on(device.clone()).await;
    let namespace = cairn.namespace();
    let keys = chain(&namespace, 1, 4);
    cairn.put(&namespace, &keys, Durability::Ssd).await;
    device.inject(Fault::FailWrite);
    for _ in 0..2 {
        let failed = cairn.engine.clear(&namespace).await.expect_err("the disk refuses");
        assert_eq!(failed.kind(), ErrorKind::Unavailable);
        assert_eq!(cairn.matched(&namespace, &keys), 0, "nobody is served what should be gone");
    }
    assert!(cairn.engine.stats().write_quarantined);
}
