//! Chains become page keys, or are refused before anything is allocated for them.

use bytes::Bytes;
use cairn_core::{
    Declared, Durability, KeptOff, KeyScheme, NamespaceId, NotStored, PageKey, PageOutcome, StopReason, Tier,
};
use cairn_proto::v1::chain::Of;
use cairn_proto::v1::put_page::Outcome;
use cairn_proto::{Refused, chain_keys, key_chain, namespace_id, v1};

const ID: NamespaceId = NamespaceId::from_bytes([7; 32]);

fn engine_hashes() -> KeyScheme {
    KeyScheme::EngineHash { algorithm: "sha256".into(), seed: Declared::None }
}

fn packed(packed: &[u8], key_bytes: u32) -> Option<v1::Chain> {
    Some(v1::Chain { of: Some(Of::Keys(v1::KeyChain { packed: Bytes::copy_from_slice(packed), key_bytes })) })
}

fn tokens(tokens: Vec<u32>) -> Option<v1::Chain> {
    Some(v1::Chain { of: Some(Of::Tokens(v1::TokenChain { tokens, inputs: Vec::new() })) })
}

#[test]
fn tokens_and_the_keys_computed_from_them_name_the_same_pages() {
    let from_tokens = chain_keys(tokens((0..70).collect()), &ID, &KeyScheme::Tokens, 16, 8).unwrap();
    assert_eq!(from_tokens.len(), 4);
    let from_keys = chain_keys(Some(key_chain(&from_tokens)), &ID, &KeyScheme::Tokens, 16, 8).unwrap();
    assert_eq!(from_keys, from_tokens);
}

#[test]
fn a_chain_that_does_not_fit_is_refused() {
    let keys = |chain, scheme: &KeyScheme| chain_keys(chain, &ID, scheme, 16, 4).unwrap_err();
    let scheme = KeyScheme::Tokens;
    assert_eq!(keys(None, &scheme), Refused::Missing("chain"));
    assert_eq!(keys(tokens(vec![1; 80]), &scheme), Refused::ChainTooLong { pages: 5, pages_max: 4 });
    assert_eq!(keys(packed(&[1; 33], 32), &scheme), Refused::Packing { bytes: 33, key_bytes: 32 });
    assert_eq!(keys(packed(&[1; 32], 0), &scheme), Refused::Packing { bytes: 32, key_bytes: 0 });
    assert!(matches!(keys(packed(&[1; 16], 16), &scheme), Refused::Length { bytes: 16, expected: 32, .. }));
    assert_eq!(keys(packed(&[1; 64], 32), &scheme), Refused::Repeated { page: 1 });
    assert_eq!(keys(tokens(vec![1; 16]), &engine_hashes()), Refused::TokensForEngineHashes);
    assert!(matches!(keys(packed(&[1; 8], 8), &engine_hashes()), Refused::Chain(_)));
}

#[test]
fn an_engine_hash_of_32_bytes_is_hashed_again_so_that_it_can_not_name_a_page_of_another_namespace() {
    let keys = chain_keys(packed(&[9; 32], 32), &ID, &engine_hashes(), 16, 4).unwrap();
    assert_ne!(keys, [PageKey::from_bytes([9; 32])]);
}

#[test]
fn a_namespace_id_has_32_bytes() {
    assert_eq!(namespace_id(&[7; 32]), Ok(ID));
    assert!(matches!(namespace_id(&[7; 31]), Err(Refused::Length { bytes: 31, .. })));
}

#[test]
fn every_outcome_survives_the_wire_and_the_unspecified_one_is_refused() {
    for tier in [Tier::Dram, Tier::Ssd] {
        assert_eq!(v1::Tier::word(v1::Tier::number(tier)), Ok(tier));
    }
    for stop in StopReason::ALL {
        assert_eq!(v1::StopReason::word(v1::StopReason::number(stop)), Ok(stop));
    }
    for reason in KeptOff::ALL {
        assert_eq!(v1::KeptOff::word(v1::KeptOff::number(reason)), Ok(reason));
    }
    let outcomes = NotStored::ALL.map(PageOutcome::NotStored);
    let there = [PageOutcome::Stored(Durability::Ssd), PageOutcome::Present(Durability::Memory)];
    for outcome in outcomes.into_iter().chain(there) {
        assert_eq!(PageOutcome::try_from(Outcome::from(outcome)), Ok(outcome));
    }
    assert!(v1::Tier::word(0).is_err() && v1::Durability::word(0).is_err());
    assert!(v1::StopReason::word(0).is_err() && v1::NotStored::word(0).is_err() && v1::StopReason::word(77).is_err());
}
