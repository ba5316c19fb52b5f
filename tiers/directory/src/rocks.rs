//! The directory in RocksDB.
//!
//! A commit is one write batch with a synced log: that is all the durability there is, the rest of RocksDB only keeps the log short.
//! Families: see `record.rs`. Locks: none of our own around a write, RocksDB orders them; the one lock here keeps `close` and the calls
//! in flight apart.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use cairn_policy::{Ledger, ScrubMark};
use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard};
use rocksdb::{ColumnFamily, DB, ErrorKind, ReadOptions, WriteBatch};

use crate::directory::{Batch, Family, encode_changes};
use crate::record::{self, DEVICE_KEY, LEDGER_KEY, SCRUB_KEY};
use crate::{Change, DeviceRecord, Directory, DirectoryError, NamespaceRecord, Record, ScanReport};

mod folder;
mod options;

use folder::Folder;

/// Keeps records in a folder on a local disk.
#[derive(Debug)]
pub struct RocksDirectory {
    /// `None` once closed.
    open: RwLock<Option<Open>>,
    /// Set by the first write that fails, until the database has been opened anew.
    quarantined: AtomicBool,
    /// It failed for want of space.
    full: AtomicBool,
}

#[derive(Debug)]
struct Open {
    // In this order: the lock is let go of last.
    /// `None` while there is no room to open it anew.
    db: Option<DB>,
    folder: Folder,
}

impl RocksDirectory {
    /// Opens the directory in the folder `path`; makes it if there is none. Blocks while the log is replayed, for up to a second.
    ///
    /// # Errors
    /// `Locked`, `ReadOnly`, `ForeignVersion`, `Damaged`, `Io`. Nothing is repaired and a foreign folder is not touched.
    pub fn open(path: &Path) -> Result<Self, DirectoryError> {
        let folder = Folder::lock(path)?;
        if !folder.has_database()? {
            folder.make_database(|path| open_database(path, true).map(drop))?;
        }
        let db = open_database(&folder.database(), false)?;
        Ok(Self::with(db, folder, false))
    }

    /// Opens a directory that nobody uses, to look at it: nothing of the folder changes, and writes are refused. Blocks.
    ///
    /// # Errors
    /// `Locked`, `ForeignVersion`, `Damaged` (also if there is no database), `Io`.
    pub fn open_to_look(path: &Path) -> Result<Self, DirectoryError> {
        let folder = Folder::lock_as_it_is(path)?;
        if !folder.has_database()? {
            return Err(DirectoryError::damaged("rocksdb", "no database"));
        }
        let families = Family::ALL.map(Family::name);
        let db = DB::open_cf_for_read_only(&options::open(false), folder.database(), families, false);
        let db = db.map_err(of_open)?;
        Ok(Self::with(db, folder, true))
    }

    /// Moves the database of a damaged directory out of the way, for someone to look at, so that [`RocksDirectory::open`] makes a new one.
    /// One is kept; the one that was set aside before is deleted. Returns where it is now.
    ///
    /// # Errors
    /// `Locked`, `ReadOnly`, `ForeignVersion` (that is not damage), `Io`.
    pub fn set_aside(path: &Path) -> Result<PathBuf, DirectoryError> {
        Folder::lock(path)?.set_aside()
    }

    fn with(db: DB, folder: Folder, quarantined: bool) -> Self {
        let open = RwLock::new(Some(Open { db: Some(db), folder }));
        Self { open, quarantined: AtomicBool::new(quarantined), full: AtomicBool::new(false) }
    }

