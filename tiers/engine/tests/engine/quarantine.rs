//! Quarantine: what is out of use after an error is listed with its reason, and an operator can put it in use again.

use std::sync::Arc;
use std::time::Duration;

use cairn_core::metrics::Damage;
use cairn_core::{Durability, ErrorKind, StopReason, Tier};
use cairn_testkit::fault_device::{Fault, FaultDevice};

use crate::rig::{JumpClock, PAGE_BYTES, Rig, chain, find_payload, flip_bit};

#[tokio::test]
async fn a_failed_write_or_barrier_is_named_and_when_it_is_lifted_puts_are_durable_again() {
    for fault in [Fault::FailWrite, Fault::FailBarrier] {
        let clock = Arc::new(JumpClock::default());
        let mut rig = Rig::new(64, 64);
        rig.clock = clock.clone();
        let device = Arc::new(FaultDevice::new(rig.ssd_bytes as usize));
        let cairn = rig.open_on(device.clone()).await;
        let namespace = cairn.namespace();
        let (safe, failed, later) = (chain(&namespace, 1, 4), chain(&namespace, 2, 4), chain(&namespace, 3, 4));
        cairn.put(&namespace, &safe, Durability::Ssd).await;
        assert_eq!(cairn.engine.quarantine().writes, None);
        clock.jump(Duration::from_secs(5));
        device.inject(fault);
        assert_eq!(cairn.put(&namespace, &failed, Durability::Ssd).await.durability, Durability::Memory);
        clock.jump(Duration::from_secs(5));
        let quarantined = cairn.engine.quarantine().writes.expect("it takes no writes");
        assert_eq!(quarantined.at.since(cairn_core::Moment::default()), Duration::from_secs(5));
        assert!(quarantined.cause.contains("the disk refused"), "{}", quarantined.cause);
        cairn.engine.release_writes().await.expect("the disk is well again");
        assert_eq!((cairn.engine.quarantine().writes, cairn.metrics.ssd_write_quarantined.get()), (None, 0));
        for keys in [&failed, &later] {
            assert_eq!(cairn.put(&namespace, keys, Durability::Ssd).await.durability, Durability::Ssd);
        }
        drop(cairn);
        let cairn = rig.open_on(device).await;
        for keys in [&safe, &failed, &later] {
            assert_eq!(cairn.get(&cairn.namespace(), keys).await.tiers, vec![Tier::Ssd; 4]);
        }
    }
}

#[tokio::test]
async fn a_disk_that_still_fails_stays_in_quarantine() {
    let rig = Rig::new(64, 64);
    let device = Arc::new(FaultDevice::new(rig.ssd_bytes as usize));
    let cairn = rig.open_on(device.clone()).await;
    let namespace = cairn.namespace();
    cairn.written(&namespace).await;
    for fault in [Fault::FailBarrier, Fault::FailBarrier, Fault::FailWrite] {
        device.inject(fault);
        if cairn.engine.quarantine().writes.is_none() {
            cairn.put(&namespace, &chain(&namespace, 1, 4), Durability::Ssd).await;
            continue;
        }
        let refused = cairn.engine.release_writes().await.expect_err("the disk fails");
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        assert!(cairn.engine.stats().write_quarantined);
    }
    cairn.engine.release_writes().await.expect("at last");
    assert_eq!(cairn.put(&namespace, &chain(&namespace, 2, 4), Durability::Ssd).await.durability, Durability::Ssd);
    cairn.engine.release_writes().await.expect("nothing to lift is fine");
}

#[tokio::test]
async fn slots_of_a_write_that_failed_do_not_keep_their_region_for_ever_once_the_quarantine_is_lifted() {
    let rig = Rig::new(64, 64);
    let device = Arc::new(FaultDevice::new(rig.ssd_bytes as usize));
    let cairn = rig.open_on(device.clone()).await;
    let namespace = cairn.namespace();
    for round in 0..30 {
        device.inject(Fault::FailBarrier);
        cairn.put(&namespace, &chain(&namespace, 1000 + round, 5), Durability::Ssd).await;
        cairn.engine.release_writes().await.expect("lifted");
        let report = cairn.put(&namespace, &chain(&namespace, round, 5), Durability::Ssd).await;
        assert_eq!(report.durability, Durability::Ssd, "round={round}");
        let ssd = cairn.engine.stats().ssd;
        assert_eq!(ssd.used_bytes, ssd.pages * (PAGE_BYTES + 4096));
    }
}

#[tokio::test]
async fn slots_of_damaged_pages_are_listed_and_released() {
    let rig = Rig::new(64, 64);
    let cairn = rig.open().await;
    let keys = chain(&cairn.namespace(), 1, 4);
    cairn.put(&cairn.namespace(), &keys, Durability::Ssd).await;
    drop(cairn);
    flip_bit(&rig, find_payload(&rig, &keys[2]));
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    assert_eq!(cairn.get(&namespace, &keys).await.end.stop, StopReason::Damaged);
    cairn.written(&namespace).await;
    let slots = cairn.engine.quarantine().slots;
    let slot_bytes = PAGE_BYTES + 4096;
    assert_eq!(slots.len(), 1);
    assert_eq!((slots[0].region, slots[0].at, slots[0].bytes), (0, 2 * slot_bytes, slot_bytes));
    assert_eq!(slots[0].damage, Damage::Payload);
    assert_eq!((cairn.engine.release_slots(), cairn.engine.release_slots()), (1, 0));
    assert_eq!((cairn.engine.quarantine().slots.len(), cairn.engine.stats().flash.quarantined_bytes), (0, 0));
}
