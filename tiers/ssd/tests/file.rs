//! The device that is a file.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that can not go on says so by panicking")]

mod common;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use cairn_core::metrics::Damage;
use cairn_core::{Error, ErrorKind};
use cairn_ssd::{Device, DeviceError, FileDevice, SsdError, SsdTier};
use common::{Written, components, damage, device_bytes, format, open, read, write};

const REGIONS: u64 = 4;
const PAGE_BYTES: usize = 57_000;

fn device(path: &Path) -> Arc<FileDevice> {
    Arc::new(FileDevice::open_or_create(path, device_bytes(REGIONS)).unwrap())
}

/// One page a region, so that the last one ends just before the end of the file.
fn filled(path: &Path) -> (SsdTier, Vec<Written>) {
    let tier = format(device(path)).unwrap();
    let pages = (0..REGIONS).map(|number| {
        let slot = tier.reserve(PAGE_BYTES as u64).unwrap().unwrap();
        write(&tier, slot, number, PAGE_BYTES).unwrap()
    });
    let pages = pages.collect();
    tier.barrier().unwrap();
    (tier, pages)
}

fn truncate(path: &Path, bytes: u64) {
    File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

#[test]
fn pages_survive_a_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let (tier, pages) = filled(&path);
    assert_eq!(fs::metadata(&path).unwrap().len(), device_bytes(REGIONS));
    drop(tier);
    let tier = open(device(&path)).unwrap();
    pages.iter().for_each(|page| drop(read(&tier, page).unwrap()));
}

#[test]
fn case_11_a_file_truncated_under_the_server_is_a_miss_of_the_lost_pages_alone() {
    let full = device_bytes(REGIONS);
    // What is lost, besides what is cut off: zeros stand behind the payload up to the end of the last slot.
    for (bytes, whole) in [(full / 2, 1), (0, 0), (full - 1_000, 3)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ssd");
        let (tier, pages) = filled(&path);
        truncate(&path, bytes);
        for (number, page) in pages.iter().enumerate() {
            match read(&tier, page) {
                Ok(_) => assert!(number < whole),
                lost => {
                    assert!(number >= whole);
                    assert_eq!(damage(lost), Damage::Truncated);
                }
            }
        }
    }
}

#[test]
fn case_11_a_file_truncated_while_the_server_was_down_is_a_miss_of_the_lost_pages_alone() {
    let full = device_bytes(REGIONS);
    for (bytes, whole) in [(full / 2, 1), (full - 1_000, 3)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ssd");
        let (tier, pages) = filled(&path);
        drop(tier);
        truncate(&path, bytes);
        let tier = open(device(&path)).unwrap();
        for (number, page) in pages.iter().enumerate() {
            tier.claim(page.slot, PAGE_BYTES as u64);
            let found = read(&tier, page);
            assert_eq!(found.is_ok(), number < whole, "page {number} of a file cut to {bytes}");
            if number >= whole {
                assert!(matches!(damage(found), Damage::HeaderAbsent | Damage::Payload));
            }
        }
        // The tier goes on: the file has its size again.
        tier.free(pages[3].slot);
        let slot = tier.reserve(PAGE_BYTES as u64).unwrap().unwrap();
        let page = write(&tier, slot, 9, PAGE_BYTES).unwrap();
        tier.barrier().unwrap();
        read(&tier, &page).unwrap();
    }
}

#[test]
fn case_11_a_file_truncated_by_one_byte_costs_at_most_the_last_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let tier = format(device(&path)).unwrap();
    // A page that ends with the file's last byte.
    let bytes = usize::try_from(tier.page_bytes_max()).unwrap();
    let pages: Vec<_> = (0..REGIONS)
        .map(|number| {
            let slot = tier.reserve(bytes as u64).unwrap().unwrap();
            write(&tier, slot, number, bytes).unwrap()
        })
        .collect();
    truncate(&path, device_bytes(REGIONS) - 1);
    assert_eq!(damage(read(&tier, &pages[3])), Damage::Truncated);
    pages[..3].iter().for_each(|page| drop(read(&tier, page).unwrap()));
    drop(tier);
    let tier = open(device(&path)).unwrap();
    assert_eq!(damage(read(&tier, &pages[3])), Damage::Payload);
    pages[..3].iter().for_each(|page| drop(read(&tier, page).unwrap()));
}

