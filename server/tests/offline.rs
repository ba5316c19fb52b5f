//! `cairnd verify` and `cairnd rebuild` on folders whose server is stopped, in every state that they can be in.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod house;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use cairn_proto::v1;
use house::*;
use serde_json::Value;
use tempfile::TempDir;

const PAGE_BYTES: u64 = 1 << 20;
const SLOT_BYTES: u64 = PAGE_BYTES + 4096;

/// Puts `pages` pages of a chain into a server on `folder`, and stops it.
async fn put(folder: TempDir, pages: u32) -> TempDir {
    let mut house = House::open_in(folder, &[]).await;
    let namespace = house.namespace(&identity(PAGE_BYTES)).await;
    let tokens: Vec<u32> = (0..pages * PAGE_TOKENS).collect();
    let keys = cairn_core::chain_from_tokens(&namespace, &tokens, PAGE_TOKENS, &[]).unwrap();
    let parts = all_parts(u64::from(pages), PAGE_BYTES);
    let done = totals(&house.put(begin(&namespace, &keys, v1::Durability::Ssd), parts).await.unwrap());
    assert_eq!((done.good_pages, done.durability()), (u64::from(pages), v1::Durability::Ssd));
    house.stop().await
}

async fn filled(pages: u32) -> TempDir {
    put(tempfile::tempdir().unwrap(), pages).await
}

fn cairnd(args: &[&str], folder: &Path) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_cairnd")).env_clear().args(args).arg(folder).output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.code(), text)
}

/// What is found; and nothing in the folder is changed.
#[track_caller]
fn verify(folder: &Path, code: i32) -> Value {
    let before = contents(folder);
    let (ended, text) = cairnd(&["verify", "--json"], folder);
    assert_eq!(ended, Some(code), "{text}");
    assert!(contents(folder) == before, "a verification changes nothing");
    let found: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert_eq!(found["clean"].as_bool(), Some(code == 0));
    found
}

/// Every file below a folder.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(contents(&path));
        } else {
            all.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    all
}

/// Changes bytes of the SSD file.
fn write(folder: &Path, at: u64, bytes: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(folder.join("ssd/pages")).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// Where a slot of a region begins.
fn slot_at(region: u64, slot: u64) -> u64 {
    65_536 + region * (4 << 20) + 4096 + slot * SLOT_BYTES
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, target) = {
            let entry = entry.unwrap();
            (entry.path(), to.join(entry.file_name()))
        };
        if path.is_dir() { copy(&path, &target) } else { fs::copy(&path, &target).map(drop).unwrap() }
    }
}

