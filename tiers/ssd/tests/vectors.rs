//! The code computes what `docs/FORMAT.md` says: `docs/vectors/identity.json` was made from the page alone, by another program.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that can not go on says so by panicking")]

use cairn_core::{
    Checksum, DeviceId, Generation, HEADER_BYTES, HeaderKey, Identity, NamespaceId, PageHeader, PageKey, ServerSecret,
    SlotId, TenantId, TenantSalt,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Vectors {
    tenant_salts: Vec<Salt>,
    identities: Vec<Named>,
    token_chain: Chain,
    engine_keys: Vec<EngineKey>,
    checksums: Vec<Sum>,
    slot_headers: Vec<Header>,
}

#[derive(Deserialize)]
struct Salt {
    secret: String,
    tenant: String,
    salt: String,
}

#[derive(Deserialize)]
struct Named {
    identity: Identity,
    salt: String,
    canonical: String,
    namespace_id: String,
}

#[derive(Deserialize)]
struct Chain {
    namespace: String,
    pages: Vec<Page>,
}

#[derive(Deserialize)]
struct Page {
    tokens: Vec<u32>,
    extra: String,
    key: String,
}

#[derive(Deserialize)]
struct EngineKey {
    namespace: String,
    hash: String,
    key: String,
}

#[derive(Deserialize)]
struct Sum {
    bytes: String,
    xxh3_64: String,
}

#[derive(Deserialize)]
struct Header {
    header_key: String,
    device: String,
    region: u32,
    slot: u32,
    namespace: String,
    key: String,
    parent: Option<String>,
    position: u32,
    generation: u64,
    payload_bytes: u64,
    checksum: String,
    encoded: String,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../../../docs/vectors/identity.json")).unwrap()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn array<const N: usize>(hex: &str) -> [u8; N] {
    bytes(hex).try_into().unwrap()
}

fn checksum(hex: &str) -> Checksum {
    Checksum::from_u64(u64::from_str_radix(hex, 16).unwrap())
}

#[test]
fn tenant_salts_are_as_documented() {
    for Salt { secret, tenant, salt } in vectors().tenant_salts {
        let found = ServerSecret::from_bytes(array(&secret)).tenant_salt(&TenantId::new(&tenant).unwrap());
        assert!(found == TenantSalt::from_bytes(array(&salt)));
    }
}

#[test]
fn canonical_bytes_and_namespace_ids_are_as_documented() {
    for named in vectors().identities {
        named.identity.validate().unwrap();
        assert_eq!(named.identity.canonical_bytes(), bytes(&named.canonical));
        let id = named.identity.namespace_id(&TenantSalt::from_bytes(array(&named.salt)));
        assert_eq!(id, NamespaceId::from_bytes(array(&named.namespace_id)));
    }
}

#[test]
fn chain_keys_are_as_documented() {
    let Chain { namespace, pages } = vectors().token_chain;
    let namespace = NamespaceId::from_bytes(array(&namespace));
    let mut parent = None;
    for page in pages {
        let key = PageKey::of_tokens(&namespace, parent.as_ref(), &page.tokens, &bytes(&page.extra));
        assert_eq!(key, PageKey::from_bytes(array(&page.key)));
        parent = Some(key);
    }
    for EngineKey { namespace, hash, key } in vectors().engine_keys {
        let found = PageKey::of_engine_hash(&NamespaceId::from_bytes(array(&namespace)), &bytes(&hash)).unwrap();
        assert_eq!(found, PageKey::from_bytes(array(&key)));
    }
}

#[test]
fn checksums_and_slot_headers_are_as_documented() {
    for sum in vectors().checksums {
        assert_eq!(Checksum::of(&bytes(&sum.bytes)), checksum(&sum.xxh3_64));
    }
    for vector in vectors().slot_headers {
        let header = PageHeader {
            device: DeviceId::from_bytes(array(&vector.device)),
            slot: SlotId { region: vector.region, slot: vector.slot },
            namespace: NamespaceId::from_bytes(array(&vector.namespace)),
            key: PageKey::from_bytes(array(&vector.key)),
            parent: vector.parent.as_deref().map(|key| PageKey::from_bytes(array(key))),
            position: vector.position,
            generation: Generation::from_u64(vector.generation),
            payload_bytes: vector.payload_bytes,
            checksum: checksum(&vector.checksum),
        };
        let key = HeaderKey::from_bytes(array(&vector.header_key));
        let mut block = [0xff; HEADER_BYTES];
        header.encode(&key, &mut block);
        let (used, rest) = block.split_at(192);
        assert_eq!(used, bytes(&vector.encoded));
        assert!(rest.iter().all(|byte| *byte == 0));
        assert_eq!(PageHeader::decode(&block, &key, header.device, header.slot), Ok(header));
    }
}
