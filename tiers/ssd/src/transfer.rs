//! A transfer: a page on its way to or from the device, and the seam to whatever moves it.
//!
//! A transfer owns everything it moves. Whoever asked for it may go away at any time; the memory stays with the transfer until the device
//! has answered, and is then either handed back or dropped.

use std::fmt;

use cairn_core::metrics::IoClass;

use crate::device::DeviceError;

/// Most bytes of pages that lie side by side and are moved together, beyond the first: large enough for the full speed of a drive, and what
/// comes next does not wait long. A page and its header have at least 8 KiB, so together they have fewer than 1,024 parts.
pub(crate) const TOGETHER_BYTES_MAX: u64 = 1 << 20;

/// The memory of a transfer, in the order of the device: at most 1,024 parts. On a file, each begins and ends on a block of 4,096 bytes, in
/// memory too.
#[derive(Debug)]
pub enum Parts<'a> {
    /// To be filled from the device.
    Into(Vec<&'a mut [u8]>),
    /// To be written to it.
    From(Vec<&'a [u8]>),
}

/// Bytes to move, and who is told. Dropped without a word if the queue closes before it has begun.
pub trait Transfer: Send {
    /// Where on the device it begins.
    fn at(&self) -> u64;

    /// Bytes that it moves: those of its parts together.
    fn bytes(&self) -> u64;

    /// The memory to move. Called when the transfer begins; of a read that began together with others and failed, again when it begins alone.
    fn parts(&mut self) -> Parts<'_>;

    /// Whether anybody still wants it; one that nobody wants is dropped before it begins.
    fn is_wanted(&self) -> bool {
        true
    }

    /// Every byte was moved, or why not ([`DeviceError::Short`]: as many as it says were): called once, when the device is done with the
    /// memory. Must not block.
    fn done(self: Box<Self>, outcome: Result<(), DeviceError>);

    /// The queue has ended, and the device has not answered and will not: called once, in place of [`Transfer::done`]. Tells whoever waits
    /// that what became of it is unknown. Lets go of nothing that the device may still read or fill: the transfer is leaked afterwards.
    fn lost(&mut self);
}

impl fmt::Debug for dyn Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer").field("at", &self.at()).finish_non_exhaustive()
    }
}

/// The line has no place, or the queue has ended; here the transfer is back.
#[derive(Debug)]
pub struct Full(pub Box<dyn Transfer>);

/// Transfers that wait, one bounded line a class, and what moves them. At most [`TransferQueue::depth`] are under way at once, and which is
/// next is said in [`crate::line`]. Dropping the queue drops what waits and blocks until what is under way is done.
pub trait TransferQueue: Send + Sync + fmt::Debug {
    /// Queues a transfer. Does not block.
    ///
    /// # Errors
    /// [`Full`], which is an ordinary outcome.
    fn submit(&self, class: IoClass, transfer: Box<dyn Transfer>) -> Result<(), Full>;

    /// Most transfers under way at once.
    fn depth(&self) -> usize;

    /// What moves the transfers, in words.
    fn describe(&self) -> &str;
}
