//! The parsers of records, one by one, for their fuzzer. Built with the feature `testkit` only.

use crate::record::{self, StoredKey};
use crate::{DeviceRecord, NamespaceRecord, Record};

/// Key and value of a page record; `None` if it can not be.
pub fn encode_record(record: &Record) -> Option<[Vec<u8>; 2]> {
    record.check().ok()?;
    Some([record.stored_key().to_vec(), record.encode()])
}

/// The page record in key and value, if it is one.
pub fn parse_record(key: &[u8], value: &[u8]) -> Option<Record> {
    Record::decode(&StoredKey::try_from(key).ok()?, value).ok()
}

/// Key and value of a namespace record; `None` if it can not be.
pub fn encode_namespace(record: &NamespaceRecord) -> Option<[Vec<u8>; 2]> {
    Some([record.id.as_bytes().to_vec(), record.encode().ok()?])
}

/// The namespace record in key and value, if it is one.
pub fn parse_namespace(key: &[u8], value: &[u8]) -> Option<NamespaceRecord> {
    NamespaceRecord::decode(key, value).ok()
}

/// The value of the device record.
pub fn encode_device(device: &DeviceRecord) -> Vec<u8> {
    record::encode_device(device)
}

/// The device in a value, if it is one.
pub fn parse_device(value: &[u8]) -> Option<DeviceRecord> {
    record::decode_device(value).ok()
}
