//! The directory is no witness: what is served while it is made again, and when it is not believed.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cairn_core::metrics::{Damage, Skipped};
use cairn_core::{Durability, SlotId, Tier};
use cairn_engine::OpenMode;
use cairn_policy::ScrubPlan;
use cairn_ssd::{Device, DeviceError};
use cairn_testkit::fault_device::FaultDevice;
use parking_lot::{Condvar, Mutex};

use crate::rig::{Rig, chain};

const FRONT_BYTES: u64 = 65_536;

/// A device that holds back every read of a page's header while it is shut.
#[derive(Debug)]
struct Slow {
    device: FaultDevice,
    region_bytes: u64,
    shut: Mutex<bool>,
    opened: Condvar,
}

impl Slow {
    fn new(rig: &Rig) -> Arc<Self> {
        Arc::new(Self {
            device: FaultDevice::new(usize::try_from(rig.ssd_bytes).expect("a small one")),
            region_bytes: rig.settings.region_bytes,
            shut: Mutex::new(false),
            opened: Condvar::new(),
        })
    }

    fn set_shut(&self, shut: bool) {
        *self.shut.lock() = shut;
        self.opened.notify_all();
    }
}

impl Device for Slow {
    fn bytes(&self) -> u64 {
        self.device.bytes()
    }
    fn read_at(&self, at: u64, parts: &mut [&mut [u8]]) -> Result<(), DeviceError> {
        let is_page = at > FRONT_BYTES && !(at - FRONT_BYTES).is_multiple_of(self.region_bytes);
        let mut shut = self.shut.lock();
        self.opened.wait_while(&mut shut, |shut| *shut && is_page);
        drop(shut);
        self.device.read_at(at, parts)
    }
    fn write_at(&self, at: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        self.device.write_at(at, parts)
    }
    fn barrier(&self) -> Result<(), DeviceError> {
        self.device.barrier()
    }
    fn describe(&self) -> &'static str {
        "slow memory"
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_directory_is_rebuilt_while_the_engine_serves() {
    let rig = Rig::new(256, 512);
    let device = Slow::new(&rig);
    let cairn = rig.open_on(device.clone()).await;
    let namespace = cairn.namespace();
    let [before, cleared] = [1, 2].map(|name| chain(&namespace, name, 20));
    let mut other = crate::rig::identity();
    other.model = "another".into();
    let gone = cairn.namespace_of(&other);
    for keys in [&before, &cleared] {
        cairn.put(&namespace, keys, Durability::Ssd).await;
    }
    let gone_keys = chain(&gone, 3, 5);
    cairn.put(&gone, &gone_keys, Durability::Ssd).await;
    drop((cairn, namespace, gone));
    std::fs::remove_dir_all(rig.directory_path()).expect("the directory is lost");

    device.set_shut(true);
    let cairn = rig.serve_on(device.clone()).await;
    assert_eq!(cairn.engine.stats().recovery.mode, OpenMode::Rebuilding);
    let (namespace, gone) = (cairn.namespace(), cairn.namespace_of(&other));
    assert_eq!(cairn.matched(&namespace, &before), 0, "not found yet");
    // Puts and gets work in memory, and say so at once.
    let now = chain(&namespace, 4, 10);
    let report = cairn.put(&namespace, &now, Durability::Ssd).await;
    assert_eq!((report.good_pages, report.durability), (10, Durability::Memory));
    assert_eq!(cairn.metrics.ssd_skipped.of(Skipped::Rebuilding).get(), 10);
    assert_eq!(cairn.get(&namespace, &now).await.end.good_pages, 10);
    // One of the pages to be found is put again meanwhile.
    assert_eq!(cairn.put(&namespace, &cleared[..3], Durability::Memory).await.good_pages, 3);
    let clearing = tokio::spawn({
        let (engine, gone) = (Arc::clone(&cairn.engine), Arc::clone(&gone));
        async move { engine.clear(&gone).await }
    });
    device.set_shut(false);
    cairn.engine.wait_rebuilt();
    assert_eq!(clearing.await.expect("it ends").expect("cleared"), 5);
    let recovery = cairn.engine.stats().recovery;
    assert_eq!((recovery.mode, recovery.pages, recovery.dropped), (OpenMode::Rebuilt, 45, 0));
    assert_eq!(cairn.get(&namespace, &before).await.tiers, vec![Tier::Ssd; 20]);
    let mut tiers = vec![Tier::Dram; 3];
    tiers.extend([Tier::Ssd; 17]);
    assert_eq!(cairn.get(&namespace, &cleared).await.tiers, tiers);
    assert_eq!(cairn.matched(&gone, &gone_keys), 0);
    assert_eq!(cairn.put(&namespace, &now, Durability::Ssd).await.durability, Durability::Ssd);
    drop((cairn, namespace, gone));
    let cairn = rig.open_on(device).await;
    assert_eq!(cairn.engine.stats().recovery.mode, OpenMode::Directory);
    assert_eq!(cairn.matched(&cairn.namespace(), &before), 20);
    assert_eq!(cairn.matched(&cairn.namespace(), &now), 10);
}

#[tokio::test]
async fn a_rebuild_that_is_cut_short_begins_anew() {
    let rig = Rig::new(64, 256);
    let device = Slow::new(&rig);
    let cairn = rig.open_on(device.clone()).await;
    let keys = chain(&cairn.namespace(), 1, 40);
    cairn.put(&cairn.namespace(), &keys, Durability::Ssd).await;
    drop(cairn);
    std::fs::remove_dir_all(rig.directory_path()).expect("the directory is lost");
    device.set_shut(true);
    let cairn = rig.serve_on(device.clone()).await;
    let closing = tokio::spawn({
        let engine = Arc::clone(&cairn.engine);
        async move { engine.close(Duration::from_secs(30)).await }
    });
    tokio::task::yield_now().await;
    device.set_shut(false);
    closing.await.expect("it ends");
    drop(cairn);
    let cairn = rig.open_on(device).await;
    let recovery = cairn.engine.stats().recovery;
    assert!(recovery.pages == 40 && !recovery.clean, "{recovery:?}");
    assert_eq!(cairn.matched(&cairn.namespace(), &keys), 40);
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        let to = to.join(entry.file_name().expect("a name"));
        if entry.is_dir() {
            copy(&entry, &to);
        } else {
            std::fs::copy(&entry, &to).expect("a copy");
        }
    }
}

