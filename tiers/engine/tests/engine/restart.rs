//! Restart: what was acknowledged is found, in whatever way the process ended and whatever became of the directory.

use std::sync::Arc;

use cairn_core::{Durability, ErrorKind, Principal, StopReason, Tier};
use cairn_engine::OpenMode;
use cairn_ssd::{Device, DeviceError};
use cairn_testkit::fault_device::FaultDevice;
use parking_lot::{Condvar, Mutex};

use crate::rig::{PAGE_BYTES, Rig, branch, chain, identity};

#[tokio::test]
async fn durable_pages_survive_a_crash_and_memory_pages_may_not() {
    let mut rig = Rig::new(64, 64);
    rig.settings.write_policy = cairn_policy::WritePolicy::Requested;
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let (durable, fleeting) = (chain(&namespace, 1, 9), chain(&namespace, 2, 9));
    cairn.put(&namespace, &durable, Durability::Ssd).await;
    cairn.put(&namespace, &fleeting, Durability::Memory).await;
    // Dropping without closing is what a crash leaves behind.
    drop(cairn);
    let cairn = rig.open().await;
    // The namespace is known again without being opened.
    let namespace = cairn.engine.namespace(&Principal::local(), namespace.id()).expect("known");
    let got = cairn.get(&namespace, &durable).await;
    assert_eq!((got.end.good_pages, got.tiers), (9, vec![Tier::Ssd; 9]));
    assert_eq!(cairn.get(&namespace, &fleeting).await.end.stop, StopReason::NotStored);
    let recovery = cairn.engine.stats().recovery;
    assert_eq!((recovery.mode, recovery.pages, recovery.dropped), (OpenMode::Directory, 9, 0));
    // Loaded pages are in DRAM now.
    assert_eq!(cairn.get(&namespace, &durable).await.tiers, vec![Tier::Dram; 9]);
}

#[tokio::test]
async fn an_orderly_close_writes_what_waits() {
    let rig = Rig::new(64, 64);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let keys = chain(&namespace, 1, 30);
    cairn.put(&namespace, &keys, Durability::Memory).await;
    cairn.engine.close(std::time::Duration::from_secs(60)).await;
    drop(cairn);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    assert_eq!(cairn.get(&namespace, &keys).await.end.good_pages, 30);
}

#[tokio::test]
async fn a_lost_directory_is_made_again_from_headers() {
    let rig = Rig::new(64, 128);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let base = chain(&namespace, 1, 20);
    let fork = branch(&namespace, &base, 7, 5, 4);
    cairn.put(&namespace, &base, Durability::Ssd).await;
    cairn.put(&namespace, &fork, Durability::Ssd).await;
    drop(cairn);
    std::fs::remove_dir_all(rig.directory_path()).expect("the directory is lost");
    let cairn = rig.open().await;
    let recovery = cairn.engine.stats().recovery;
    assert_eq!((recovery.mode, recovery.pages), (OpenMode::Rebuilt, 24));
    // Identities are lost with the directory; the same identity opens the same namespace.
    let fenced = cairn.engine.namespace(&Principal::local(), namespace.id()).expect_err("not open");
    assert_eq!(fenced.kind(), ErrorKind::Fenced);
    let again = cairn.namespace();
    assert_eq!(again.id(), namespace.id());
    assert_eq!(cairn.get(&again, &base).await.end.good_pages, 20);
    assert_eq!(cairn.get(&again, &fork).await.end.good_pages, 11);
    // And it has been written down: the next start is an ordinary one.
    drop(cairn);
    let cairn = rig.open().await;
    assert_eq!(cairn.engine.stats().recovery.mode, OpenMode::Directory);
    assert_eq!(cairn.engine.stats().ssd.pages, 24);
}

#[tokio::test]
async fn a_directory_of_another_device_is_not_believed() {
    let rig = Rig::new(64, 64);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let keys = chain(&namespace, 1, 6);
    cairn.put(&namespace, &keys, Durability::Ssd).await;
    drop(cairn);
    std::fs::remove_file(rig.ssd_path()).expect("the SSD is replaced");
    let cairn = rig.open().await;
    let stats = cairn.engine.stats();
    assert_eq!((stats.recovery.mode, stats.recovery.pages, stats.ssd.used_bytes), (OpenMode::Fresh, 0, 0));
    let namespace = cairn.namespace();
    assert_eq!(cairn.matched(&namespace, &keys), 0);
    cairn.put(&namespace, &keys, Durability::Ssd).await;
    drop(cairn);
    let cairn = rig.open().await;
    assert_eq!(cairn.get(&cairn.namespace(), &keys).await.end.good_pages, 6);
}

