//! F23: files of the RocksDB folder that are flipped, cut, lost or replaced, under an engine that must find its pages all the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn_core::PageKey;
use cairn_directory::{Change, Directory, DirectoryError, RocksDirectory};
use cairn_engine::OpenMode;
use cairn_testkit::dice::Dice;
use cairn_testkit::recorder::{Recorder, World};
use cairn_testkit::trials::{Rig, dice_of, seed};
use tempfile::TempDir;

use crate::at_rest::{is_whole, records, settle};
use crate::house::{Cairn, House, Seen};

/// A world, and a folder that says the same as its directory.
struct Worker {
    house: House,
    world: World,
    folder: TempDir,
}

impl Worker {
    fn new() -> Self {
        let house = House::new();
        let (_, world) = settle(&house, &mut dice_of(seed(), 0)).expect("a life");
        let folder = tempfile::tempdir().expect("a folder");
        fill(&folder.path().join("whole"), &world).expect("a directory");
        Self { house, world, folder }
    }
}

/// Half of the records in a table, half in the log.
fn fill(path: &Path, world: &World) -> Result<(), DirectoryError> {
    let puts: Vec<Change> = records(&world.directory).into_iter().map(Change::Put).collect();
    let (table, log) = puts.split_at(puts.len() / 2);
    let directory = RocksDirectory::open(path)?;
    for namespace in world.directory.namespaces.values() {
        directory.save_namespace(namespace)?;
    }
    directory.set_device(world.directory.device.expect("a device"))?;
    directory.commit(table)?;
    directory.close()?;
    let directory = RocksDirectory::open(path)?;
    log.chunks(3).try_for_each(|some| directory.commit(some))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        let to = to.join(entry.file_name().expect("a name"));
        if entry.is_dir() {
            copy(&entry, &to);
        } else {
            fs::copy(&entry, &to).expect("a copy");
        }
    }
}

/// Harms a file. Whether it may have lost the tail of the log, which nobody can notice.
fn harm(path: &Path, dice: &mut Dice) -> bool {
    let mut files: Vec<PathBuf> =
        fs::read_dir(path.join("rocksdb")).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    let file = &files[dice.place(files.len())];
    let mut bytes = fs::read(file).unwrap_or_default();
    let is_log = file.extension().is_some_and(|extension| extension == "log");
    match dice.place(6) {
        0 => drop(fs::remove_file(file)),
        1 => bytes.clear(),
        2 => bytes.truncate(dice.place(bytes.len())),
        3 => bytes.iter_mut().for_each(|byte| *byte = dice.roll().to_le_bytes()[0]),
        _ => {
            for _ in 0..=dice.place(3) {
                let at = dice.place(bytes.len());
                bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << (at % 8));
            }
            fs::write(file, &bytes).expect("written");
            return is_log;
        }
    }
    if file.exists() {
        fs::write(file, &bytes).expect("written");
    }
    is_log
}

/// Opens as the server does: what is damaged is set aside, once.
fn open(house: &House, recorder: &Arc<Recorder>, path: &Path) -> Result<(Cairn, bool), String> {
    for set_aside in [false, true] {
        let opened = match RocksDirectory::open(path) {
            Ok(directory) => house.open_with(recorder, Arc::new(directory)),
            Err(damaged @ DirectoryError::Damaged { .. }) => Err(format!("the directory is damaged: {damaged}")),
            Err(other) => return Err(format!("{other}")),
        };
        match opened {
            Ok(cairn) => return Ok((cairn, set_aside)),
            Err(failed) if set_aside || !failed.contains("the directory is damaged") => return Err(failed),
            Err(_) => drop(RocksDirectory::set_aside(path).map_err(|failed| failed.to_string())?),
        }
    }
    Err("it was set aside and is damaged again".to_owned())
}

#[test]
fn f23_a_corrupt_directory_is_set_aside_and_every_page_is_found() {
    let rig = Rig {
        name: "F23 corrupt directory",
        target: "-p cairn-engine --test crash -- --nocapture f23",
        trials: 300,
        nightly: 10_000,
        each: 1,
    };
    rig.run(Worker::new, |worker, _, dice| {
        let Worker { house, world, folder } = worker;
        let path = folder.path().join("harmed");
        fs::remove_dir_all(&path).ok();
        copy(&folder.path().join("whole"), &path);
        let mut lost_tail = harm(&path, dice);
        if dice.place(4) == 0 {
            lost_tail |= harm(&path, dice);
        }
        let recorder = Recorder::new(world.clone());
        let (cairn, set_aside) = match open(house, &recorder, &path) {
            // A version that nobody knows yet is not damage: it is for a later program.
            Err(failed) if failed.contains("a format that this version can not read") => return Ok(()),
            opened => opened?,
        };
        let rebuilt = cairn.engine.stats().recovery.mode == OpenMode::Rebuilt;
        if set_aside && !rebuilt {
            return Err("it was set aside and not made again".to_owned());
        }
        house.runtime.block_on(check(house, &cairn, world, lost_tail && !rebuilt))
    });
}

async fn check(house: &House, cairn: &Cairn, world: &World, may_miss: bool) -> Result<(), String> {
    let whole: Vec<PageKey> =
        records(&world.directory).iter().filter(|page| is_whole(page, world)).map(|page| page.key).collect();
    for place in &house.places {
        let seen = house.look(cairn, *place).await?;
        if whole.contains(&house.key(*place)) && seen != Seen::There && !may_miss {
            return Err(format!("I3: page {} of chain {} is {seen:?}", place.page, place.chain));
        }
    }
    Ok(())
}
