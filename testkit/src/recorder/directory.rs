//! The directory of a recorder.

use std::sync::Arc;

use cairn_directory::{Change, DeviceRecord, Directory, DirectoryError, NamespaceRecord, Record, ScanReport};
use cairn_policy::{Ledger, ScrubMark};

use super::{Point, Recorder};

#[derive(Debug)]
pub(super) struct RecordedDirectory {
    pub(super) recorder: Arc<Recorder>,
    pub(super) real: Option<Arc<dyn Directory>>,
}

/// Makes the same change in a real directory.
pub(super) fn change(real: &dyn Directory, point: &Point) -> Result<(), DirectoryError> {
    match point {
        Point::Commit(changes) => real.commit(changes),
        Point::Namespace(record) => real.save_namespace(record),
        Point::Device(device) => real.set_device(*device),
        _ => Ok(()),
    }
}

impl Directory for RecordedDirectory {
    fn commit(&self, changes: &[Change]) -> Result<(), DirectoryError> {
        self.recorder.change_directory(Point::Commit(changes.into()), self.real.as_deref())
    }

    fn scan(&self, visit: &mut dyn FnMut(Record)) -> Result<ScanReport, DirectoryError> {
        if let Some(real) = &self.real {
            return real.scan(visit);
        }
        let records = self.recorder.directory_state().records;
        let report = ScanReport { records: records.len() as u64, ..ScanReport::default() };
        records.into_values().for_each(visit);
        Ok(report)
    }

    fn save_namespace(&self, namespace: &NamespaceRecord) -> Result<(), DirectoryError> {
        self.recorder.change_directory(Point::Namespace(Box::new(namespace.clone())), self.real.as_deref())
    }

    fn namespaces(&self) -> Result<Vec<NamespaceRecord>, DirectoryError> {
        if let Some(real) = &self.real {
            return real.namespaces();
        }
        Ok(self.recorder.directory_state().namespaces.into_values().collect())
    }

    fn device(&self) -> Result<Option<DeviceRecord>, DirectoryError> {
        if let Some(real) = &self.real {
            return real.device();
        }
        Ok(self.recorder.directory_state().device)
    }

    fn set_device(&self, device: DeviceRecord) -> Result<(), DirectoryError> {
        self.recorder.change_directory(Point::Device(device), self.real.as_deref())
    }

    fn ledger(&self) -> Result<Option<Ledger>, DirectoryError> {
        self.real.as_ref().map_or_else(|| Ok(self.recorder.state.lock().ledger), |real| real.ledger())
    }

    fn save_ledger(&self, ledger: &Ledger) -> Result<(), DirectoryError> {
        self.recorder.begin_change()?.ledger = Some(*ledger);
        self.real.as_ref().map_or(Ok(()), |real| real.save_ledger(ledger))
    }

    fn scrub(&self) -> Result<Option<ScrubMark>, DirectoryError> {
        self.real.as_ref().map_or_else(|| Ok(self.recorder.state.lock().scrub), |real| real.scrub())
    }

    fn save_scrub(&self, mark: &ScrubMark) -> Result<(), DirectoryError> {
        self.recorder.begin_change()?.scrub = Some(*mark);
        self.real.as_ref().map_or(Ok(()), |real| real.save_scrub(mark))
    }

    fn release(&self) -> Result<(), DirectoryError> {
        self.recorder.state.lock().directory_failed = false;
        self.real.as_ref().map_or(Ok(()), |real| real.release())
    }

    fn close(&self) -> Result<(), DirectoryError> {
        self.real.as_ref().map_or(Ok(()), |real| real.close())
    }
}
