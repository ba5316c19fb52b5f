//! R4: the parsers of directory records, fed with a million changed values each.
#![forbid(unsafe_code)]

use cairn_core::{Checksum, DeviceId};
use cairn_directory::DeviceRecord;
use cairn_directory::conformance::{namespace, record};
use cairn_directory::parsers;
use cairn_testkit::fuzz::Target;

const SEAL_BYTES: usize = 8;

/// Seals the value behind a key of so many bytes: an input is both.
fn seal_behind(key_bytes: usize) -> impl Fn(&mut [u8]) + Sync {
    move |input: &mut [u8]| {
        if input.len() >= key_bytes + SEAL_BYTES {
            let body = input.len() - SEAL_BYTES;
            let seal = Checksum::of(&input[..body]).to_u64().to_le_bytes();
            input[body..].copy_from_slice(&seal);
        }
    }
}

fn split(input: &[u8], key_bytes: usize) -> (&[u8], &[u8]) {
    input.split_at(key_bytes.min(input.len()))
}

#[test]
fn any_value_is_a_page_record_that_can_be_or_none() {
    let corpus = [0, 1, 4, 250].map(|key| parsers::encode_record(&record(1, key)).unwrap().concat());
    let target = Target {
        name: "R4 page record",
        command: "-p cairn-directory --test fuzz -- --nocapture any_value_is_a_page_record",
        corpus: corpus.into(),
        fixed: false,
        used_bytes: usize::MAX,
        seal: &seal_behind(64),
    };
    target.run(1, |input| {
        let (key, value) = split(input, 64);
        let Some(found) = parsers::parse_record(key, value) else { return Ok(()) };
        let again = parsers::encode_record(&found).ok_or("it was read and can not be written")?;
        let can_be = found.payload_bytes > 0
            && found.parent.is_some() == (found.position > 0)
            && again[0] == key
            && parsers::parse_record(&again[0], &again[1]) == Some(found);
        if can_be { Ok(()) } else { Err(format!("{found:?}")) }
    });
}

#[test]
fn any_value_is_a_namespace_record_that_can_be_or_none() {
    let corpus = [1, 2, 200].map(|id| parsers::encode_namespace(&namespace(id)).unwrap().concat());
    let target = Target {
        name: "R4 namespace record",
        command: "-p cairn-directory --test fuzz -- --nocapture any_value_is_a_namespace_record",
        corpus: corpus.into(),
        fixed: false,
        used_bytes: usize::MAX,
        seal: &seal_behind(32),
    };
    target.run(1, |input| {
        let (key, value) = split(input, 32);
        let Some(found) = parsers::parse_namespace(key, value) else { return Ok(()) };
        let again = parsers::encode_namespace(&found).ok_or("it was read and can not be written")?;
        if again[0] == key && parsers::parse_namespace(&again[0], &again[1]).as_ref() == Some(&found) {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    });
}

#[test]
fn any_value_is_a_device_record_or_none() {
    let device = DeviceRecord { id: DeviceId::from_bytes([9; 16]), run: 7 };
    let target = Target {
        name: "R4 device record",
        command: "-p cairn-directory --test fuzz -- --nocapture any_value_is_a_device_record",
        corpus: vec![[&b"device"[..], &parsers::encode_device(&device)].concat()],
        fixed: false,
        used_bytes: usize::MAX,
        seal: &seal_behind(6),
    };
    target.run(1, |input| {
        let (_, value) = split(input, 6);
        let Some(found) = parsers::parse_device(value) else { return Ok(()) };
        let again = parsers::parse_device(&parsers::encode_device(&found));
        if again == Some(found) && value.len() == 40 { Ok(()) } else { Err(format!("{found:?}")) }
    });
}