#[tokio::test]
async fn a_directory_from_another_time_is_no_witness() {
    let rig = Rig::new(64, 256);
    let old = tempfile::tempdir().expect("a folder");
    let mut chains = Vec::new();
    for name in 0..3 {
        let cairn = rig.open().await;
        let namespace = cairn.namespace();
        let keys = chain(&namespace, name, 10);
        cairn.put(&namespace, &keys, Durability::Ssd).await;
        if name == 1 {
            // What the copy names first is cleared, what comes last is unknown to it.
            cairn.engine.clear(&namespace).await.expect("cleared");
        } else {
            chains.push(keys);
        }
        cairn.engine.close(Duration::from_secs(30)).await;
        drop((cairn, namespace));
        if name == 0 {
            copy(&rig.directory_path(), old.path());
        }
    }
    std::fs::remove_dir_all(rig.directory_path()).expect("removed");
    copy(old.path(), &rig.directory_path());
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    assert_eq!(cairn.engine.stats().recovery.mode, OpenMode::Rebuilt);
    assert_eq!(cairn.matched(&namespace, &chains[0]), 0, "a cleared page came back");
    assert_eq!(cairn.get(&namespace, &chains[1]).await.end.good_pages, 10);
    let damaged: u64 = cairn.metrics.ssd_damaged.iter().map(|(_, pages)| pages.get()).sum();
    assert_eq!(damaged, 0);
}