    fn db(&self) -> Result<MappedRwLockReadGuard<'_, DB>, DirectoryError> {
        let open = self.open.read();
        let without = if open.is_some() { self.refused() } else { DirectoryError::Closed };
        RwLockReadGuard::try_map(open, |open| open.as_ref()?.db.as_ref()).map_err(|_| without)
    }

    fn refused(&self) -> DirectoryError {
        if self.full.load(Ordering::Acquire) {
            DirectoryError::Full { action: "write a batch", source: io::ErrorKind::StorageFull.into() }
        } else {
            DirectoryError::Quarantined
        }
    }

    fn write(&self, db: &DB, batch: WriteBatch) -> Result<(), DirectoryError> {
        if self.quarantined.load(Ordering::Acquire) {
            return Err(self.refused());
        }
        if batch.is_empty() {
            return Ok(());
        }
        db.write_opt(batch, &options::durable()).map_err(|error| {
            let error = of_use("write a batch", error);
            self.full.store(matches!(error, DirectoryError::Full { .. }), Ordering::Release);
            self.quarantined.store(true, Ordering::Release);
            error
        })
    }

    fn put(&self, family: Family, key: &[u8], value: &[u8]) -> Result<(), DirectoryError> {
        let db = self.db()?;
        let mut batch = FamilyBatch::new(&db)?;
        batch.put(family, key, value);
        self.write(&db, batch.changes)
    }

    /// The value of `key` in the family `meta`, decoded.
    fn meta<T>(&self, key: &[u8], decode: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, DirectoryError> {
        let db = self.db()?;
        let value = db.get_pinned_cf_opt(family_of(&db, Family::Meta)?, key, &ReadOptions::default());
        Ok(value.map_err(|error| of_use("read a record of meta", error))?.map(|value| decode(&value)))
    }
}

impl Directory for RocksDirectory {
    fn commit(&self, changes: &[Change]) -> Result<(), DirectoryError> {
        let db = self.db()?;
        let mut batch = FamilyBatch::new(&db)?;
        encode_changes(changes, &mut batch)?;
        self.write(&db, batch.changes)
    }

    fn scan(&self, visit: &mut dyn FnMut(Record)) -> Result<ScanReport, DirectoryError> {
        let db = self.db()?;
        let mut report = ScanReport::default();
        for_each(&db, Family::Entries, &mut |key, value| report.take_record(key, value, visit))?;
        for_each(&db, Family::Namespaces, &mut |key, value| report.take_namespace(key, value))?;
        Ok(report)
    }

    fn save_namespace(&self, namespace: &NamespaceRecord) -> Result<(), DirectoryError> {
        let value = namespace.encode().map_err(DirectoryError::unfit(namespace.id))?;
        self.put(Family::Namespaces, namespace.id.as_bytes(), &value)
    }

    fn namespaces(&self) -> Result<Vec<NamespaceRecord>, DirectoryError> {
        let mut namespaces = Vec::new();
        for_each(&*self.db()?, Family::Namespaces, &mut |key, value| {
            namespaces.extend(NamespaceRecord::decode(key, value));
        })?;
        Ok(namespaces)
    }

    fn device(&self) -> Result<Option<DeviceRecord>, DirectoryError> {
        let device = self.meta(DEVICE_KEY, record::decode_device)?.transpose();
        device.map_err(|fault| DirectoryError::damaged("device record", fault.to_string()))
    }

    fn set_device(&self, device: DeviceRecord) -> Result<(), DirectoryError> {
        self.put(Family::Meta, DEVICE_KEY, &record::encode_device(&device))
    }

    fn ledger(&self) -> Result<Option<Ledger>, DirectoryError> {
        let ledger = self.meta(LEDGER_KEY, record::decode_ledger)?.transpose();
        ledger.map_err(|fault| DirectoryError::damaged("ledger", fault.to_string()))
    }

    fn save_ledger(&self, ledger: &Ledger) -> Result<(), DirectoryError> {
        self.put(Family::Meta, LEDGER_KEY, &record::encode_ledger(ledger))
    }

    fn scrub(&self) -> Result<Option<ScrubMark>, DirectoryError> {
        let mark = self.meta(SCRUB_KEY, record::decode_scrub)?.transpose();
        mark.map_err(|fault| DirectoryError::damaged("mark of the scrub", fault.to_string()))
    }

    fn save_scrub(&self, mark: &ScrubMark) -> Result<(), DirectoryError> {
        self.put(Family::Meta, SCRUB_KEY, &record::encode_scrub(mark))
    }

    fn release(&self) -> Result<(), DirectoryError> {
        let mut open = self.open.write();
        if open.is_some() && !self.quarantined.load(Ordering::Acquire) {
            return Ok(());
        }
        let Open { db, folder } = open.take().ok_or(DirectoryError::Closed)?;
        // Before it is opened again: two of one database would not see each other.
        drop(db);
        let db = match open_database(&folder.database(), false) {
            Ok(db) => db,
            Err(full @ DirectoryError::Full { .. }) => {
                *open = Some(Open { db: None, folder });
                return Err(full);
            }
            Err(failed) => return Err(failed),
        };
        *open = Some(Open { db: Some(db), folder });
        self.full.store(false, Ordering::Release);
        self.quarantined.store(false, Ordering::Release);
        Ok(())
    }

