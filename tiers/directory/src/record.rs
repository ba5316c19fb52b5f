//! Records as bytes.
//!
//! All numbers are little endian. Every value starts with a version byte and ends with a checksum: XXH3-64, seed 0, over the stored key
//! and then all of the value before the checksum. So a change of any bit of key or value is noticed, and costs that one record. Versions
//! of records are counted apart from that of the folder (`FORMAT`, see below).
//!
//! Family `entries`, one record for each page on the SSD. Key, 64 bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 32 | namespace id |
//! | 32 | 32 | page key |
//!
//! Value, 80 bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | version, 1 |
//! | 1 | 1 | 1 if there is a parent, else 0 |
//! | 2 | 2 | zero |
//! | 4 | 4 | position in the chain, counted from 0; there is a parent if and only if it is not 0 |
//! | 8 | 32 | key of the parent; zero if there is none |
//! | 40 | 4 | region of the slot |
//! | 44 | 4 | place of the slot in its region |
//! | 48 | 8 | generation |
//! | 56 | 8 | bytes of the payload, not 0 |
//! | 64 | 8 | checksum of the payload |
//! | 72 | 8 | checksum of the record |
//!
//! Family `namespaces`, one record for each namespace that was ever opened. Key: the namespace id, 32 bytes. Value:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | version, 1 |
//! | 1 | 1 | bytes of the tenant's name, t |
//! | 2 | 2 | zero |
//! | 4 | 4 | bytes of the identity, n |
//! | 8 | t | the tenant's name |
//! | 8 + t | n | the identity as JSON without white space, fields in the order of `Identity`, every field present |
//! | 8 + t + n | 8 | checksum of the record |
//!
//! Family `meta`. Key `device`, value 40 bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | version, 1 |
//! | 1 | 7 | zero |
//! | 8 | 16 | id of the device whose pages the records name |
//! | 24 | 8 | number of the device's run that they were kept in |
//! | 32 | 8 | checksum of the record |
//!
//! Key `ledger`, value 232 bytes: what was written to the device, and how much of its write budget is left. Without it the budget is empty.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | version, 1 |
//! | 1 | 7 | zero |
//! | 8 | 8 | bytes in the bucket; signed, below 0 if they are owed |
//! | 16 | 8 | bytes written since the ledger was begun |
//! | 24 | 8 | seconds that servers have run with it |
//! | 32 | 24 x 8 | bytes written by hour of running, hour h at h % 24 |
//! | 224 | 8 | checksum of the record |
//!
//! Key `scrub`, value 56 bytes: where the scrub was. Times are of running, in milliseconds. Without it a new pass begins.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | version, 1 |
//! | 1 | 1 | 1 if all of the pass is due at once, else 0 |
//! | 2 | 2 | zero |
//! | 4 | 4 | first region that the pass has not read to its end |
//! | 8 | 8 | time that servers have run with it |
//! | 16 | 8 | when the pass under way began |
//! | 24 | 8 | when the pass before it began |
//! | 32 | 8 | passes completed |
//! | 40 | 8 | zero |
//! | 48 | 8 | checksum of the record |
//!
//! On disk the families are column families of a RocksDB in the subfolder `rocksdb` (the family `default` is empty). In it lies the file
//! `FORMAT`, the text `cairn directory 1` and a line feed: the version of all the above but the records' own. Beside it lies `LOCK`, an
//! empty file that the process using the folder holds an exclusive `flock` on. `rocksdb.new` is a database in the making, `rocksdb.damaged`
//! one that was set aside.

use cairn_core::{Checksum, DeviceId, Generation, Identity, NamespaceId, PageKey, SlotId, TenantId};
use cairn_policy::{Ledger, ScrubMark};
use thiserror::Error as ThisError;
use xxhash_rust::xxh3::Xxh3;

const VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 8;
const RECORD_BYTES: usize = 80;
const DEVICE_BYTES: usize = 40;
const LEDGER_BYTES: usize = 232;
const SCRUB_BYTES: usize = 56;

/// The stored key of the device record.
pub(crate) const DEVICE_KEY: &[u8] = b"device";
/// The stored key of the ledger.
pub(crate) const LEDGER_KEY: &[u8] = b"ledger";
/// The stored key of the scrub's mark.
pub(crate) const SCRUB_KEY: &[u8] = b"scrub";
/// The stored key of a page record: namespace and page key.
pub(crate) type StoredKey = [u8; 64];

/// What is known of a page on the SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Namespace of the page.
    pub namespace: NamespaceId,
    /// Key of the page.
    pub key: PageKey,
    /// Key of the page before it; `None` if and only if it is the first of its chain.
    pub parent: Option<PageKey>,
    /// Position in its chain, counted from 0.
    pub position: u32,
    /// Where it lies.
    pub slot: SlotId,
    /// Number of this filling of the slot.
    pub generation: Generation,
    /// Bytes of the payload, at least 1.
    pub payload_bytes: u64,
    /// Checksum of the payload.
    pub checksum: Checksum,
}

