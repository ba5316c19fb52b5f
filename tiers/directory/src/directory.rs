//! The seam between the engine and what keeps its records.

use std::fmt;

use cairn_core::{NamespaceId, PageKey};
use cairn_policy::{Ledger, ScrubMark};

use crate::record::{self, StoredKey};
use crate::{DeviceRecord, DirectoryError, NamespaceRecord, Record, RecordFault};

/// One change of the records of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The page is there; replaces what was known of it.
    Put(Record),
    /// The page is not there any more. Nothing happens if it was not known.
    Remove {
        /// Namespace of the page.
        namespace: NamespaceId,
        /// Key of the page.
        key: PageKey,
    },
    /// No page of the namespace is there any more. The namespace itself stays known.
    RemoveNamespace(NamespaceId),
}

/// What a scan met.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScanReport {
    /// Page records read and handed over.
    pub records: u64,
    /// Page records skipped because they are damaged, or of a version that is not known here. They stay where they are until their key
    /// is put again, or the namespace is removed; what they stood for is a miss.
    pub corrupt_records: u64,
    /// Namespace records that [`Directory::namespaces`] skips for the same reasons.
    pub corrupt_namespaces: u64,
}

/// Keeps the records of what is on the SSD. Every call blocks; none may be made from async code. A value is shared by threads.
///
/// After a write has failed, all further writes are refused ([`DirectoryError::Quarantined`], or [`DirectoryError::Full`] if it failed for
/// want of space) until the directory has been opened again: what the storage holds is not known before that.
pub trait Directory: Send + Sync + fmt::Debug {
    /// Makes `changes` in their order: all of them or, if it fails or the process dies, none. Durable when it returns.
    ///
    /// # Errors
    /// `Unfit` if a record can not be (nothing is changed), `Io`, `Quarantined`, `Closed`.
    fn commit(&self, changes: &[Change]) -> Result<(), DirectoryError>;

    /// Hands every page record to `visit`, by namespace and key. Damaged ones are skipped and counted.
    ///
    /// # Errors
    /// `Damaged` if the storage can not be read to its end: what was visited is good, what is missing is not known. `Io`, `Closed`.
    fn scan(&self, visit: &mut dyn FnMut(Record)) -> Result<ScanReport, DirectoryError>;

    /// Remembers a namespace; replaces the record with the same id. Durable when it returns.
    ///
    /// # Errors
    /// `Io`, `Quarantined`, `Closed`.
    fn save_namespace(&self, namespace: &NamespaceRecord) -> Result<(), DirectoryError>;

    /// The namespaces remembered, by id. Damaged records are skipped; [`Directory::scan`] counts them.
    ///
    /// # Errors
    /// `Damaged`, `Io`, `Closed`.
    fn namespaces(&self) -> Result<Vec<NamespaceRecord>, DirectoryError>;

    /// The device whose pages the records name; `None` if it was never set.
    ///
    /// # Errors
    /// `Damaged`, `Io`, `Closed`.
    fn device(&self) -> Result<Option<DeviceRecord>, DirectoryError>;

    /// Says which device's pages the records name, and in which of its runs. Durable when it returns.
    ///
    /// # Errors
    /// `Io`, `Quarantined`, `Closed`.
    fn set_device(&self, device: DeviceRecord) -> Result<(), DirectoryError>;

    /// The ledger of what was written to the device; `None` if there never was one.
    ///
    /// # Errors
    /// `Damaged`, `Io`, `Closed`.
    fn ledger(&self) -> Result<Option<Ledger>, DirectoryError>;

    /// Remembers the ledger. Durable when it returns.
    ///
    /// # Errors
    /// `Io`, `Quarantined`, `Closed`.
    fn save_ledger(&self, ledger: &Ledger) -> Result<(), DirectoryError>;

    /// Where the scrub of the device was; `None` if that was never remembered.
    ///
    /// # Errors
    /// `Damaged`, `Io`, `Closed`.
    fn scrub(&self) -> Result<Option<ScrubMark>, DirectoryError>;

    /// Remembers where the scrub is. Durable when it returns.
    ///
    /// # Errors
    /// `Io`, `Quarantined`, `Closed`.
    fn save_scrub(&self, mark: &ScrubMark) -> Result<(), DirectoryError>;

    /// Takes writes again after one failed: opens the storage anew, so that what it holds is known. What the failed write was to change has
    /// changed, or not. Does nothing if none failed.
    ///
    /// # Errors
    /// `Full`, after which it can be tried again; `Damaged`, `Io`, `Closed`, and it is closed then.
    fn release(&self) -> Result<(), DirectoryError>;

    /// Writes out what is buffered, so that the next start is fast, and lets go of the storage. Every later call answers `Closed`; a
    /// second `close` does nothing. Not needed for durability.
    ///
    /// # Errors
    /// `Io`; it is closed all the same.
    fn close(&self) -> Result<(), DirectoryError>;
}

/// The three kinds of records, kept apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[cfg_attr(not(feature = "testkit"), expect(unreachable_pub, reason = "the conformance suite shows it to rigs"))]
pub enum Family {
    /// Page records.
    Entries,
    /// Namespace records.
    Namespaces,
    /// The device, its ledger, and where its scrub was.
    Meta,
}

impl Family {
    pub(crate) const ALL: [Self; 3] = [Self::Entries, Self::Namespaces, Self::Meta];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Entries => "entries",
            Self::Namespaces => "namespaces",
            Self::Meta => "meta",
        }
    }
}

/// Receives changes as bytes.
pub(crate) trait Batch {
    fn put(&mut self, family: Family, key: &[u8], value: &[u8]);
    fn delete(&mut self, family: Family, key: &[u8]);
    /// Deletes all keys from `first` to before `end`.
    fn delete_range(&mut self, family: Family, first: &[u8], end: &[u8]);
}

/// Writes `changes` into `batch` as bytes, or refuses all of them.
pub(crate) fn encode_changes(changes: &[Change], batch: &mut impl Batch) -> Result<(), DirectoryError> {
    for change in changes {
        match change {
            Change::Put(record) => {
                record.check().map_err(DirectoryError::unfit(record.key))?;
                batch.put(Family::Entries, &record.stored_key(), &record.encode());
            }
            Change::Remove { namespace, key } => batch.delete(Family::Entries, &record::stored_key(namespace, key)),
            Change::RemoveNamespace(namespace) => {
                let (first, end) = record::stored_range(namespace);
                batch.delete_range(Family::Entries, &first, &end);
            }
        }
    }
    Ok(())
}

impl ScanReport {
    /// Decodes a page record, hands it over and counts it.
    pub(crate) fn take_record(&mut self, key: &[u8], value: &[u8], visit: &mut dyn FnMut(Record)) {
        match StoredKey::try_from(key).map_err(|_| RecordFault::Length).and_then(|key| Record::decode(&key, value)) {
            Ok(record) => {
                self.records += 1;
                visit(record);
            }
            Err(_) => self.corrupt_records += 1,
        }
    }

    /// Counts a namespace record if it is damaged.
    pub(crate) fn take_namespace(&mut self, key: &[u8], value: &[u8]) {
        self.corrupt_namespaces += u64::from(NamespaceRecord::decode(key, value).is_err());
    }
}