    fn close(&self) -> Result<(), DirectoryError> {
        let Some(Open { db: Some(db), folder: _folder }) = self.open.write().take() else { return Ok(()) };
        let flushed = match self.quarantined.load(Ordering::Acquire) {
            // What the log holds is all that was acknowledged.
            true => Ok(()),
            false => flush(&db),
        };
        db.cancel_all_background_work(true);
        drop(db);
        flushed
    }
}

fn open_database(path: &Path, create: bool) -> Result<DB, DirectoryError> {
    DB::open_cf(&options::open(create), path, Family::ALL.map(Family::name)).map_err(of_open)
}

fn flush(db: &DB) -> Result<(), DirectoryError> {
    for family in Family::ALL {
        db.flush_cf(family_of(db, family)?).map_err(|error| of_use("flush", error))?;
    }
    Ok(())
}

/// Calls `visit` with every key and value of `family`, in order of the keys.
fn for_each(db: &DB, family: Family, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), DirectoryError> {
    let mut at = db.raw_iterator_cf_opt(family_of(db, family)?, options::scan());
    at.seek_to_first();
    while let Some((key, value)) = at.item() {
        visit(key, value);
        at.next();
    }
    at.status().map_err(|error| of_use("scan", error))
}

fn family_of(db: &DB, family: Family) -> Result<&ColumnFamily, DirectoryError> {
    db.cf_handle(family.name()).ok_or_else(|| DirectoryError::damaged(family.name(), "no such family"))
}

/// A write batch that knows the families.
struct FamilyBatch<'a> {
    families: [&'a ColumnFamily; 3],
    changes: WriteBatch,
}

impl<'a> FamilyBatch<'a> {
    fn new(db: &'a DB) -> Result<Self, DirectoryError> {
        let [entries, namespaces, meta] = Family::ALL.map(|family| family_of(db, family));
        Ok(Self { families: [entries?, namespaces?, meta?], changes: WriteBatch::default() })
    }

    fn of(&self, family: Family) -> &'a ColumnFamily {
        let [entries, namespaces, meta] = self.families;
        match family {
            Family::Entries => entries,
            Family::Namespaces => namespaces,
            Family::Meta => meta,
        }
    }
}

impl Batch for FamilyBatch<'_> {
    fn put(&mut self, family: Family, key: &[u8], value: &[u8]) {
        self.changes.put_cf(self.of(family), key, value);
    }

    fn delete(&mut self, family: Family, key: &[u8]) {
        self.changes.delete_cf(self.of(family), key);
    }

    fn delete_range(&mut self, family: Family, first: &[u8], end: &[u8]) {
        self.changes.delete_range_cf(self.of(family), first, end);
    }
}

/// An error of RocksDB while it opens: whatever is not the storage's fault says that the files are not what was left there.
fn of_open(error: rocksdb::Error) -> DirectoryError {
    match error.kind() {
        ErrorKind::IOError | ErrorKind::Busy | ErrorKind::TimedOut => of_use("open the database", error),
        _ => DirectoryError::damaged("rocksdb", error.into_string()),
    }
}

fn of_use(action: &'static str, error: rocksdb::Error) -> DirectoryError {
    match error.kind() {
        ErrorKind::Corruption => DirectoryError::damaged("rocksdb", error.into_string()),
        _ if is_full(&error) => DirectoryError::Full { action, source: io::Error::other(error) },
        _ => DirectoryError::Io { action, source: io::Error::other(error) },
    }
}

/// RocksDB says so in words only: those of the system.
fn is_full(error: &rocksdb::Error) -> bool {
    let words = error.as_ref();
    ["No space left on device", "Disk quota exceeded"].iter().any(|full| words.contains(full))
}

#[cfg(feature = "testkit")]
impl crate::conformance::Tamper for RocksDirectory {
    fn stored(&self, family: Family, key: &[u8]) -> Option<Vec<u8>> {
        let db = self.db().ok()?;
        db.get_cf(family_of(&db, family).ok()?, key).ok().flatten()
    }

    fn store(&self, family: Family, key: &[u8], value: Option<&[u8]>) -> bool {
        let Ok(db) = self.db() else { return false };
        let Ok(mut batch) = FamilyBatch::new(&db) else { return false };
        match value {
            Some(value) => batch.put(family, key, value),
            None => batch.delete(family, key),
        }
        self.write(&db, batch.changes).is_ok()
    }
}
