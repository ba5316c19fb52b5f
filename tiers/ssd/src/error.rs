//! What can go wrong in this tier, and what it means to the rest of the house.

use cairn_core::metrics::Damage;
use cairn_core::{Error, ErrorKind, SlotId};
use thiserror::Error as ThisError;

use crate::device::DeviceError;

/// Why the tier could not be opened or written.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum SsdError {
    /// The device failed. If it was a write or a barrier, the tier takes no more writes until it is opened again.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An earlier write or barrier failed.
    #[error(
        "the ssd takes no writes since a write or a barrier failed; look at the disk, then restart or lift the quarantine"
    )]
    WriteQuarantined,
    /// The device is all new: format it.
    #[error("the ssd file is not formatted")]
    Blank,
    /// The device to be formatted holds something.
    #[error("the ssd file holds something already and is not formatted; move it away to start empty")]
    NotBlank,
    /// Another version of this program formatted the device.
    #[error(
        "the ssd file has a format that this version does not know; it was not touched version={version} known={known}"
    )]
    ForeignVersion {
        /// Its version.
        version: u32,
        /// The version known here.
        known: u32,
    },
    /// Neither superblock can be read.
    #[error(
        "neither superblock of the ssd file is readable, so none of its pages can be trusted; it was not touched; \
         move it away to start empty"
    )]
    SuperblocksDamaged,
    /// The device is smaller than it was.
    #[error(
        "the ssd tier does not shrink; configure at least its size, or move the file away to start empty \
         device_bytes={device_bytes} formatted_bytes={formatted_bytes}"
    )]
    Smaller {
        /// Size of the device.
        device_bytes: u64,
        /// Size that it was formatted with, or grew to.
        formatted_bytes: u64,
    },
    /// The device holds no whole region.
    #[error("the ssd tier is smaller than one region device_bytes={device_bytes} needed_bytes={needed_bytes}")]
    TooSmall {
        /// Size of the device.
        device_bytes: u64,
        /// Least size with this region size.
        needed_bytes: u64,
    },
    /// A region size that can not be.
    #[error("a region is a multiple of 4096 bytes and at least 8192 region_bytes={region_bytes}")]
    RegionBytes {
        /// The size asked for.
        region_bytes: u64,
    },
    /// A page that no region can hold.
    #[error("a page does not fit a region page_bytes={page_bytes} page_bytes_max={page_bytes_max}")]
    PageBytes {
        /// The page's size.
        page_bytes: u64,
        /// The largest that fits.
        page_bytes_max: u64,
    },
    /// A slot that is not reserved for a page of this size.
    #[error("the slot is not reserved for a page of this size slot={slot:?} page_bytes={page_bytes}")]
    NotReserved {
        /// The slot.
        slot: SlotId,
        /// The page's size.
        page_bytes: u64,
    },
    /// Facts that contradict each other.
    #[error("a page has a parent exactly if its position is above 0 position={position}")]
    Parent {
        /// The position given.
        position: u32,
    },
    /// No randomness for the device's id and key.
    #[error("make the id of the ssd file")]
    Entropy(#[source] Error),
    /// The I/O threads could not be started.
    #[error("start the ssd's I/O threads")]
    Threads(#[source] std::io::Error),
    /// `io_uring` was asked for by name, and can not be had.
    #[error("the ssd can not be used through io_uring; set ssd.device = auto")]
    Ring(#[source] std::io::Error),
    /// The tier is being closed.
    #[error("the ssd takes no more transfers")]
    Closed,
}

impl From<SsdError> for Error {
    fn from(error: SsdError) -> Self {
        Self::new(kind(&error), "ssd tier").caused_by(error)
    }
}

fn kind(error: &SsdError) -> ErrorKind {
    match error {
        SsdError::Device(DeviceError::NoSpace { .. } | DeviceError::Full { .. }) => ErrorKind::NoSpace,
        SsdError::Device(DeviceError::OutOfRange { .. }) | SsdError::NotReserved { .. } | SsdError::Parent { .. } => {
            ErrorKind::Internal
        }
        SsdError::Device(_)
        | SsdError::WriteQuarantined
        | SsdError::Entropy(_)
        | SsdError::Threads(_)
        | SsdError::Closed => ErrorKind::Unavailable,
        SsdError::Blank
        | SsdError::NotBlank
        | SsdError::ForeignVersion { .. }
        | SsdError::SuperblocksDamaged
        | SsdError::Smaller { .. }
        | SsdError::TooSmall { .. }
        | SsdError::RegionBytes { .. }
        | SsdError::PageBytes { .. }
        | SsdError::Ring(_) => ErrorKind::Invalid,
    }
}

/// Why a page could not be read. Not counted yet: who reads does that ([`crate::SsdTier::note`]), if the page should have been there.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum ReadFault {
    /// What the slot holds is not the page. The caller drops the page.
    #[error("the page is damaged fault={0:?}")]
    Damaged(Damage),
    /// The device refused; the page may be whole.
    #[error(transparent)]
    Device(DeviceError),
    /// The buffer has not the page's length; nothing was read.
    #[error("the buffer has not the page's length page_bytes={page_bytes} buffer_bytes={buffer_bytes}")]
    Buffer {
        /// The page's length.
        page_bytes: u64,
        /// The buffer's.
        buffer_bytes: u64,
    },
}
