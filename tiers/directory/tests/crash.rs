//! Processes that end badly: what they acknowledged is there afterwards.
//!
//! The test starts itself again as another process, which does one of the ignored tests below in the folder that it is told.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test panics when it fails")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cairn_directory::conformance::record;
use cairn_directory::{Change, Directory, DirectoryError, Record, RocksDirectory};

const FOLDER: &str = "CAIRN_TEST_FOLDER";

fn acknowledge(line: &str) {
    println!("\nacknowledged {line}");
}

/// The lines that a process acknowledged.
fn acknowledged(output: impl std::io::Read) -> impl Iterator<Item = String> {
    BufReader::new(output)
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| Some(line.strip_prefix("acknowledged ")?.to_owned()))
}

/// The folder that the process was told to use; `None` if someone else runs all ignored tests.
fn told_folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

fn keys_in(path: &Path) -> Vec<u32> {
    let mut positions = Vec::new();
    let report = RocksDirectory::open(path).unwrap().scan(&mut |found| positions.push(found)).unwrap();
    assert_eq!(report.corrupt_records, 0);
    positions.iter().map(|found| u32::try_from(found.generation.to_u64() - 1).unwrap()).collect()
}

fn child(test: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]).env(FOLDER, folder);
    command.stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::null());
    command
}

#[test]
fn case_16_a_killed_process_held_the_lock_and_loses_nothing_it_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = child("commits_until_killed", folder.path()).spawn().unwrap();
    let mut lines = acknowledged(process.stdout.take().unwrap());
    let mut last: u32 = lines.by_ref().take(50).last().unwrap().parse().unwrap();
    let refused = RocksDirectory::open(folder.path());
    assert!(matches!(refused, Err(DirectoryError::Locked { .. })), "{refused:?}");
    process.kill().unwrap();
    if let Some(later) = lines.last() {
        last = later.parse().unwrap();
    }
    process.wait().unwrap();
    let keys = keys_in(folder.path());
    assert!(keys.len() > last as usize, "last={last} keys={}", keys.len());
    assert!(keys.iter().copied().eq(0..u32::try_from(keys.len()).unwrap()), "no gaps");
}

#[test]
#[ignore = "the process that is killed by another test"]
fn commits_until_killed() {
    let Some(folder) = told_folder() else { return };
    let directory = RocksDirectory::open(&folder).unwrap();
    for key in 0.. {
        directory.commit(&[Change::Put(record(1, key))]).unwrap();
        acknowledge(&key.to_string());
    }
}

#[test]
fn case_14_after_a_failed_write_nothing_is_written_and_nothing_acknowledged_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    // Files may not grow beyond 64 KiB: to the process that is a disk which fails.
    let limited = "trap '' XFSZ; ulimit -f 128; exec \"$0\" \"$@\"";
    let plain = child("commits_until_a_write_fails", folder.path());
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(limited).arg(plain.get_program()).args(plain.get_args()).env(FOLDER, folder.path());
    let output = shell.output().unwrap();
    let mut lines: Vec<String> = acknowledged(&*output.stdout).collect();
    assert_eq!(lines.pop().as_deref(), Some("quarantined"), "{}", String::from_utf8_lossy(&output.stderr));
    let last: u32 = lines.pop().unwrap().parse().unwrap();
    let keys = keys_in(folder.path());
    assert!(keys.starts_with(&(0..=last).collect::<Vec<_>>()), "last={last} keys={}", keys.len());
    assert!(keys.len() <= last as usize + 2, "at most the commit that failed is there besides: keys={}", keys.len());
}

#[test]
#[ignore = "the process that another test gives a small disk"]
fn commits_until_a_write_fails() {
    let Some(folder) = told_folder() else { return };
    let directory = RocksDirectory::open(&folder).unwrap();
    let failure = (0..10_000).find_map(|key| {
        let failure = directory.commit(&[Change::Put(record(1, key))]).err();
        if failure.is_none() {
            acknowledge(&key.to_string());
        }
        failure
    });
    assert!(matches!(failure, Some(DirectoryError::Io { .. })), "{failure:?}");
    let refused = directory.commit(&[Change::Put(record(2, 0))]);
    assert!(matches!(refused, Err(DirectoryError::Quarantined)), "{refused:?}");
    let before = directory.scan(&mut |_| ()).unwrap().records;
    // The limit is on each file, and a database that is opened anew begins new ones: now there is room.
    directory.release().unwrap();
    directory.commit(&[Change::Put(record(2, 0))]).unwrap();
    let after = directory.scan(&mut |_| ()).unwrap().records;
    assert!((before + 1..=before + 2).contains(&after), "the commit that failed is there, or not: {before} {after}");
    let Record { namespace, key, .. } = record(2, 0);
    directory.commit(&[Change::Remove { namespace, key }]).unwrap();
    directory.close().unwrap();
    acknowledge("quarantined");
}
