use proptest::prelude::*;

use super::*;

fn record() -> Record {
    Record {
        namespace: NamespaceId::from_bytes([0x11; 32]),
        key: PageKey::from_bytes([0x22; 32]),
        parent: Some(PageKey::from_bytes([0x33; 32])),
        position: 7,
        slot: SlotId { region: 3, slot: 258 },
        generation: Generation::from_u64(1_000_000),
        payload_bytes: 2_359_296,
        checksum: Checksum::from_u64(0x0123_4567_89ab_cdef),
    }
}

#[test]
fn the_bytes_of_a_page_record_are_as_documented() {
    let value = record().encode();
    assert_eq!(value.len(), RECORD_BYTES);
    assert_eq!(value[..8], [1, 1, 0, 0, 7, 0, 0, 0]);
    assert_eq!(value[8..40], [0x33; 32]);
    assert_eq!(value[40..48], [3, 0, 0, 0, 2, 1, 0, 0]);
    assert_eq!(value[48..56], 1_000_000_u64.to_le_bytes());
    assert_eq!(value[56..64], 2_359_296_u64.to_le_bytes());
    assert_eq!(value[64..72], 0x0123_4567_89ab_cdef_u64.to_le_bytes());
    let sealed: Vec<u8> = [&record().stored_key()[..], &value[..72]].concat();
    assert_eq!(value[72..], Checksum::of(&sealed).to_u64().to_le_bytes());
}

#[test]
fn a_record_of_a_later_version_is_told_apart_from_a_damaged_one() {
    let mut body = record().encode();
    body.truncate(RECORD_BYTES - CHECKSUM_BYTES);
    body[0] = 2;
    let later = sealed(&record().stored_key(), body);
    assert_eq!(Record::decode(&record().stored_key(), &later), Err(RecordFault::Version));
}

proptest! {
    #[test]
    fn a_record_survives_the_way_through_bytes(
        namespace: [u8; 32], key: [u8; 32], parent: [u8; 32], position: u32, region: u32, slot: u32, generation: u64,
        payload_bytes in 1_u64.., checksum: u64,
    ) {
        let record = Record {
            namespace: NamespaceId::from_bytes(namespace),
            key: PageKey::from_bytes(key),
            parent: (position > 0).then_some(PageKey::from_bytes(parent)),
            position,
            slot: SlotId { region, slot },
            generation: Generation::from_u64(generation),
            payload_bytes,
            checksum: Checksum::from_u64(checksum),
        };
        prop_assert_eq!(Record::decode(&record.stored_key(), &record.encode()), Ok(record));
    }

    #[test]
    fn a_flipped_bit_anywhere_in_key_or_value_is_noticed(bit in 0..(64 + RECORD_BYTES) * 8) {
        let mut bytes = [&record().stored_key()[..], &record().encode()].concat();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let (key, value) = bytes.split_first_chunk::<64>().unwrap();
        prop_assert!(Record::decode(key, value).is_err());
    }

    #[test]
    fn bytes_of_any_kind_are_refused_without_a_panic(key: [u8; 64], value: Vec<u8>) {
        prop_assert!(Record::decode(&key, &value).is_err());
        prop_assert!(NamespaceRecord::decode(&key[..32], &value).is_err());
        prop_assert!(decode_device(&value).is_err());
    }

    #[test]
    fn well_sealed_nonsense_is_refused_without_a_panic(key: [u8; 64], mut value: Vec<u8>) {
        value.insert(0, VERSION);
        let _ = Record::decode(&key, &sealed(&key, value.clone()));
        prop_assert!(NamespaceRecord::decode(&key[..32], &sealed(&key[..32], value.clone())).is_err());
        let _ = decode_device(&sealed(DEVICE_KEY, value));
    }
}
