//! The data folder is used by one server at a time, and one that is not ours is left as it was.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use cairn_core::OsEntropy;
use cairn_server::data_folder::{DataFolder, FolderError};

/// Names and contents of everything in a folder.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entry = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.unwrap().path();
        (path.display().to_string(), fs::read(&path).unwrap_or_default())
    };
    fs::read_dir(folder).unwrap().map(entry).collect()
}

#[test]
fn a_folder_in_use_is_refused_until_it_is_let_go_of() {
    let folder = tempfile::tempdir().unwrap();
    let first = DataFolder::open(folder.path(), &OsEntropy).unwrap();
    let second = DataFolder::open(folder.path(), &OsEntropy).unwrap_err();
    assert!(matches!(second, FolderError::InUse { .. }), "{second}");
    drop(first);
    DataFolder::open(folder.path(), &OsEntropy).unwrap();
}

#[test]
fn a_folder_of_an_unknown_format_is_refused_and_untouched() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("FORMAT"), "cairn data folder, version 99\n").unwrap();
    let before = contents(folder.path());
    let error = DataFolder::open(folder.path(), &OsEntropy).unwrap_err();
    assert!(matches!(&error, FolderError::UnknownFormat { found, .. } if found.ends_with("99")), "{error}");
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn a_folder_of_something_else_is_refused_and_untouched() {
    for name in ["ssd", "photo.jpg"] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(name), "somebody's").unwrap();
        let before = contents(folder.path());
        let error = DataFolder::open(folder.path(), &OsEntropy).unwrap_err();
        assert!(matches!(&error, FolderError::NoFormat { found, .. } if found == name), "{error}");
        assert_eq!(contents(folder.path()), before);
    }
    // What a file system makes by itself is in nobody's way.
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("lost+found")).unwrap();
    DataFolder::open(folder.path(), &OsEntropy).unwrap();
}

#[test]
fn the_secret_is_made_once_and_is_for_the_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    drop(DataFolder::open(folder.path(), &OsEntropy).unwrap());
    let path = folder.path().join("secret");
    let first = fs::read(&path).unwrap();
    assert_eq!(first.len(), 32);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    drop(DataFolder::open(folder.path(), &OsEntropy).unwrap());
    assert_eq!(fs::read(&path).unwrap(), first);
    fs::write(&path, &first[..31]).unwrap();
    let error = DataFolder::open(folder.path(), &OsEntropy).unwrap_err();
    assert!(matches!(error, FolderError::SecretDamaged { bytes: 31, .. }), "{error}");
}

#[test]
fn a_folder_that_can_not_be_written_is_named() {
    let outer = tempfile::tempdir().unwrap();
    // A file where the folder should be stops root too, unlike a mode.
    let path = outer.path().join("file");
    fs::write(&path, "").unwrap();
    let error = DataFolder::open(&path, &OsEntropy).unwrap_err();
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");

    let folder = outer.path().join("folder");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o500)).unwrap();
    if fs::write(folder.join("probe"), "").is_ok() {
        return; // This user may write anywhere.
    }
    let error = DataFolder::open(&folder, &OsEntropy).unwrap_err();
    assert!(matches!(error, FolderError::ReadOnly { .. }), "{error}");
}
