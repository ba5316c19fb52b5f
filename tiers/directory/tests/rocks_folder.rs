//! What a folder on disk can be when it is opened, and what the operator is told.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test panics when it fails")]

use std::fs;
use std::path::{Path, PathBuf};

use cairn_core::{Error, ErrorKind};
use cairn_directory::conformance::{namespace, record};
use cairn_directory::{Change, Directory, DirectoryError, RocksDirectory};

/// A folder with 1,000 records in a table and 10 in the log.
fn filled() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("directory");
    let directory = RocksDirectory::open(&path).unwrap();
    directory.commit(&(0..1000).map(|key| Change::Put(record(1, key))).collect::<Vec<_>>()).unwrap();
    directory.close().unwrap();
    let directory = RocksDirectory::open(&path).unwrap();
    for key in 1000..1010 {
        directory.commit(&[Change::Put(record(1, key))]).unwrap();
    }
    drop(directory);
    (folder, path)
}

fn count(directory: &RocksDirectory) -> u64 {
    directory.scan(&mut |_| ()).unwrap().records
}

/// The files of the database whose names have `part` in them, oldest first.
fn files(path: &Path, part: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(path.join("rocksdb")).unwrap().map(|file| file.unwrap().path());
    let named = |file: &PathBuf| file.file_name().unwrap().to_str().unwrap().contains(part);
    let mut files: Vec<PathBuf> = files.filter(named).collect();
    files.sort();
    files
}

fn newest_full(path: &Path, part: &str) -> PathBuf {
    let full = |file: &PathBuf| fs::metadata(file).unwrap().len() > 0;
    files(path, part).into_iter().rfind(full).unwrap()
}

fn assert_damaged(path: &Path, harmed: &str) {
    let opened = RocksDirectory::open(path);
    assert!(matches!(opened, Err(DirectoryError::Damaged { .. })), "harmed={harmed} {opened:?}");
}

/// Flips a bit in every tenth byte.
fn ruin(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    bytes.iter_mut().step_by(10).for_each(|byte| *byte ^= 1);
    fs::write(file, bytes).unwrap();
}

#[test]
fn a_folder_that_is_open_is_locked_until_it_is_closed() {
    let (_folder, path) = filled();
    let first = RocksDirectory::open(&path).unwrap();
    for attempt in [RocksDirectory::open(&path).err(), RocksDirectory::set_aside(&path).err()] {
        assert!(matches!(attempt, Some(DirectoryError::Locked { .. })), "{attempt:?}");
    }
    first.close().unwrap();
    assert_eq!(count(&RocksDirectory::open(&path).unwrap()), 1010, "closed, though not yet dropped");
}

#[test]
fn who_looks_at_a_folder_finds_what_is_there_and_changes_nothing() {
    let (folder, path) = filled();
    let contents = || -> Vec<(PathBuf, Vec<u8>)> {
        let files = files(&path, "").into_iter().chain([path.join("LOCK")]);
        files.map(|file| (file.clone(), fs::read(&file).unwrap())).collect()
    };
    let before = contents();
    let looking = RocksDirectory::open_to_look(&path).unwrap();
    assert_eq!(count(&looking), 1010, "what is only in the log too");
    let refused = looking.commit(&[Change::Put(record(1, 0))]);
    assert!(matches!(refused, Err(DirectoryError::Quarantined)), "{refused:?}");
    assert!(matches!(RocksDirectory::open(&path), Err(DirectoryError::Locked { .. })));
    looking.close().unwrap();
    assert_eq!(contents(), before);
    let absent = RocksDirectory::open_to_look(&folder.path().join("absent"));
    assert!(matches!(absent, Err(DirectoryError::Damaged { .. })), "{absent:?}");
    assert!(!folder.path().join("absent").exists());
    ruin(&newest_full(&path, "MANIFEST"));
    let damaged = RocksDirectory::open_to_look(&path);
    assert!(matches!(damaged, Err(DirectoryError::Damaged { .. })), "{damaged:?}");
}

#[test]
fn a_folder_that_can_not_be_written_is_reported_as_such() {
    // Nobody may make folders there, whoever runs the test.
    let refused = RocksDirectory::open(Path::new("/sys/cairn-directory")).unwrap_err();
    assert!(matches!(refused, DirectoryError::ReadOnly { .. }), "{refused:?}");
    let error = Error::from(refused);
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.chain().contains("path=/sys/cairn-directory"), "{}", error.chain());
}