#[track_caller]
fn pages(found: &Value, counts: &[(&str, u64)]) {
    for (name, count) in counts {
        assert_eq!(found["pages"][name].as_u64(), Some(*count), "{name}: {found}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_folder_is_clean_and_nothing_in_it_changes() {
    let folder = filled(6).await;
    let found = verify(folder.path(), 0);
    pages(&found, &[("whole", 6), ("whole_bytes", 6 * PAGE_BYTES), ("entries_without_page", 0), ("without_entry", 0)]);
    assert_eq!(found["directory"]["entries"].as_u64(), Some(6));
    assert_eq!((found["ssd"]["regions_in_use"].as_u64(), found["ssd"]["regions_damaged"].as_u64()), (Some(2), Some(0)));
    let (code, text) = cairnd(&["verify"], folder.path());
    assert_eq!(code, Some(0));
    for line in ["pages whole           6, 6291456 bytes", "verdict               clean", "A whole, sequence"] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn torn_pages_flipped_bits_and_wiped_headers_are_told_apart() {
    let folder = filled(6).await;
    // Torn: the second half was never written. Then a bit of a payload, a bit of a header, and a header that is gone.
    write(folder.path(), slot_at(0, 0) + 4096 + PAGE_BYTES / 2, &vec![0; (PAGE_BYTES / 2) as usize]);
    write(folder.path(), slot_at(0, 1) + 4096 + 5, &[0xee, 0xee]);
    write(folder.path(), slot_at(0, 2) + 100, &[0xee, 0xee]);
    write(folder.path(), slot_at(1, 0), &[0; 4096]);
    let found = verify(folder.path(), 1);
    pages(&found, &[("whole", 2), ("entries_without_page", 1), ("without_entry", 0), ("torn_without_entry", 0)]);
    let damaged = &found["pages"]["damaged"];
    assert_eq!((damaged["payload"].as_u64(), damaged["header_hash"].as_u64()), (Some(2), Some(1)));
    let faults: Vec<_> =
        found["faulty"].as_array().unwrap().iter().map(|page| page["fault"].as_str().unwrap()).collect();
    assert_eq!(faults, ["payload", "payload", "header_hash", "no_page"]);
    let (code, text) = cairnd(&["verify"], folder.path());
    assert_eq!(code, Some(1));
    assert!(text.contains("region 1 slot 0: no_page page ") && text.contains("3 (header_hash 1, payload 2)"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_superblock_or_region_header_is_named_and_its_pages_are_found() {
    let folder = filled(6).await;
    write(folder.path(), 32_768 + 50, &[0xee; 8]);
    write(folder.path(), 65_536 + 20, &[0xee; 8]);
    let found = verify(folder.path(), 1);
    pages(&found, &[("whole", 6), ("entries_without_page", 0)]);
    assert_eq!(found["ssd"]["superblocks"][1].as_str(), Some("DAMAGED"));
    assert_eq!(found["ssd"]["regions_damaged"].as_u64(), Some(1));
    write(folder.path(), 50, &[0xee; 8]);
    let found = verify(folder.path(), 1);
    pages(&found, &[("whole", 0), ("entries_without_page", 6)]);
    assert!(found["ssd"]["fault"].as_str().unwrap().contains("neither superblock"), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_or_damaged_directory_is_named_and_its_pages_are_without_entry() {
    let folder = filled(6).await;
    fs::write(folder.path().join("directory/rocksdb/CURRENT"), "garbage").unwrap();
    let damaged = verify(folder.path(), 1);
    pages(&damaged, &[("whole", 0), ("without_entry", 6)]);
    assert!(damaged["directory"]["fault"].as_str().unwrap().contains("CURRENT"), "{damaged}");
    fs::remove_dir_all(folder.path().join("directory")).unwrap();
    let lost = verify(folder.path(), 1);
    pages(&lost, &[("whole", 0), ("without_entry", 6)]);
    assert!(!folder.path().join("directory").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_another_time_or_another_device_are_told_from_damage() {
    let folder = filled(2).await;
    let old = tempfile::tempdir().unwrap();
    copy(&folder.path().join("directory"), old.path());
    let folder = put(folder, 6).await;
    fs::remove_dir_all(folder.path().join("directory")).unwrap();
    copy(old.path(), &folder.path().join("directory"));
    // Four pages are nobody's; one of them torn. Nothing that an entry names is missing.
    write(folder.path(), slot_at(1, 1) + 4096 + 9, &[0xee; 3]);
    let found = verify(folder.path(), 0);
    pages(&found, &[("whole", 2), ("without_entry", 3), ("torn_without_entry", 1)]);
    let other = filled(3).await;
    fs::remove_dir_all(folder.path().join("directory")).unwrap();
    copy(&other.path().join("directory"), &folder.path().join("directory"));
    let found = verify(folder.path(), 1);
    assert!(found["directory"]["fault"].as_str().unwrap().contains("another ssd file"), "{found}");
    pages(&found, &[("whole", 0), ("entries_without_page", 3), ("without_entry", 5)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_in_use_or_that_is_none_is_refused_with_its_own_exit_code() {
    let house = House::open().await;
    for command in [&["verify"][..], &["rebuild", "--yes"]] {
        let (code, text) = cairnd(command, house.folder.path());
        assert_eq!(code, Some(3), "{text}");
        assert!(text.contains("in use by another server"), "{text}");
        let none = tempfile::tempdir().unwrap();
        for absent in [none.path(), &none.path().join("nowhere")] {
            let (code, text) = cairnd(command, absent);
            assert_eq!(code, Some(2), "{text}");
            assert!(text.contains("there is no data folder"), "{text}");
        }
        fs::write(none.path().join("FORMAT"), "cairn data folder, version 99\n").unwrap();
        assert_eq!(cairnd(command, none.path()).0, Some(4));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_is_confirmed_first_and_the_next_start_finds_every_page() {
    let folder = filled(6).await;
    let before = contents(folder.path());
    let (code, text) = cairnd(&["rebuild"], folder.path());
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("--yes") && contents(folder.path()) == before, "{text}");
    let (code, text) = cairnd(&["rebuild", "--yes"], folder.path());
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("rocksdb.damaged"), "{text}");
    let mut house = House::open_in(folder, &[]).await;
    house.until("it is rebuilt", is_rebuilt).await;
    assert_eq!(house.stats().await.recovery.unwrap().pages, 6);
    let folder = house.stop().await;
    pages(&verify(folder.path(), 0), &[("whole", 6)]);
}
