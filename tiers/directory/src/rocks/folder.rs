//! The folder around the database: who may use it, which format it has, and whether the database in it can be what was left there.
//!
//! `LOCK` is locked by the system (`flock`) for the process that uses the folder, and free again however that ends. A database is made
//! under another name, marked with its format and then moved into place, so there is never half a one.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::DirectoryError;

/// Version of the folder's format.
const VERSION: u32 = 1;
const FORMAT_HEAD: &str = "cairn directory ";

/// A folder that this process has the lock on, for as long as the value lives.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Makes the folder if it is not there, and locks it.
    pub(super) fn lock(path: &Path) -> Result<Self, DirectoryError> {
        let io = |action| move |source| DirectoryError::of_path(path, action, source);
        fs::create_dir_all(path).map_err(io("create the folder"))?;
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path.join("LOCK"));
        Self::locked(path, lock.map_err(io("open the lock file"))?)
    }

    /// Locks the folder without changing anything in it. One that nobody has ever locked is nobody's.
    pub(super) fn lock_as_it_is(path: &Path) -> Result<Self, DirectoryError> {
        let io = |action| move |source| DirectoryError::of_path(path, action, source);
        let lock = match File::open(path.join("LOCK")) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => File::open(path),
            lock => lock,
        };
        let lock = match lock {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(DirectoryError::damaged("folder", "no folder"));
            }
            lock => lock.map_err(io("open the lock file"))?,
        };
        Self::locked(path, lock)
    }

    fn locked(path: &Path, lock: File) -> Result<Self, DirectoryError> {
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(DirectoryError::Locked { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(DirectoryError::of_path(path, "lock the folder", source)),
        }
    }

    /// Where the database is, if there is one.
    pub(super) fn database(&self) -> PathBuf {
        self.path.join("rocksdb")
    }

    /// Whether there is a database, of this format. Touches nothing.
    ///
    /// # Errors
    /// `ForeignVersion`; `Damaged` if it can not be what was left here.
    pub(super) fn has_database(&self) -> Result<bool, DirectoryError> {
        match fs::metadata(self.database()) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(source) => return Err(DirectoryError::of_path(&self.path, "look at the database", source)),
            Ok(_) => {}
        }
        self.check_version()?;
        self.check_pointer()?;
        Ok(true)
    }

    /// Makes a database with `make`, which is given its path and leaves it closed, and puts it in place.
    pub(super) fn make_database(
        &self,
        make: impl FnOnce(&Path) -> Result<(), DirectoryError>,
    ) -> Result<(), DirectoryError> {
        let io = |source| DirectoryError::of_path(&self.path, "make the database", source);
        let new = self.path.join("rocksdb.new");
        unless_absent(fs::remove_dir_all(&new)).map_err(io)?;
        make(&new)?;
        let place = || -> io::Result<()> {
            let mut format = File::create(new.join("FORMAT"))?;
            format.write_all(format!("{FORMAT_HEAD}{VERSION}\n").as_bytes())?;
            format.sync_all()?;
            File::open(&new)?.sync_all()?;
            fs::rename(&new, self.database())?;
            self.sync()
        };
        place().map_err(io)
    }

    /// Moves the database out of the way, in place of one that was moved before. Returns where it is now.
    ///
    /// # Errors
    /// `ForeignVersion`: that is not damage; `ReadOnly`, `Io`.
    pub(super) fn set_aside(&self) -> Result<PathBuf, DirectoryError> {
        if let Err(error @ DirectoryError::ForeignVersion { .. }) = self.check_version() {
            return Err(error);
        }
        let aside = self.path.join("rocksdb.damaged");
        let moving = || -> io::Result<()> {
            unless_absent(fs::remove_dir_all(&aside))?;
            unless_absent(fs::rename(self.database(), &aside))?;
            self.sync()
        };
        moving().map_err(|source| DirectoryError::of_path(&self.path, "set the database aside", source))?;
        Ok(aside)
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()?;
        match self.path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    }

    fn check_version(&self) -> Result<(), DirectoryError> {
        let text = self.read("FORMAT")?;
        let version = std::str::from_utf8(&text)
            .ok()
            .and_then(|text| text.strip_prefix(FORMAT_HEAD)?.strip_suffix('\n')?.parse::<u32>().ok());
        match version {
            Some(VERSION) => Ok(()),
            Some(found) => Err(DirectoryError::ForeignVersion { path: self.path.clone(), found, known: VERSION }),
            None => Err(DirectoryError::damaged("FORMAT", format!("{} bytes of something else", text.len()))),
        }
    }

    /// Follows the pointer to the manifest. RocksDB would answer a missing pointer by starting over, and a missing manifest like any
    /// other failed read.
    fn check_pointer(&self) -> Result<(), DirectoryError> {
        let pointer = self.read("CURRENT")?;
        let manifest = std::str::from_utf8(&pointer)
            .ok()
            .and_then(|text| text.strip_suffix('\n'))
            .filter(|name| name.starts_with("MANIFEST-") && !name.contains(['/', '\0']));
        let Some(manifest) = manifest else {
            return Err(DirectoryError::damaged("CURRENT", format!("{} bytes of something else", pointer.len())));
        };
        match fs::metadata(self.database().join(manifest)) {
            Ok(found) if found.is_file() => Ok(()),
            Ok(_) => Err(DirectoryError::damaged("manifest", "not a file")),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(DirectoryError::damaged("manifest", "no file")),
            Err(source) => Err(DirectoryError::of_path(&self.path, "look at the manifest", source)),
        }
    }

    /// A small file of the database, which must be there.
    fn read(&self, part: &'static str) -> Result<Vec<u8>, DirectoryError> {
        fs::read(self.database().join(part)).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => DirectoryError::damaged(part, "no file"),
            io::ErrorKind::NotADirectory => DirectoryError::damaged("rocksdb", "not a folder"),
            _ => DirectoryError::of_path(&self.path, "read a file of the database", source),
        })
    }
}

fn unless_absent(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
