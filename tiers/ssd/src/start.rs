//! Which queue moves the pages: `io_uring` where there is one, else threads. Chosen once, at the start, and said once.

use std::sync::Arc;

use tracing::{info, warn};

use crate::error::SsdError;
use crate::page_io::PageIo;
use crate::ring_queue::{RingQueue, RingTarget};
use crate::thread_queue::ThreadQueue;
use crate::tier::SsdTier;
use crate::transfer::TransferQueue;

/// What moves pages to and from the SSD.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum DeviceKind {
    /// `io_uring` if the system and the device have it, else threads.
    #[default]
    Auto,
    /// `io_uring`, or none.
    IoUring,
    /// Threads with positioned I/O.
    Positioned,
}

impl DeviceKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Auto, Self::IoUring, Self::Positioned];

    /// The name in settings.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::IoUring => "io_uring",
            Self::Positioned => "positioned",
        }
    }
}

/// How pages are moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoSettings {
    /// By what.
    pub kind: DeviceKind,
    /// Threads, if it is threads.
    pub threads: usize,
    /// Transfers of each class that may wait.
    pub line_max: usize,
}

impl PageIo {
    /// Starts what moves the pages of `tier`, and logs what that is. Blocks for at most 0.3 s, to measure the device.
    ///
    /// # Errors
    /// [`SsdError::Ring`] if [`DeviceKind::IoUring`] can not be had, [`SsdError::Threads`] if the system has no more threads.
    pub fn start(tier: Arc<SsdTier>, settings: IoSettings) -> Result<Self, SsdError> {
        let queue = start_queue(&tier, settings)?;
        let io = Self::new(tier, queue);
        info!(device = io.describe(), "the ssd's device is ready");
        Ok(io)
    }
}

fn start_queue(tier: &SsdTier, settings: IoSettings) -> Result<Box<dyn TransferQueue>, SsdError> {
    match settings.kind {
        DeviceKind::IoUring => ring(tier, settings).map_err(SsdError::Ring),
        DeviceKind::Positioned => threads(tier, settings),
        DeviceKind::Auto => match ring(tier, settings) {
            Ok(ring) => Ok(ring),
            Err(error) => {
                warn!(%error, "the ssd is used without io_uring: slower with many readers, the same otherwise");
                threads(tier, settings)
            }
        },
    }
}

fn ring(tier: &SsdTier, settings: IoSettings) -> std::io::Result<Box<dyn TransferQueue>> {
    let disk = &tier.disk;
    let no_file = || std::io::Error::new(std::io::ErrorKind::Unsupported, "the device is no file");
    let file = disk.device.ring_file().ok_or_else(no_file)?;
    let target = RingTarget { file, bytes: disk.device.bytes(), depth: None };
    Ok(Box::new(RingQueue::start(target, settings.line_max, Arc::clone(&disk.clock), Arc::clone(&disk.metrics))?))
}

fn threads(tier: &SsdTier, settings: IoSettings) -> Result<Box<dyn TransferQueue>, SsdError> {
    let disk = &tier.disk;
    let (device, metrics) = (Arc::clone(&disk.device), Arc::clone(&disk.metrics));
    Ok(Box::new(ThreadQueue::start(device, settings.threads, settings.line_max, metrics)?))
}