#[tokio::test]
async fn only_an_orderly_close_of_a_run_without_errors_is_clean() {
    let rig = Rig::new(64, 64);
    let device = Arc::new(FaultDevice::new(usize::try_from(rig.ssd_bytes).expect("a small one")));
    let clean_after = async |orderly: bool, harm: &dyn Fn()| {
        let cairn = rig.open_on(device.clone()).await;
        let namespace = cairn.namespace();
        let keys = chain(&namespace, 1, 3);
        cairn.put(&namespace, &keys, Durability::Ssd).await;
        harm();
        // Loaded again, or put, whatever the harm was.
        cairn.put(&namespace, &chain(&namespace, 2, 2), Durability::Ssd).await;
        cairn.engine.clear(&namespace).await.ok();
        if orderly {
            cairn.engine.close(Duration::from_secs(30)).await;
        }
        drop((cairn, namespace));
        rig.open_on(device.clone()).await.engine.stats().recovery.clean
    };
    assert!(!rig.open_on(device.clone()).await.engine.stats().recovery.clean, "new");
    assert!(clean_after(true, &|| ()).await);
    assert!(!clean_after(false, &|| ()).await);
    let fail = || device.inject(cairn_testkit::fault_device::Fault::FailBarrier);
    assert!(!clean_after(true, &fail).await);
    assert!(clean_after(true, &|| ()).await);
}

#[tokio::test]
async fn a_run_in_which_damage_was_found_is_not_clean() {
    let rig = Rig::new(16, 64);
    let device = Arc::new(FaultDevice::new(usize::try_from(rig.ssd_bytes).expect("a small one")));
    let cairn = rig.open_on(device.clone()).await;
    let keys = chain(&cairn.namespace(), 1, 3);
    cairn.put(&cairn.namespace(), &keys, Durability::Ssd).await;
    drop(cairn);
    let cairn = rig.open_on(device.clone()).await;
    device.flip_bit(FRONT_BYTES + 3 * 4096 + 17, 3);
    cairn.get(&cairn.namespace(), &keys).await;
    assert_eq!(cairn.metrics.ssd_damaged.of(Damage::Payload).get(), 1);
    cairn.engine.close(Duration::from_secs(30)).await;
    drop(cairn);
    assert!(!rig.open_on(device).await.engine.stats().recovery.clean);
}

#[tokio::test]
async fn a_damaged_region_header_is_mended_by_what_the_directory_knows_and_a_rebuild_finds_its_pages() {
    let rig = Rig::new(256, 256);
    let cairn = rig.open().await;
    let keys = chain(&cairn.namespace(), 1, 100);
    assert_eq!(cairn.put(&cairn.namespace(), &keys, Durability::Ssd).await.durability, Durability::Ssd);
    drop(cairn);
    let file = std::fs::File::options().write(true).open(rig.ssd_path()).expect("the SSD file");
    // Those of the regions that are in use: 32 pages each.
    for region in 0..4 {
        file.write_all_at(&[0x5a; 4096], FRONT_BYTES + region * rig.settings.region_bytes).expect("damage");
    }
    let cairn = rig.open().await;
    assert_eq!(cairn.engine.stats().recovery.mode, OpenMode::Directory);
    drop(cairn);
    std::fs::remove_dir_all(rig.directory_path()).expect("the directory is lost");
    let cairn = rig.open().await;
    assert_eq!(cairn.engine.stats().recovery.mode, OpenMode::Rebuilt);
    assert_eq!(cairn.get(&cairn.namespace(), &keys).await.tiers, vec![Tier::Ssd; 100]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scrub_after_a_rebuild_reads_what_the_rebuild_found() {
    let mut rig = Rig::new(64, 64);
    rig.settings.scrub = ScrubPlan { period: Some(Duration::from_secs(604_800)), bytes_per_second_max: 0 };
    let device = Slow::new(&rig);
    let cairn = rig.open_on(device.clone()).await;
    let keys = chain(&cairn.namespace(), 1, 20);
    assert_eq!(cairn.put(&cairn.namespace(), &keys, Durability::Ssd).await.durability, Durability::Ssd);
    drop(cairn);
    std::fs::remove_dir_all(rig.directory_path()).expect("the directory is lost");
    device.set_shut(true);
    let cairn = rig.serve_on(device.clone()).await;
    cairn.engine.scrubbed().await;
    assert_eq!(cairn.engine.stats().scrub.passes, 0, "nothing is found yet that could be read");
    let refused = cairn.engine.verify(None, SlotId { region: 0, slot: 0 }, 0).await;
    assert!(refused.is_err(), "nor verified");
    device.set_shut(false);
    cairn.engine.wait_rebuilt();
    cairn.engine.scrubbed().await;
    assert_eq!(cairn.engine.stats().scrub.passes, 1);
    // The next pass has begun with its first page, or not.
    assert!((20..=21).contains(&cairn.metrics.ssd_scrubbed_pages.get()));
}
