//! A directory in memory: the same semantics and the same bytes, for tests and for servers without an SSD.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cairn_policy::{Ledger, ScrubMark};
use parking_lot::Mutex;

use crate::directory::{Batch, Family, encode_changes};
use crate::record::{self, DEVICE_KEY, LEDGER_KEY, SCRUB_KEY};
use crate::{Change, DeviceRecord, Directory, DirectoryError, NamespaceRecord, Record, ScanReport};

/// Keeps records in memory, encoded as on disk. They live as long as the value and all that were [reopened](Self::reopen) from it.
#[derive(Debug, Default)]
pub struct MemoryDirectory {
    stored: Arc<Mutex<Stored>>,
    closed: AtomicBool,
}

/// Values by family and key.
type Stored = BTreeMap<(Family, Vec<u8>), Vec<u8>>;

impl MemoryDirectory {
    /// An empty directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// A directory with the records of this one, as a restarted process would see it; open even if this one is closed.
    pub fn reopen(&self) -> Self {
        Self { stored: Arc::clone(&self.stored), closed: AtomicBool::new(false) }
    }

    fn check_open(&self) -> Result<(), DirectoryError> {
        if self.closed.load(Ordering::Acquire) { Err(DirectoryError::Closed) } else { Ok(()) }
    }
}

fn all_of(stored: &Stored, family: Family) -> impl Iterator<Item = (&Vec<u8>, &Vec<u8>)> {
    let of_family = move |((found, _), _): &(&(Family, Vec<u8>), &Vec<u8>)| *found == family;
    stored.range((family, Vec::new())..).take_while(of_family).map(|((_, key), value)| (key, value))
}

impl Batch for Stored {
    fn put(&mut self, family: Family, key: &[u8], value: &[u8]) {
        self.insert((family, key.to_vec()), value.to_vec());
    }

    fn delete(&mut self, family: Family, key: &[u8]) {
        self.remove(&(family, key.to_vec()));
    }

    fn delete_range(&mut self, family: Family, first: &[u8], end: &[u8]) {
        let range = (family, first.to_vec())..(family, end.to_vec());
        let keys: Vec<(Family, Vec<u8>)> = self.range(range).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.remove(&key);
        }
    }
}

impl Directory for MemoryDirectory {
    fn commit(&self, changes: &[Change]) -> Result<(), DirectoryError> {
        self.check_open()?;
        // All or nothing: an unfit record is found on the way through a batch that goes nowhere.
        encode_changes(changes, &mut Nowhere)?;
        encode_changes(changes, &mut *self.stored.lock())
    }

    fn scan(&self, visit: &mut dyn FnMut(Record)) -> Result<ScanReport, DirectoryError> {
        self.check_open()?;
        // A copy, so that `visit` may call back.
        let stored = self.stored.lock().clone();
        let mut report = ScanReport::default();
        for (key, value) in all_of(&stored, Family::Entries) {
            report.take_record(key, value, visit);
        }
        for (key, value) in all_of(&stored, Family::Namespaces) {
            report.take_namespace(key, value);
        }
        Ok(report)
    }

    fn save_namespace(&self, namespace: &NamespaceRecord) -> Result<(), DirectoryError> {
        self.check_open()?;
        let value = namespace.encode().map_err(DirectoryError::unfit(namespace.id))?;
        self.stored.lock().put(Family::Namespaces, namespace.id.as_bytes(), &value);
        Ok(())
    }

    fn namespaces(&self) -> Result<Vec<NamespaceRecord>, DirectoryError> {
        self.check_open()?;
        let stored = self.stored.lock();
        Ok(all_of(&stored, Family::Namespaces).filter_map(|(k, v)| NamespaceRecord::decode(k, v).ok()).collect())
    }

    fn device(&self) -> Result<Option<DeviceRecord>, DirectoryError> {
        self.check_open()?;
        let stored = self.stored.lock();
        let value = stored.get(&(Family::Meta, DEVICE_KEY.to_vec()));
        let device = value.map(|value| record::decode_device(value)).transpose();
        device.map_err(|fault| DirectoryError::damaged("device record", fault.to_string()))
    }

    fn set_device(&self, device: DeviceRecord) -> Result<(), DirectoryError> {
        self.check_open()?;
        self.stored.lock().put(Family::Meta, DEVICE_KEY, &record::encode_device(&device));
        Ok(())
    }

    fn ledger(&self) -> Result<Option<Ledger>, DirectoryError> {
        self.check_open()?;
        let stored = self.stored.lock();
        let value = stored.get(&(Family::Meta, LEDGER_KEY.to_vec()));
        let ledger = value.map(|value| record::decode_ledger(value)).transpose();
        ledger.map_err(|fault| DirectoryError::damaged("ledger", fault.to_string()))
    }

    fn save_ledger(&self, ledger: &Ledger) -> Result<(), DirectoryError> {
        self.check_open()?;
        self.stored.lock().put(Family::Meta, LEDGER_KEY, &record::encode_ledger(ledger));
        Ok(())
    }

    fn scrub(&self) -> Result<Option<ScrubMark>, DirectoryError> {
        self.check_open()?;
        let stored = self.stored.lock();
        let value = stored.get(&(Family::Meta, SCRUB_KEY.to_vec()));
        let mark = value.map(|value| record::decode_scrub(value)).transpose();
        mark.map_err(|fault| DirectoryError::damaged("mark of the scrub", fault.to_string()))
    }

    fn save_scrub(&self, mark: &ScrubMark) -> Result<(), DirectoryError> {
        self.check_open()?;
        self.stored.lock().put(Family::Meta, SCRUB_KEY, &record::encode_scrub(mark));
        Ok(())
    }

    fn release(&self) -> Result<(), DirectoryError> {
        self.check_open()
    }

    fn close(&self) -> Result<(), DirectoryError> {
        self.closed.store(true, Ordering::Release);
        Ok(())
    }
}

/// A batch that forgets.
struct Nowhere;

impl Batch for Nowhere {
    fn put(&mut self, _: Family, _: &[u8], _: &[u8]) {}
    fn delete(&mut self, _: Family, _: &[u8]) {}
    fn delete_range(&mut self, _: Family, _: &[u8], _: &[u8]) {}
}

#[cfg(feature = "testkit")]
impl crate::conformance::Tamper for MemoryDirectory {
    fn stored(&self, family: Family, key: &[u8]) -> Option<Vec<u8>> {
        self.stored.lock().get(&(family, key.to_vec())).cloned()
    }

    fn store(&self, family: Family, key: &[u8], value: Option<&[u8]>) -> bool {
        let mut stored = self.stored.lock();
        match value {
            Some(value) => stored.put(family, key, value),
            None => stored.delete(family, key),
        }
        true
    }
}
