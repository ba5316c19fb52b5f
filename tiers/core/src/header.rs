//! The header that every stored page carries: the page says who it is, and every reader checks.
//!
//! A header fills the first [`HEADER_BYTES`] of a slot on a device; the payload follows. It repeats where it lies (device, slot), what it
//! is (namespace, key, parent, position) and what its payload must be (length, checksum), and is protected by a hash keyed with a
//! secret of the device: a page in the wrong place, an old page, a torn page and a forged header inside a client's payload are all
//! recognised. Byte layout: `docs/FORMAT.md`.

use std::fmt;

use thiserror::Error as ThisError;

use crate::{Checksum, Generation, NamespaceId, PageKey};

/// Bytes of a slot that the header takes: one block, so that the payload starts aligned for direct I/O.
pub const HEADER_BYTES: usize = 4096;
/// Bytes in use; the rest is zero.
const ENCODED_BYTES: usize = 192;
const MAGIC: [u8; 8] = *b"CAIRNPG1";

/// Random name of one device (one SSD file), made when it is formatted.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceId([u8; 16]);

impl DeviceId {
    /// Takes an id's bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The id's bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// A slot of a device: its region, and its place in the region's grid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SlotId {
    /// The region.
    pub region: u32,
    /// The place in the region.
    pub slot: u32,
}

/// The secret of a device that keys its headers' hashes. Never printed.
#[derive(Clone, Copy)]
pub struct HeaderKey([u8; 32]);

impl HeaderKey {
    /// Takes the secret's bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The secret's bytes, to be stored in the device's superblock.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for HeaderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeaderKey(..)")
    }
}

/// What a stored page says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageHeader {
    /// Device that it was written to.
    pub device: DeviceId,
    /// Slot that it was written to.
    pub slot: SlotId,
    /// Namespace of the page.
    pub namespace: NamespaceId,
    /// Key of the page.
    pub key: PageKey,
    /// Key of the page before it; `None` for the first of a prefix.
    pub parent: Option<PageKey>,
    /// Position in its chain, counted from 0.
    pub position: u32,
    /// Number of this filling of the slot.
    pub generation: Generation,
    /// Bytes of the payload.
    pub payload_bytes: u64,
    /// Checksum of the payload.
    pub checksum: Checksum,
}

/// Why bytes are not a header that can be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ThisError)]
#[non_exhaustive]
pub enum HeaderFault {
    /// The block does not start like a header: never written, or wiped.
    #[error("no header here")]
    Absent,
    /// It starts like a header, but its keyed hash does not fit: torn, damaged, forged, or of another device.
    #[error("the header's keyed hash does not fit")]
    Hash,
    /// It is a true header, written for another device or slot.
    #[error("the header belongs elsewhere")]
    Misplaced,
    /// It is a true header with values that can not be.
    #[error("the header's values can not be")]
    Values,
}

impl PageHeader {
    /// Writes the header into `block`, the first [`HEADER_BYTES`] of a slot, and zeroes the rest of it.
    pub fn encode(&self, key: &HeaderKey, block: &mut [u8; HEADER_BYTES]) {
        block.fill(0);
        let mut at = Cursor { block, at: 0 };
        at.put(&MAGIC);
        at.put(self.device.as_bytes());
        at.put(&self.slot.region.to_le_bytes());
        at.put(&self.slot.slot.to_le_bytes());
        at.put(self.namespace.as_bytes());
        at.put(self.key.as_bytes());
        at.put(&self.parent.map_or([0; 32], |key| *key.as_bytes()));
        at.put(&self.position.to_le_bytes());
        at.put(&u32::from(self.parent.is_some()).to_le_bytes());
        at.put(&self.generation.to_u64().to_le_bytes());
        at.put(&self.payload_bytes.to_le_bytes());
        at.put(&self.checksum.to_u64().to_le_bytes());
        let (body, hash) = block[..ENCODED_BYTES].split_at_mut(ENCODED_BYTES - 32);
        hash.copy_from_slice(blake3::keyed_hash(&key.0, body).as_bytes());
    }

    /// Reads the header in `block` and checks that it belongs to slot `slot` of device `device`.
    ///
    /// # Errors
    /// Why it can not be trusted; the slot then holds nothing that anyone may read.
    pub fn decode(
        block: &[u8; HEADER_BYTES],
        key: &HeaderKey,
        device: DeviceId,
        slot: SlotId,
    ) -> Result<Self, HeaderFault> {
        let mut at = Reader { block, at: 0 };
        if at.take::<8>() != MAGIC {
            return Err(HeaderFault::Absent);
        }
        let body = &block[..ENCODED_BYTES - 32];
        let found: [u8; 32] = Reader { block, at: ENCODED_BYTES - 32 }.take();
        // `blake3::Hash` compares in constant time.
        if blake3::keyed_hash(&key.0, body) != blake3::Hash::from_bytes(found) {
            return Err(HeaderFault::Hash);
        }
        let owner = DeviceId(at.take());
        let place = SlotId { region: u32::from_le_bytes(at.take()), slot: u32::from_le_bytes(at.take()) };
        let namespace = NamespaceId::from_bytes(at.take());
        let page = PageKey::from_bytes(at.take());
        let parent = PageKey::from_bytes(at.take());
        let position = u32::from_le_bytes(at.take());
        let has_parent = u32::from_le_bytes(at.take());
        let header = Self {
            device: owner,
            slot: place,
            namespace,
            key: page,
            parent: (has_parent == 1).then_some(parent),
            position,
            generation: Generation::from_u64(u64::from_le_bytes(at.take())),
            payload_bytes: u64::from_le_bytes(at.take()),
            checksum: Checksum::from_u64(u64::from_le_bytes(at.take())),
        };
        if header.device != device || header.slot != slot {
            return Err(HeaderFault::Misplaced);
        }
        if has_parent > 1 || header.parent.is_some() != (header.position > 0) || header.payload_bytes == 0 {
            return Err(HeaderFault::Values);
        }
        Ok(header)
    }
}

struct Cursor<'a> {
    block: &'a mut [u8; HEADER_BYTES],
    at: usize,
}

impl Cursor<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.block[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}

struct Reader<'a> {
    block: &'a [u8; HEADER_BYTES],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        out.copy_from_slice(&self.block[self.at..self.at + N]);
        self.at += N;
        out
    }
}
