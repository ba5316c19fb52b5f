//! Regions of the SSD: emptied for new pages, without losing what is in use; trimmed; and out of room for a while.

use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn_core::metrics::Skipped;
use cairn_core::{Durability, Identity, PageKey, Tier};
use cairn_ssd::FileDevice;
use cairn_testkit::crowded::Crowded;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::rig::{PAGE_BYTES, Rig, Running, chain, identity};

/// Puts chains that nobody asks for again, and asks for `hot` in between.
async fn churn(cairn: &Running, hot: &[PageKey], names: std::ops::Range<u32>) {
    let namespace = cairn.namespace();
    for name in names {
        cairn.put(&namespace, &chain(&namespace, name, 8), Durability::Ssd).await;
        cairn.get(&namespace, hot).await;
    }
}

#[tokio::test]
async fn what_is_used_stays_on_the_ssd_however_often_its_regions_are_emptied() {
    let mut rig = Rig::new(16, 256);
    rig.settings.write_policy = cairn_policy::WritePolicy::All;
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let hot = chain(&namespace, 1, 8);
    cairn.put(&namespace, &hot, Durability::Ssd).await;
    // Ten times as much as fits.
    churn(&cairn, &hot, 10..330).await;
    let metrics = &cairn.metrics;
    assert!(metrics.ssd_reclaimed_regions.get() > 60, "{}", metrics.ssd_reclaimed_regions.get());
    assert!(metrics.ssd_reinserted_bytes.get() >= PAGE_BYTES);
    let first = metrics.ssd_page_bytes.get();
    assert!(metrics.ssd_reinserted_bytes.get() * 5 < first, "{} of {first}", metrics.ssd_reinserted_bytes.get());
    drop(cairn);
    let cairn = rig.open().await;
    assert_eq!(cairn.get(&cairn.namespace(), &hot).await.tiers, vec![Tier::Ssd; 8]);
}

#[tokio::test]
async fn a_cleared_namespace_gives_its_regions_back() {
    let rig = Rig::new(64, 256);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    for name in 0..20 {
        cairn.put(&namespace, &chain(&namespace, name, 8), Durability::Ssd).await;
    }
    assert_eq!(cairn.metrics.ssd_trimmed_bytes.get(), 0);
    cairn.engine.clear(&namespace).await.expect("it clears");
    assert!(cairn.metrics.ssd_trimmed_bytes.get() >= 5 * rig.settings.region_bytes);
    assert_eq!((cairn.engine.stats().ssd.used_bytes, cairn.metrics.ssd_dead_bytes.get()), (0, 0));
    let keys = chain(&namespace, 1, 8);
    assert_eq!(cairn.put(&namespace, &keys, Durability::Ssd).await.durability, Durability::Ssd);
}

#[tokio::test]
async fn a_filesystem_without_room_stops_writes_with_a_reason_and_they_resume_by_themselves() {
    let rig = Rig::new(256, 256);
    let file = FileDevice::open_or_create(&rig.ssd_path(), rig.ssd_bytes).expect("a file");
    let device = Arc::new(Crowded::new(file, false));
    let cairn = rig.open_on(device.clone()).await;
    let namespace = cairn.namespace();
    let before = chain(&namespace, 1, 32);
    assert_eq!(cairn.put(&namespace, &before, Durability::Ssd).await.durability, Durability::Ssd);
    device.set_full(true);
    let during = chain(&namespace, 2, 8);
    let report = cairn.put(&namespace, &during, Durability::Ssd).await;
    assert_eq!((report.good_pages, report.durability), (8, Durability::Memory));
    assert_eq!(cairn.metrics.ssd_skipped.of(Skipped::NoSpace).get(), 1);
    assert_eq!(cairn.get(&namespace, &before).await.tiers.len(), 32);
    assert!(!cairn.engine.stats().write_quarantined);
    device.set_full(false);
    assert_eq!(cairn.put(&namespace, &during, Durability::Ssd).await.durability, Durability::Ssd);
}

/// A small filesystem of its own. Unmounted when dropped.
struct Filesystem(tempfile::TempDir);

impl Filesystem {
    /// `None`, with a message, for who may not mount.
    fn of(bytes: u64) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let size = CString::new(format!("size={bytes}")).expect("no zero in it");
        match rustix::mount::mount("cairn-test", folder.path(), "tmpfs", MountFlags::empty(), &*size) {
            Ok(()) => Some(Self(folder)),
            Err(errno) => {
                println!("skipped: a small filesystem can not be mounted here: {errno}");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a foreign file until nothing more fits.
    fn fill(&self) -> PathBuf {
        let path = self.path().join("foreign");
        let mut file = File::create(&path).expect("a file");
        while file.write_all(&[1; 4096]).is_ok() {}
        path
    }
}

impl Drop for Filesystem {
    fn drop(&mut self) {
        // What is still open in it goes on until it is closed.
        let _ = rustix::mount::unmount(self.path(), UnmountFlags::DETACH);
    }
}

#[tokio::test]
async fn a_foreign_file_that_fills_the_disk_stops_writes_until_it_is_removed() {
    let rig = Rig::new(256, 256);
    let Some(disk) = Filesystem::of(rig.ssd_bytes + (1 << 20)) else { return };
    let file = FileDevice::open_or_create(&disk.path().join("pages"), rig.ssd_bytes).expect("a file");
    let cairn = rig.open_on(Arc::new(file)).await;
    let other = Identity { model: "another".into(), ..identity() };
    let (namespace, cleared) = (cairn.namespace(), cairn.namespace_of(&other));
    let before = chain(&namespace, 1, 8);
    assert_eq!(cairn.put(&namespace, &before, Durability::Ssd).await.durability, Durability::Ssd);
    assert_eq!(cairn.put(&cleared, &chain(&cleared, 2, 200), Durability::Ssd).await.durability, Durability::Ssd);
    cairn.engine.clear(&cleared).await.expect("it clears");
    assert!(cairn.metrics.ssd_trimmed_bytes.get() > 0, "its regions are the filesystem's again");

    let foreign = disk.fill();
    // More than the region holds that is being filled.
    let during = chain(&namespace, 3, 80);
    let report = cairn.put(&namespace, &during, Durability::Ssd).await;
    assert_eq!((report.good_pages, report.durability), (80, Durability::Memory));
    assert!(cairn.metrics.ssd_skipped.of(Skipped::NoSpace).get() > 0);
    assert!(!cairn.engine.stats().write_quarantined);
    assert_eq!(cairn.get(&namespace, &before).await.tiers.len(), 8);

    std::fs::remove_file(foreign).expect("it is removed");
    assert_eq!(cairn.put(&namespace, &during, Durability::Ssd).await.durability, Durability::Ssd);
}
