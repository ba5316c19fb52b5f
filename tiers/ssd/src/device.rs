//! The seam to the disk: positioned reads and writes, and a barrier.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error as ThisError;

/// A place of fixed size that keeps bytes. Every call blocks and may come from any thread.
///
/// What a caller may rely on, and may not, is in `docs/FORMAT.md` section 4: nothing is durable before a barrier.
pub trait Device: Send + Sync + fmt::Debug {
    /// Size in bytes. Never changes.
    fn bytes(&self) -> u64;

    /// Fills `parts`, one after the other, with the bytes from `at` on.
    ///
    /// # Errors
    /// [`DeviceError::Short`] if the device ends before the parts are full: what is there has been filled in. [`DeviceError::Io`] if it
    /// refuses: the parts' content is then unspecified.
    fn read_at(&self, at: u64, parts: &mut [&mut [u8]]) -> Result<(), DeviceError>;

    /// Writes `parts`, one after the other, from `at` on.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`] if they do not fit, [`DeviceError::Io`] if the device refuses. Any part of the range may then have changed.
    fn write_at(&self, at: u64, parts: &[&[u8]]) -> Result<(), DeviceError>;

    /// Returns when every write that returned before this call is durable.
    ///
    /// # Errors
    /// [`DeviceError::Io`]: writes since the last good barrier may be lost, whatever a later barrier says.
    fn barrier(&self) -> Result<(), DeviceError>;

    /// What it is, for logs and statistics.
    fn describe(&self) -> &str;

    /// The file behind it, if an `io_uring` may read and write it instead, in whole blocks and within [`Device::bytes`].
    fn ring_file(&self) -> Option<Arc<File>> {
        None
    }
}

/// Why a device could not do what it was asked.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum DeviceError {
    /// The operating system refused.
    #[error("the disk refused operation={operation} at={at} bytes={bytes}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// Where.
        at: u64,
        /// How much.
        bytes: u64,
        /// Its reason.
        source: io::Error,
    },
    /// The device ends too early: it was truncated.
    #[error("the device ends too early at={at} wanted_bytes={wanted_bytes} got_bytes={got_bytes}")]
    Short {
        /// Where the read began.
        at: u64,
        /// Bytes wanted.
        wanted_bytes: u64,
        /// Bytes that are there.
        got_bytes: u64,
    },
    /// A write beyond the end.
    #[error("a write does not fit the device at={at} bytes={bytes} device_bytes={device_bytes}")]
    OutOfRange {
        /// Where it was to begin.
        at: u64,
        /// Its length.
        bytes: u64,
        /// Size of the device.
        device_bytes: u64,
    },
    /// The file could not be opened or made.
    #[error("open the ssd file path={}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file or its folder can not be written.
    #[error("the ssd file can not be written; give the server write access path={}", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process uses the file.
    #[error("the ssd file is in use by another process path={}", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The filesystem has no room for the file.
    #[error(
        "the filesystem has no room for the ssd file; make room or configure it smaller \
         path={} wanted_bytes={wanted_bytes} free_bytes={free_bytes}",
        path.display()
    )]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// Bytes that had to be added to it.
        wanted_bytes: u64,
        /// Bytes free in its filesystem.
        free_bytes: u64,
    },
}

/// Bytes of all parts together.
pub(crate) fn total<T: AsRef<[u8]>>(parts: &[T]) -> u64 {
    parts.iter().map(|part| part.as_ref().len() as u64).sum()
}
