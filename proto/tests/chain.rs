//! Chains become page keys, or are refused before anything is allocated for them.

use bytes::Bytes;
use cairn_core::{
    ChainFault, Declared, Durability, KeptOff, KeyScheme, NamespaceId, NotStored, PageInputs, PageKey, PageOutcome,
    StopReason, Tier, chain_from_tokens,
};
use cairn_proto::v1::chain::Of;
use cairn_proto::v1::put_page::Outcome;
use cairn_proto::{Refused, chain_keys, key_chain, namespace_id, token_chain, v1};

const ID: NamespaceId = NamespaceId::from_bytes([7; 32]);

fn engine_hashes() -> KeyScheme {
    KeyScheme::EngineHash { algorithm: "sha256".into(), seed: Declared::None }
}

fn packed(packed: &[u8], key_bytes: u32) -> Option<v1::Chain> {
    Some(v1::Chain { of: Some(Of::Keys(v1::KeyChain { packed: Bytes::copy_from_slice(packed), key_bytes })) })
}

fn tokens(tokens: Vec<u32>) -> Option<v1::Chain> {
    token_chain(&tokens, &[]).ok()
}

/// Five pages of tokens with extra inputs as they are packed, and what becomes of them.
fn with_packed_inputs(inputs: &[u8]) -> Result<Vec<PageKey>, Refused> {
    let Some(Of::Tokens(chain)) = token_chain(&(0..80).collect::<Vec<u32>>(), &[])?.of else {
        panic!("made of tokens")
    };
    let chain = v1::TokenChain { inputs: Bytes::copy_from_slice(inputs), ..chain };
    chain_keys(Some(v1::Chain { of: Some(Of::Tokens(chain)) }), &ID, &KeyScheme::Tokens, 16, 5)
}

#[test]
fn tokens_and_the_keys_computed_from_them_name_the_same_pages() {
    let from_tokens = chain_keys(tokens((0..70).collect()), &ID, &KeyScheme::Tokens, 16, 8).unwrap();
    assert_eq!(from_tokens.len(), 4);
    let from_keys = chain_keys(Some(key_chain(&from_tokens)), &ID, &KeyScheme::Tokens, 16, 8).unwrap();
    assert_eq!(from_keys, from_tokens);
}

#[test]
fn extra_inputs_name_the_same_pages_on_the_wire_and_in_a_client() {
    let inputs = [(1, vec![7; 32]), (4, vec![9; 256])].map(|(page, digest)| PageInputs { page, digest });
    let all: Vec<u32> = (0..80).collect();
    let sent = token_chain(&all, &inputs).unwrap();
    let here = chain_keys(Some(sent), &ID, &KeyScheme::Tokens, 16, 8).unwrap();
    assert_eq!(here, chain_from_tokens(&ID, &all, 16, &inputs).unwrap());
    assert_ne!(here, chain_from_tokens(&ID, &all, 16, &[]).unwrap());
}

#[test]
fn extra_inputs_that_are_cut_off_out_of_order_too_long_or_beyond_the_chain_are_refused() {
    let input =
        |page: u32, bytes: u16| [&page.to_le_bytes()[..], &bytes.to_le_bytes(), &vec![1; bytes.into()]].concat();
    assert_eq!(with_packed_inputs(&input(2, 8)[..9]), Err(Refused::InputsCutOff { bytes: 9 }));
    assert_eq!(with_packed_inputs(&[1, 2, 3]), Err(Refused::InputsCutOff { bytes: 3 }));
    let refused = |page| Err(Refused::Chain(ChainFault::Inputs { page }));
    assert_eq!(with_packed_inputs(&[input(3, 8), input(1, 8)].concat()), refused(1));
    assert_eq!(with_packed_inputs(&[input(3, 8), input(3, 8)].concat()), refused(3));
    assert_eq!(with_packed_inputs(&input(3, 257)), refused(3));
    assert_eq!(with_packed_inputs(&input(5, 8)), refused(5));
    assert!(with_packed_inputs(&[input(0, 8), input(4, 256)].concat()).is_ok());
}

#[test]
fn a_chain_that_does_not_fit_is_refused() {
    let keys = |chain, scheme: &KeyScheme| chain_keys(chain, &ID, scheme, 16, 4).unwrap_err();
    let scheme = KeyScheme::Tokens;
    assert_eq!(keys(None, &scheme), Refused::Missing("chain"));
    assert_eq!(keys(tokens(vec![1; 80]), &scheme), Refused::ChainTooLong { pages: 5, pages_max: 4 });
    assert_eq!(
        keys(packed(&[1; 33], 32), &scheme),
        Refused::Packing { field: "chain.keys.packed", bytes: 33, item_bytes: 32 }
    );
    assert_eq!(
        keys(packed(&[1; 32], 0), &scheme),
        Refused::Packing { field: "chain.keys.packed", bytes: 32, item_bytes: 0 }
    );
    let odd = v1::TokenChain { tokens: Bytes::from_static(&[0; 65]), inputs: Bytes::new() };
    let odd = keys(Some(v1::Chain { of: Some(Of::Tokens(odd)) }), &scheme);
    assert_eq!(odd, Refused::Packing { field: "chain.tokens.tokens", bytes: 65, item_bytes: 4 });
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
