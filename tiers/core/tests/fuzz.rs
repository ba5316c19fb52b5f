//! R4: the parser of page headers, fed with a million changed blocks.

use cairn_core::{Checksum, DeviceId, Generation, HEADER_BYTES, HeaderKey, NamespaceId, PageHeader, PageKey, SlotId};
use cairn_testkit::fuzz::Target;

const DEVICE: DeviceId = DeviceId::from_bytes([5; 16]);
const KEY: HeaderKey = HeaderKey::from_bytes([3; 32]);
const SLOT: SlotId = SlotId { region: 1, slot: 7 };
/// Bytes that the hash covers, and with the hash behind them.
const HASHED_BYTES: usize = 160;
const USED_BYTES: usize = 192;

fn header(position: u32, payload_bytes: u64, generation: u64) -> PageHeader {
    PageHeader {
        device: DEVICE,
        slot: SLOT,
        namespace: NamespaceId::from_bytes([1; 32]),
        key: PageKey::from_bytes([2; 32]),
        parent: (position > 0).then_some(PageKey::from_bytes([4; 32])),
        position,
        generation: Generation::from_u64(generation),
        payload_bytes,
        checksum: Checksum::from_u64(0x0123_4567_89ab_cdef),
    }
}

fn encoded(header: &PageHeader) -> [u8; HEADER_BYTES] {
    let mut block = [0; HEADER_BYTES];
    header.encode(&KEY, &mut block);
    block
}

fn seal(input: &mut [u8]) {
    let hash = blake3::keyed_hash(KEY.as_bytes(), &input[..HASHED_BYTES]);
    input[HASHED_BYTES..USED_BYTES].copy_from_slice(hash.as_bytes());
}

#[test]
fn any_block_is_a_header_that_means_what_it_says_or_none() {
    let target = Target {
        name: "R4 page header",
        command: "-p cairn-core --test fuzz -- --nocapture any_block_is_a_header",
        corpus: [header(0, 4096, 1), header(7, 1, u64::MAX), header(u32::MAX, u64::MAX, 0)]
            .iter()
            .map(|header| encoded(header).to_vec())
            .collect(),
        fixed: true,
        used_bytes: USED_BYTES,
        seal: &seal,
    };
    target.run(1, |input| {
        let block: &[u8; HEADER_BYTES] = input.try_into().map_err(|_| "inputs keep their length")?;
        let Ok(found) = PageHeader::decode(block, &KEY, DEVICE, SLOT) else { return Ok(()) };
        let again = encoded(&found);
        let can_be = found.device == DEVICE
            && found.slot == SLOT
            && found.payload_bytes > 0
            && found.parent.is_some() == (found.position > 0)
            && PageHeader::decode(&again, &KEY, DEVICE, SLOT) == Ok(found)
            // But for the key of a parent that is said not to be there, the bytes are these and no others.
            && (found.parent.is_none() || again[..USED_BYTES] == input[..USED_BYTES]);
        let elsewhere = PageHeader::decode(block, &KEY, DEVICE, SlotId { region: 1, slot: 8 }).is_ok();
        if can_be && !elsewhere { Ok(()) } else { Err(format!("{found:?}")) }
    });
}