#[tokio::test]
async fn case_18_usage_is_right_before_the_first_put_after_a_restart_and_nothing_overfills() {
    let rig = Rig::new(256, 100);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    for name in 0..11 {
        cairn.put(&namespace, &chain(&namespace, name, 8), Durability::Ssd).await;
    }
    let before = cairn.engine.stats().ssd;
    assert_eq!(before.pages, 88);
    drop(cairn);
    let cairn = rig.open().await;
    let after = cairn.engine.stats().ssd;
    assert_eq!(before, after, "usage after the restart");
    assert_eq!(after.used_bytes, 88 * (PAGE_BYTES + 4096));
    // Filling on evicts instead of overfilling.
    let namespace = cairn.namespace();
    for name in 11..40 {
        assert_eq!(
            cairn.put(&namespace, &chain(&namespace, name, 8), Durability::Ssd).await.durability,
            Durability::Ssd
        );
        let ssd = cairn.engine.stats().ssd;
        assert!(ssd.used_bytes <= ssd.capacity_bytes);
        assert_eq!(ssd.used_bytes, ssd.pages * (PAGE_BYTES + 4096));
    }
}

#[tokio::test]
async fn what_was_cleared_stays_cleared_even_if_the_directory_is_lost() {
    let rig = Rig::new(64, 64);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let mut other = identity();
    other.model = "another".into();
    let other_namespace = cairn.namespace_of(&other);
    let (cleared, kept) = (chain(&namespace, 1, 12), chain(&other_namespace, 1, 12));
    cairn.put(&namespace, &cleared, Durability::Ssd).await;
    cairn.put(&other_namespace, &kept, Durability::Ssd).await;
    assert_eq!(cairn.engine.clear(&namespace).await.expect("cleared"), 12);
    assert_eq!(cairn.matched(&namespace, &cleared), 0);
    drop(cairn);
    let cairn = rig.open().await;
    assert_eq!(cairn.matched(&cairn.namespace(), &cleared), 0);
    drop(cairn);
    std::fs::remove_dir_all(rig.directory_path()).expect("the directory is lost");
    let cairn = rig.open().await;
    assert_eq!(cairn.matched(&cairn.namespace(), &cleared), 0);
    assert_eq!(cairn.get(&cairn.namespace_of(&other), &kept).await.end.good_pages, 12);
}

#[tokio::test]
async fn twenty_crashes_in_a_row_lose_nothing_that_was_acknowledged() {
    let rig = Rig::new(32, 512);
    let mut acknowledged = Vec::new();
    for round in 0..20 {
        let cairn = rig.open().await;
        let namespace = cairn.namespace();
        for keys in &acknowledged {
            let keys: &Vec<_> = keys;
            assert_eq!(cairn.get(&namespace, keys).await.end.good_pages, keys.len());
        }
        let keys = chain(&namespace, round, 5 + round as usize);
        assert_eq!(cairn.put(&namespace, &keys, Durability::Ssd).await.durability, Durability::Ssd);
        acknowledged.push(keys);
        // Left waiting in the write queue.
        cairn.put(&namespace, &chain(&namespace, 1000 + round, 8), Durability::Memory).await;
    }
}

/// A device that holds every write back while its gate is shut.
#[derive(Debug)]
struct Gate {
    device: FaultDevice,
    shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn set_shut(&self, shut: bool) {
        *self.shut.lock() = shut;
        self.opened.notify_all();
    }
}

impl Device for Gate {
    fn bytes(&self) -> u64 {
        self.device.bytes()
    }

    fn read_at(&self, at: u64, parts: &mut [&mut [u8]]) -> Result<(), DeviceError> {
        self.device.read_at(at, parts)
    }

    fn write_at(&self, at: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        let mut shut = self.shut.lock();
        self.opened.wait_while(&mut shut, |shut| *shut);
        drop(shut);
        self.device.write_at(at, parts)
    }

    fn barrier(&self) -> Result<(), DeviceError> {
        self.device.barrier()
    }

    fn describe(&self) -> &str {
        "gate"
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_cleared_while_it_waited_to_be_written_does_not_come_back_in_another_ones_place() {
    let rig = Rig::new(256, 256);
    let gate = Arc::new(Gate {
        device: FaultDevice::new(rig.ssd_bytes as usize),
        shut: Mutex::new(false),
        opened: Condvar::new(),
    });
    let cairn = rig.open_on(gate.clone()).await;
    let namespace = cairn.namespace();
    let mut other = identity();
    other.model = "another".into();
    let busy = cairn.namespace_of(&other);
    gate.set_shut(true);
    // The writer is busy with the other namespace; the page of this one waits behind it.
    cairn.put(&busy, &chain(&busy, 1, 100), Durability::Memory).await;
    let keys = chain(&namespace, 1, 1);
    cairn.put(&namespace, &keys, Durability::Memory).await;
    let clearing = tokio::spawn({
        let (engine, namespace) = (Arc::clone(&cairn.engine), Arc::clone(&namespace));
        async move { engine.clear(&namespace).await }
    });
    gate.set_shut(false);
    clearing.await.expect("it ends").expect("cleared");
    // Put again: durable means that these very bytes are on the SSD.
    assert_eq!(cairn.put(&namespace, &keys, Durability::Ssd).await.durability, Durability::Ssd);
    drop((cairn, namespace, busy));
    let cairn = rig.open_on(gate).await;
    let got = cairn.get(&cairn.namespace(), &keys).await;
    assert_eq!((got.end.good_pages, got.tiers), (1, vec![Tier::Ssd]));
}