/// What is known of a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamespaceRecord {
    /// Its id.
    pub id: NamespaceId,
    /// The tenant it belongs to.
    pub tenant: TenantId,
    /// What its pages are.
    pub identity: Identity,
}

/// Which device's pages the records name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceRecord {
    /// Its id.
    pub id: DeviceId,
    /// The run of it that they were kept in last. A directory that has slept through a run of its device does not know what became of the pages.
    pub run: u64,
}

/// Why bytes are not a record, or values can not be one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ThisError)]
#[non_exhaustive]
pub enum RecordFault {
    /// Key or value has the wrong length.
    #[error("the record has the wrong length")]
    Length,
    /// The record has a version that is not known here.
    #[error("the record has an unknown version")]
    Version,
    /// The checksum does not fit.
    #[error("the record's checksum does not fit")]
    Checksum,
    /// The values can not be.
    #[error("the record's values can not be")]
    Values,
}

/// The stored key of the page `key` of `namespace`.
pub(crate) fn stored_key(namespace: &NamespaceId, key: &PageKey) -> StoredKey {
    let mut stored = [0; 64];
    stored[..32].copy_from_slice(namespace.as_bytes());
    stored[32..].copy_from_slice(key.as_bytes());
    stored
}

/// All stored keys of `namespace`: the first there can be, and what comes right after the last there can be.
pub(crate) fn stored_range(namespace: &NamespaceId) -> (StoredKey, [u8; 65]) {
    let mut end = [0; 65];
    end[..64].copy_from_slice(&stored_key(namespace, &PageKey::from_bytes([0xff; 32])));
    (stored_key(namespace, &PageKey::from_bytes([0; 32])), end)
}

impl Record {
    /// Whether the values can be.
    pub(crate) fn check(&self) -> Result<(), RecordFault> {
        let fit = self.parent.is_some() == (self.position > 0) && self.payload_bytes > 0;
        if fit { Ok(()) } else { Err(RecordFault::Values) }
    }

    pub(crate) fn stored_key(&self) -> StoredKey {
        stored_key(&self.namespace, &self.key)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(RECORD_BYTES);
        out.extend([VERSION, u8::from(self.parent.is_some()), 0, 0]);
        out.extend(self.position.to_le_bytes());
        out.extend(self.parent.map_or([0; 32], |parent| *parent.as_bytes()));
        out.extend(self.slot.region.to_le_bytes());
        out.extend(self.slot.slot.to_le_bytes());
        out.extend(self.generation.to_u64().to_le_bytes());
        out.extend(self.payload_bytes.to_le_bytes());
        out.extend(self.checksum.to_u64().to_le_bytes());
        sealed(&self.stored_key(), out)
    }

    pub(crate) fn decode(stored_key: &StoredKey, value: &[u8]) -> Result<Self, RecordFault> {
        let mut value = Reader(unsealed(stored_key, value)?);
        if value.0.len() != RECORD_BYTES - CHECKSUM_BYTES {
            return Err(RecordFault::Length);
        }
        let [_version, has_parent, zero @ ..] = value.take::<4>()?;
        let position = u32::from_le_bytes(value.take()?);
        let parent = PageKey::from_bytes(value.take()?);
        let mut key = Reader(stored_key);
        let record = Self {
            namespace: NamespaceId::from_bytes(key.take()?),
            key: PageKey::from_bytes(key.take()?),
            parent: (has_parent == 1).then_some(parent),
            position,
            slot: SlotId { region: u32::from_le_bytes(value.take()?), slot: u32::from_le_bytes(value.take()?) },
            generation: Generation::from_u64(u64::from_le_bytes(value.take()?)),
            payload_bytes: u64::from_le_bytes(value.take()?),
            checksum: Checksum::from_u64(u64::from_le_bytes(value.take()?)),
        };
        if has_parent > 1 || zero != [0, 0] {
            return Err(RecordFault::Values);
        }
        record.check().map(|()| record)
    }
}

impl NamespaceRecord {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, RecordFault> {
        let tenant = self.tenant.as_str().as_bytes();
        let identity = serde_json::to_vec(&self.identity).map_err(|_| RecordFault::Values)?;
        let tenant_bytes = u8::try_from(tenant.len()).map_err(|_| RecordFault::Length)?;
        let identity_bytes = u32::try_from(identity.len()).map_err(|_| RecordFault::Length)?;
        let mut out = vec![VERSION, tenant_bytes, 0, 0];
        out.extend(identity_bytes.to_le_bytes());
        out.extend(tenant);
        out.extend(identity);
        Ok(sealed(self.id.as_bytes(), out))
    }

    pub(crate) fn decode(stored_key: &[u8], value: &[u8]) -> Result<Self, RecordFault> {
        let id = <[u8; 32]>::try_from(stored_key).map_err(|_| RecordFault::Length)?;
        let mut value = Reader(unsealed(stored_key, value)?);
        let [_version, tenant_bytes, zero @ ..] = value.take::<4>()?;
        let identity_bytes = u32::from_le_bytes(value.take()?) as usize;
        if value.0.len() != usize::from(tenant_bytes) + identity_bytes || zero != [0, 0] {
            return Err(RecordFault::Length);
        }
        let (tenant, identity) = value.0.split_at(usize::from(tenant_bytes));
        let tenant = std::str::from_utf8(tenant).map_err(|_| RecordFault::Values)?;
        Ok(Self {
            id: NamespaceId::from_bytes(id),
            tenant: TenantId::new(tenant).map_err(|_| RecordFault::Values)?,
            identity: serde_json::from_slice(identity).map_err(|_| RecordFault::Values)?,
        })
    }
}