#[test]
fn a_path_through_a_file_is_an_io_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let refused = RocksDirectory::open(&file.path().join("directory"));
    assert!(matches!(refused, Err(DirectoryError::Io { .. })), "{refused:?}");
}

#[test]
fn a_folder_of_another_version_is_refused_and_left_as_it_is() {
    let (_folder, path) = filled();
    fs::write(path.join("rocksdb/FORMAT"), "cairn directory 2\n").unwrap();
    fs::write(path.join("rocksdb/CURRENT"), "written by a later version").unwrap();
    for attempt in [RocksDirectory::open(&path).err(), RocksDirectory::set_aside(&path).err()] {
        assert!(matches!(attempt, Some(DirectoryError::ForeignVersion { found: 2, known: 1, .. })), "{attempt:?}");
    }
    assert_eq!(fs::read(path.join("rocksdb/CURRENT")).unwrap(), b"written by a later version");
    assert_eq!(files(&path, ".sst").len(), 1);
}

#[test]
fn every_file_that_is_lost_or_garbage_makes_the_folder_damaged() {
    let lose = |file: &Path| fs::remove_file(file).unwrap();
    let replace = |file: &Path| fs::write(file, "garbage").unwrap();
    for part in ["FORMAT", "CURRENT", "MANIFEST", ".sst"] {
        for harm in [lose, replace, ruin] {
            let (_folder, path) = filled();
            harm(&newest_full(&path, part));
            assert_damaged(&path, part);
        }
    }
}

#[test]
fn a_flipped_bit_in_the_log_is_damage_and_not_the_end_of_the_log() {
    for tenth in 1..9 {
        let (_folder, path) = filled();
        let log = newest_full(&path, ".log");
        let mut bytes = fs::read(&log).unwrap();
        let at = bytes.len() * tenth / 10;
        bytes[at] ^= 1;
        fs::write(&log, bytes).unwrap();
        assert_damaged(&path, ".log");
    }
}

#[test]
fn garbage_in_the_middle_of_a_table_is_damage_at_the_latest_when_it_is_read() {
    let (_folder, path) = filled();
    let table = newest_full(&path, ".sst");
    let mut bytes = fs::read(&table).unwrap();
    bytes[100] ^= 1;
    fs::write(&table, bytes).unwrap();
    let found = RocksDirectory::open(&path).and_then(|directory| directory.scan(&mut |_| ()));
    assert!(matches!(found, Err(DirectoryError::Damaged { .. })), "{found:?}");
}

#[test]
fn a_log_that_ends_in_half_a_commit_loses_that_commit_only() {
    for cut in [1, 20, 100] {
        let (_folder, path) = filled();
        let log = newest_full(&path, ".log");
        let bytes = fs::read(&log).unwrap();
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        fs::write(&log, &bytes[..used - cut]).unwrap();
        assert_eq!(count(&RocksDirectory::open(&path).unwrap()), 1009, "cut={cut}");
    }
}

#[test]
fn a_damaged_folder_is_set_aside_and_a_new_one_is_made_in_its_place() {
    let (_folder, path) = filled();
    for _ in 0..2 {
        fs::write(path.join("rocksdb/CURRENT"), "garbage").unwrap();
        assert_damaged(&path, "CURRENT");
        let aside = RocksDirectory::set_aside(&path).unwrap();
        assert_eq!(fs::read(aside.join("CURRENT")).unwrap(), b"garbage");
        let directory = RocksDirectory::open(&path).unwrap();
        assert_eq!((count(&directory), directory.device().unwrap()), (0, None));
    }
}

#[test]
fn a_crash_while_the_folder_is_made_leaves_nothing_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("directory");
    fs::create_dir_all(path.join("rocksdb.new")).unwrap();
    fs::write(path.join("rocksdb.new/CURRENT"), "MANIFEST-0000").unwrap();
    let directory = RocksDirectory::open(&path).unwrap();
    directory.save_namespace(&namespace(1)).unwrap();
    assert!(!path.join("rocksdb.new").exists());
}

#[test]
fn an_open_directory_keeps_few_and_small_files() {
    let (_folder, path) = filled();
    for _ in 0..5 {
        drop(RocksDirectory::open(&path).unwrap());
    }
    let all = files(&path, "");
    let messages = files(&path, "LOG");
    assert!(all.len() <= 20 && messages.len() <= 2, "{all:?}");
    let bytes: u64 = all.iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert!(bytes < 1 << 20, "bytes={bytes}");
}
