//! The sealed sector: how superblocks and region headers are written.
//!
//! Magic and version in front, a checksum of the first 504 bytes behind them: all of it within one 512-byte sector, which a disk writes
//! whole or not at all. The rest of the block is zero.

use cairn_core::Checksum;

use crate::block::Block;

/// Version of the format of the SSD file.
pub(crate) const VERSION: u32 = 1;
const SEAL_AT: usize = 504;
const SECTOR_BYTES: usize = 512;

/// What a block turns out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sector {
    /// Whole, and of this version: its fields can be read.
    Whole,
    /// Never written.
    Blank,
    /// It says that it is of another version; `sealed` if its checksum fits.
    Foreign { version: u32, sealed: bool },
    /// Anything else.
    Damaged,
}

/// An empty sector with `magic`, to be filled with [`put`] and closed with [`seal`].
pub(crate) fn start(magic: &[u8; 8]) -> Block {
    let mut block = Block::empty();
    put(&mut block, 0, magic);
    put(&mut block, 8, &VERSION.to_le_bytes());
    block
}

/// Writes a field.
pub(crate) fn put(block: &mut Block, at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Reads a field.
pub(crate) fn take<const N: usize>(block: &Block, at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&block[at..at + N]);
    out
}

/// Adds the checksum.
pub(crate) fn seal(mut block: Block) -> Block {
    let seal = Checksum::of(&block[..SEAL_AT]);
    put(&mut block, SEAL_AT, &seal.to_u64().to_le_bytes());
    block
}

/// Looks at a block that should be a sector with `magic`.
pub(crate) fn look(block: &Block, magic: &[u8; 8]) -> Sector {
    if block[..SECTOR_BYTES].iter().all(|byte| *byte == 0) {
        return Sector::Blank;
    }
    if take::<8>(block, 0) != *magic {
        return Sector::Damaged;
    }
    let sealed = Checksum::of(&block[..SEAL_AT]).to_u64() == u64::from_le_bytes(take(block, SEAL_AT));
    match (u32::from_le_bytes(take(block, 8)), sealed) {
        (VERSION, true) => Sector::Whole,
        (VERSION, false) => Sector::Damaged,
        (version, sealed) => Sector::Foreign { version, sealed },
    }
}
