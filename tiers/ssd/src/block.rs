//! The unit of the device: 4,096 bytes that begin at a multiple of 4,096, in memory too, as direct I/O wants them.

use std::ops::{Deref, DerefMut};

use cairn_core::HEADER_BYTES;

/// Bytes of a block.
pub(crate) const BYTES: usize = HEADER_BYTES;

/// One block in memory. Its address is a multiple of its size.
#[derive(Clone, Debug)]
#[repr(C, align(4096))]
pub(crate) struct Block([u8; BYTES]);

/// A block of zeros.
pub(crate) static EMPTY: Block = Block([0; BYTES]);

impl Block {
    /// A block of zeros.
    pub(crate) fn empty() -> Self {
        Self([0; BYTES])
    }

    #[cfg(feature = "testkit")]
    pub(crate) fn of(bytes: &[u8; BYTES]) -> Self {
        Self(*bytes)
    }

    pub(crate) fn array(&self) -> &[u8; BYTES] {
        &self.0
    }

    pub(crate) fn array_mut(&mut self) -> &mut [u8; BYTES] {
        &mut self.0
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// Whole blocks, one after the other: for bytes that lie where direct I/O can not reach them.
#[derive(Debug)]
pub(crate) struct Blocks {
    room: Vec<u8>,
    from: usize,
    bytes: usize,
}

impl Blocks {
    /// Zeros, at least `bytes` of them.
    pub(crate) fn of(bytes: usize) -> Self {
        let bytes = bytes.next_multiple_of(BYTES);
        // One block more than needed, so that a whole number of them lies at the right address.
        let room = vec![0; bytes + BYTES];
        let at = room.as_ptr().addr();
        let from = at.next_multiple_of(BYTES) - at;
        Self { room, from, bytes }
    }
}

impl Deref for Blocks {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.room[self.from..self.from + self.bytes]
    }
}

impl DerefMut for Blocks {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.room[self.from..self.from + self.bytes]
    }
}

/// Memory for one page, outside the pool, that the device can fill without a copy: for what passes from the SSD to the SSD, or is only looked at.
#[derive(Debug)]
pub struct PageMemory {
    blocks: Blocks,
    bytes: usize,
}

impl PageMemory {
    /// Zeros for a page of so many bytes.
    pub fn new(page_bytes: u64) -> Self {
        let bytes = usize::try_from(page_bytes).unwrap_or(usize::MAX);
        Self { blocks: Blocks::of(bytes), bytes }
    }
}

impl AsRef<[u8]> for PageMemory {
    fn as_ref(&self) -> &[u8] {
        &self.blocks[..self.bytes]
    }
}

impl AsMut<[u8]> for PageMemory {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.blocks[..self.bytes]
    }
}

/// Whether `at` and every part begin and end on a block: what direct I/O is possible with.
pub(crate) fn is_whole<T: Deref<Target = [u8]>>(at: u64, parts: &[T]) -> bool {
    let is_whole = |part: &[u8]| is_aligned(part) && part.len().is_multiple_of(BYTES);
    at.is_multiple_of(BYTES as u64) && parts.iter().all(|part| is_whole(part))
}

/// Whether the bytes begin where a block may begin in memory.
pub(crate) fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(BYTES)
}

/// How many of the bytes, from the first on, direct I/O can reach where they are: whole blocks, and none if they begin on no block.
pub(crate) fn direct_bytes(bytes: &[u8]) -> usize {
    if is_aligned(bytes) { bytes.len() - bytes.len() % BYTES } else { 0 }
}
