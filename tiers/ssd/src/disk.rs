//! The device as the tier uses it: every byte is counted, every barrier timed, and the first failed write or barrier ends all writing.
//!
//! Written bytes are counted when the write begins, here for all who write: one that failed, or whose outcome nobody knows, may have worn
//! the medium all the same.

use std::fmt;
use std::sync::Arc;

use cairn_core::Clock;
use cairn_core::metrics::Metrics;

use crate::device::{Device, DeviceError, total};
use crate::error::SsdError;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

pub(crate) struct Disk {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Arc<Metrics>,
    written_bytes: AtomicU64,
    write_quarantined: AtomicBool,
    barrier_turn: Mutex<()>,
}

impl Disk {
    pub(crate) fn new(device: Arc<dyn Device>, clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Self {
        metrics.ssd_write_quarantined.set(0);
        Self {
            device,
            clock,
            metrics,
            written_bytes: AtomicU64::new(0),
            write_quarantined: AtomicBool::new(false),
            barrier_turn: Mutex::new(()),
        }
    }

    /// The device is no file: it is a test's, which counts steps. Then one thing is done after the other, so that their order is always the
    /// same.
    pub(crate) fn is_in_step(&self) -> bool {
        self.device.ring_file().is_none()
    }

    pub(crate) fn read(&self, at: u64, parts: &mut [&mut [u8]]) -> Result<(), DeviceError> {
        self.device.read_at(at, parts)?;
        self.metrics.ssd_read_bytes.inc_by(total(parts));
        Ok(())
    }

    pub(crate) fn write(&self, at: u64, parts: &[&[u8]]) -> Result<(), SsdError> {
        self.writable()?;
        self.begins_to_write(total(parts));
        self.device.write_at(at, parts).map_err(|error| self.quarantine(error))
    }

    /// Counts a write that is about to be handed to the device.
    pub(crate) fn begins_to_write(&self, bytes: u64) {
        self.written_bytes.fetch_add(bytes, Ordering::SeqCst);
        self.metrics.ssd_written_bytes.inc_by(bytes);
    }

    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::SeqCst)
    }

    /// Want of space is no failed write: nothing was to change.
    pub(crate) fn allocate(&self, at: u64, bytes: u64) -> Result<(), SsdError> {
        self.device.allocate(at, bytes).map_err(|error| match error {
            full @ DeviceError::Full { .. } => SsdError::Device(full),
            error => self.quarantine(error),
        })
    }

    /// False if the device can not be told.
    pub(crate) fn trim(&self, at: u64, bytes: u64) -> Result<bool, SsdError> {
        self.writable()?;
        let trimmed = self.device.trim(at, bytes)?;
        if trimmed {
            self.metrics.ssd_trimmed_bytes.inc_by(bytes);
        }
        Ok(trimmed)
    }

    /// One at a time, and the quarantine is looked at when the turn has come: the kernel tells of a failed write-back once, so a second
    /// barrier beside a failing one would succeed although its pages are lost.
    pub(crate) fn barrier(&self) -> Result<(), SsdError> {
        let _turn = self.barrier_turn.lock();
        self.writable()?;
        let start = self.clock.now();
        let outcome = self.device.barrier().map_err(|error| self.quarantine(error));
        self.metrics.ssd_barrier_seconds.observe(self.clock.now().since(start).as_secs_f64());
        outcome
    }

    pub(crate) fn writable(&self) -> Result<(), SsdError> {
        if self.is_write_quarantined() { Err(SsdError::WriteQuarantined) } else { Ok(()) }
    }

    pub(crate) fn is_write_quarantined(&self) -> bool {
        self.write_quarantined.load(Ordering::SeqCst)
    }

    /// Takes writes again.
    pub(crate) fn release(&self) {
        self.write_quarantined.store(false, Ordering::SeqCst);
        self.metrics.ssd_write_quarantined.set(0);
    }

    pub(crate) fn quarantine(&self, error: DeviceError) -> SsdError {
        self.write_quarantined.store(true, Ordering::SeqCst);
        self.metrics.ssd_write_quarantined.set(1);
        SsdError::Device(error)
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk")
            .field("device", &self.device)
            .field("write_quarantined", &self.is_write_quarantined())
            .finish_non_exhaustive()
    }
}
