//! The file system as a program sees it.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::fs::{self, File};
use std::io::Write;

use cairn_lazyfs::{LazyFs, Unsynced};
use cairn_testkit::dice::Dice;

#[test]
fn what_was_not_synced_is_seen_until_the_power_is_cut() {
    if let Err(reason) = LazyFs::is_possible() {
        eprintln!("skipped: no file system can be mounted here: {reason}");
        return;
    }
    let here = tempfile::tempdir().unwrap();
    let (below, at) = (here.path().join("below"), here.path().join("at"));
    fs::create_dir_all(&below).unwrap();
    fs::create_dir_all(&at).unwrap();
    let lazy = LazyFs::mount(&below, &at).unwrap();
    fs::create_dir(at.join("folder")).unwrap();
    let (synced, unsynced) = (at.join("folder/synced"), at.join("unsynced"));
    let mut file = File::create(&synced).unwrap();
    file.write_all(b"first").unwrap();
    file.sync_data().unwrap();
    file.write_all(b" second").unwrap();
    fs::write(&unsynced, b"whole").unwrap();
    fs::rename(&unsynced, at.join("renamed")).unwrap();
    assert_eq!(fs::read(&synced).unwrap(), b"first second");
    assert_eq!(fs::read(at.join("renamed")).unwrap(), b"whole");
    assert_eq!(fs::metadata(&synced).unwrap().len(), 12);
    drop(file);

    let cut = lazy.cut_power(Unsynced::Lost, &mut Dice::new(1)).unwrap();
    assert_eq!((cut.kept, cut.lost, cut.torn), (0, 2, 0));
    assert_eq!(fs::read(&synced).unwrap(), b"first");
    // A name is not held back: the file is there, and empty.
    assert_eq!(fs::read(at.join("renamed")).unwrap(), b"");
    assert!(!unsynced.exists());
    let mut names: Vec<_> = fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["folder", "renamed"]);

    fs::write(at.join("renamed"), b"again").unwrap();
    File::open(at.join("renamed")).unwrap().sync_all().unwrap();
    let left_open = File::open(at.join("renamed")).unwrap();
    drop(lazy);
    assert_eq!(fs::read(below.join("renamed")).unwrap(), b"again");
    assert!(fs::read_dir(&at).unwrap().next().is_none(), "it is unmounted");
    drop(left_open);
}