#[test]
fn case_11_a_file_truncated_to_nothing_while_the_server_was_down_is_empty_and_usable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let (tier, pages) = filled(&path);
    drop(tier);
    truncate(&path, 0);
    let device = device(&path);
    assert!(matches!(open(device.clone()), Err(SsdError::Blank)));
    let entropy = cairn_testkit::fault_device::SeededEntropy::new(2);
    let tier = SsdTier::format(components(device), common::REGION_BYTES, &entropy).unwrap();
    assert!(pages.iter().all(|page| read(&tier, page).is_err()));
}

#[test]
fn a_folder_that_can_not_be_written_is_refused_clearly() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o555)).unwrap();
    let path = folder.path().join("ssd");
    let error = std::thread::spawn(move || {
        // Root may write anywhere: this thread becomes nobody. Who is not root already can not.
        let nobody = rustix::process::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).ok();
        FileDevice::open_or_create(&path, 1 << 20).unwrap_err()
    })
    .join()
    .unwrap();
    assert!(matches!(error, DeviceError::ReadOnly { .. }), "{error}");
    assert!(error.to_string().contains("can not be written"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_file_in_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let first = device(&path);
    let error = FileDevice::open_or_create(&path, device_bytes(REGIONS)).unwrap_err();
    assert!(matches!(error, DeviceError::InUse { .. }));
    assert_eq!(Error::from(SsdError::from(error)).kind(), ErrorKind::Unavailable);
    drop(first);
    device(&path);
}

#[test]
fn a_file_larger_than_the_free_space_is_refused_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let error = FileDevice::open_or_create(&path, 1 << 60).unwrap_err();
    assert!(matches!(error, DeviceError::NoSpace { .. }), "{error}");
    assert!(!path.try_exists().unwrap());
    filled(&path);
    FileDevice::open_or_create(&path, 1 << 60).unwrap_err();
    assert_eq!(fs::metadata(&path).unwrap().len(), device_bytes(REGIONS), "one that was there is left as it was");
}

#[test]
fn a_missing_folder_is_named() {
    let error = FileDevice::open_or_create(Path::new("/nowhere/ssd"), 1 << 20).unwrap_err();
    assert!(error.to_string().contains("path=/nowhere/ssd"), "{error}");
}

#[test]
fn a_smaller_configured_size_is_refused_and_a_larger_one_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let (tier, pages) = filled(&path);
    drop(tier);
    let sized = |regions| Arc::new(FileDevice::open_or_create(&path, device_bytes(regions)).unwrap());
    assert!(matches!(open(sized(2)), Err(SsdError::Smaller { .. })));
    assert_eq!(fs::metadata(&path).unwrap().len(), device_bytes(REGIONS));
    let tier = open(sized(6)).unwrap();
    assert_eq!(tier.capacity_bytes(), 6 * common::REGION_BYTES);
    pages.iter().for_each(|page| drop(read(&tier, page).unwrap()));
}

#[test]
fn reads_and_writes_go_to_the_byte_and_not_beyond_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let device = FileDevice::open_or_create(&folder.path().join("file"), 100).unwrap();
    device.write_at(10, &[b"abc", b"", b"defg"]).unwrap();
    let (mut head, mut tail) = ([0; 4], [0; 5]);
    device.read_at(9, &mut [&mut head, &mut tail]).unwrap();
    assert_eq!((&head, &tail), (b"\0abc", b"defg\0"));
    device.barrier().unwrap();
    assert!(matches!(device.write_at(98, &[b"abc"]), Err(DeviceError::OutOfRange { .. })));
    assert!(matches!(device.write_at(u64::MAX, &[b"abc"]), Err(DeviceError::OutOfRange { .. })));
    let short = device.read_at(96, &mut [&mut tail]).unwrap_err();
    assert!(matches!(short, DeviceError::Short { at: 96, wanted_bytes: 5, got_bytes: 4 }));
    device.read_at(50, &mut []).unwrap();
}