pub(crate) fn encode_device(device: &DeviceRecord) -> Vec<u8> {
    let mut out = vec![VERSION, 0, 0, 0, 0, 0, 0, 0];
    out.extend(device.id.as_bytes());
    out.extend(device.run.to_le_bytes());
    sealed(DEVICE_KEY, out)
}

pub(crate) fn decode_device(value: &[u8]) -> Result<DeviceRecord, RecordFault> {
    let mut value = Reader(unsealed(DEVICE_KEY, value)?);
    if value.0.len() != DEVICE_BYTES - CHECKSUM_BYTES {
        return Err(RecordFault::Length);
    }
    let _head: [u8; 8] = value.take()?;
    Ok(DeviceRecord { id: DeviceId::from_bytes(value.take()?), run: u64::from_le_bytes(value.take()?) })
}

pub(crate) fn encode_ledger(ledger: &Ledger) -> Vec<u8> {
    let mut out = Vec::with_capacity(LEDGER_BYTES);
    out.extend([VERSION, 0, 0, 0, 0, 0, 0, 0]);
    out.extend(ledger.level_bytes.to_le_bytes());
    out.extend(ledger.written_bytes.to_le_bytes());
    out.extend(ledger.running_seconds.to_le_bytes());
    ledger.hour_bytes.iter().for_each(|bytes| out.extend(bytes.to_le_bytes()));
    sealed(LEDGER_KEY, out)
}

pub(crate) fn decode_ledger(value: &[u8]) -> Result<Ledger, RecordFault> {
    let mut value = Reader(unsealed(LEDGER_KEY, value)?);
    if value.0.len() != LEDGER_BYTES - CHECKSUM_BYTES {
        return Err(RecordFault::Length);
    }
    let _head: [u8; 8] = value.take()?;
    let mut ledger = Ledger {
        level_bytes: i64::from_le_bytes(value.take()?),
        written_bytes: u64::from_le_bytes(value.take()?),
        running_seconds: u64::from_le_bytes(value.take()?),
        ..Ledger::default()
    };
    for bytes in &mut ledger.hour_bytes {
        *bytes = u64::from_le_bytes(value.take()?);
    }
    Ok(ledger)
}

pub(crate) fn encode_scrub(mark: &ScrubMark) -> Vec<u8> {
    let mut out = Vec::with_capacity(SCRUB_BYTES);
    out.extend([VERSION, u8::from(mark.asked), 0, 0]);
    out.extend(mark.region.to_le_bytes());
    for field in [mark.running_ms, mark.began_ms, mark.before_ms, mark.passes, 0] {
        out.extend(field.to_le_bytes());
    }
    sealed(SCRUB_KEY, out)
}

pub(crate) fn decode_scrub(value: &[u8]) -> Result<ScrubMark, RecordFault> {
    let mut value = Reader(unsealed(SCRUB_KEY, value)?);
    if value.0.len() != SCRUB_BYTES - CHECKSUM_BYTES {
        return Err(RecordFault::Length);
    }
    let [_version, asked, ..] = value.take::<4>()?;
    let region = u32::from_le_bytes(value.take()?);
    let mut field = || value.take().map(u64::from_le_bytes);
    let (running_ms, began_ms, before_ms, passes) = (field()?, field()?, field()?, field()?);
    Ok(ScrubMark { running_ms, began_ms, before_ms, region, asked: asked != 0, passes })
}

/// Ends a value with the checksum over `stored_key` and itself.
fn sealed(stored_key: &[u8], mut value: Vec<u8>) -> Vec<u8> {
    let checksum = checksum_of(stored_key, &value);
    value.extend(checksum.to_le_bytes());
    value
}

/// The value without its checksum, if that fits and the version is known.
fn unsealed<'a>(stored_key: &[u8], value: &'a [u8]) -> Result<&'a [u8], RecordFault> {
    let (body, found) = value.split_last_chunk::<CHECKSUM_BYTES>().ok_or(RecordFault::Length)?;
    if checksum_of(stored_key, body) != u64::from_le_bytes(*found) {
        return Err(RecordFault::Checksum);
    }
    if body.first() == Some(&VERSION) { Ok(body) } else { Err(RecordFault::Version) }
}

fn checksum_of(stored_key: &[u8], body: &[u8]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(stored_key);
    hasher.update(body);
    hasher.digest()
}

/// Takes fields off the front.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], RecordFault> {
        let (field, rest) = self.0.split_first_chunk::<N>().ok_or(RecordFault::Length)?;
        self.0 = rest;
        Ok(*field)
    }
}

#[cfg(test)]
mod tests;
