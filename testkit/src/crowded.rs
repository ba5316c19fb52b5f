//! A device whose filesystem has no room, or has some again.

use std::sync::atomic::{AtomicBool, Ordering};

use cairn_ssd::{Device, DeviceError};

/// Another device that refuses to allocate while it is full. What it has already can be read and written. It is no file to an `io_uring`.
#[derive(Debug)]
pub struct Crowded<D> {
    device: D,
    is_full: AtomicBool,
}

impl<D> Crowded<D> {
    /// `device` on a filesystem that is full, or not.
    pub fn new(device: D, is_full: bool) -> Self {
        Self { device, is_full: AtomicBool::new(is_full) }
    }

    /// Somebody else fills the filesystem, or makes room.
    pub fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::SeqCst);
    }
}

impl<D: Device> Device for Crowded<D> {
    fn bytes(&self) -> u64 {
        self.device.bytes()
    }

    fn read_at(&self, at: u64, parts: &mut [&mut [u8]]) -> Result<(), DeviceError> {
        self.device.read_at(at, parts)
    }

    fn write_at(&self, at: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        self.device.write_at(at, parts)
    }

    fn barrier(&self) -> Result<(), DeviceError> {
        self.device.barrier()
    }

    fn allocate(&self, at: u64, bytes: u64) -> Result<(), DeviceError> {
        if self.is_full.load(Ordering::SeqCst) { Err(DeviceError::Full { at, bytes }) } else { Ok(()) }
    }

    fn describe(&self) -> &str {
        self.device.describe()
    }
}
