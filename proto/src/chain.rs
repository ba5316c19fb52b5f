//! Chains: tokens or packed keys on the wire, page keys inside. Limits are checked before anything is allocated for the keys.

use bytes::BytesMut;
use cairn_core::{KeyScheme, NamespaceId, PageInputs, PageKey, chain_from_engine_hashes, chain_from_tokens};

use crate::Refused;
use crate::v1;
use crate::v1::chain::Of;

const CHAIN_KEY_BYTES: usize = 32;

/// Takes a namespace id.
///
/// # Errors
/// [`Refused::Length`] unless it has 32 bytes.
pub fn namespace_id(bytes: &[u8]) -> Result<NamespaceId, Refused> {
    let id =
        bytes.try_into().map_err(|_| Refused::Length { field: "namespace_id", bytes: bytes.len(), expected: 32 })?;
    Ok(NamespaceId::from_bytes(id))
}

/// The page keys of a chain in the namespace `id` with `scheme` and `page_tokens`, in prefix order. Costs one hash per page (tokens:
/// per page of tokens), on the calling thread.
///
/// # Errors
/// [`Refused`] if the chain is absent, too long, does not fit the namespace's key scheme, has keys of the wrong length, or names a page
/// twice.
pub fn chain_keys(
    chain: Option<v1::Chain>,
    id: &NamespaceId,
    scheme: &KeyScheme,
    page_tokens: u32,
    pages_max: u64,
) -> Result<Vec<PageKey>, Refused> {
    match chain.and_then(|chain| chain.of).ok_or(Refused::Missing("chain"))? {
        Of::Tokens(tokens) => token_keys(&tokens, id, scheme, page_tokens, pages_max),
        Of::Keys(keys) => packed_keys(&keys, id, scheme, pages_max),
    }
}

fn token_keys(
    chain: &v1::TokenChain,
    id: &NamespaceId,
    scheme: &KeyScheme,
    page_tokens: u32,
    pages_max: u64,
) -> Result<Vec<PageKey>, Refused> {
    if *scheme != KeyScheme::Tokens {
        return Err(Refused::TokensForEngineHashes);
    }
    let pages = chain.tokens.len().checked_div(page_tokens as usize).unwrap_or(0);
    within(pages, pages_max)?;
    within(chain.inputs.len(), pages_max)?;
    let inputs: Vec<PageInputs> = chain
        .inputs
        .iter()
        .map(|input| PageInputs {
            page: usize::try_from(input.page).unwrap_or(usize::MAX),
            digest: input.digest.clone(),
        })
        .collect();
    Ok(chain_from_tokens(id, &chain.tokens, page_tokens, &inputs)?)
}

fn packed_keys(
    chain: &v1::KeyChain,
    id: &NamespaceId,
    scheme: &KeyScheme,
    pages_max: u64,
) -> Result<Vec<PageKey>, Refused> {
    let key_bytes = chain.key_bytes as usize;
    if chain.packed.is_empty() {
        return Ok(Vec::new());
    }
    if key_bytes == 0 || !chain.packed.len().is_multiple_of(key_bytes) {
        return Err(Refused::Packing { bytes: chain.packed.len(), key_bytes: chain.key_bytes });
    }
    within(chain.packed.len() / key_bytes, pages_max)?;
    let each = chain.packed.chunks_exact(key_bytes);
    let keys = match scheme {
        KeyScheme::EngineHash { .. } => chain_from_engine_hashes(id, each)?,
        KeyScheme::Tokens => each.map(chain_key).collect::<Result<_, _>>()?,
    };
    distinct(&keys)?;
    Ok(keys)
}

fn chain_key(bytes: &[u8]) -> Result<PageKey, Refused> {
    let wrong = |_| Refused::Length { field: "chain.keys.key_bytes", bytes: bytes.len(), expected: CHAIN_KEY_BYTES };
    Ok(PageKey::from_bytes(bytes.try_into().map_err(wrong)?))
}

fn within(pages: usize, pages_max: u64) -> Result<(), Refused> {
    let pages = pages as u64;
    if pages > pages_max { Err(Refused::ChainTooLong { pages, pages_max }) } else { Ok(()) }
}

/// A key stands for its whole prefix, so it can be in a chain only once. Chains computed here from tokens can not repeat.
fn distinct(keys: &[PageKey]) -> Result<(), Refused> {
    let mut order: Vec<(&PageKey, usize)> = keys.iter().zip(0..).collect();
    order.sort_unstable();
    match order.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(Refused::Repeated { page: pair[1].1 }),
        None => Ok(()),
    }
}

/// A chain message of chain keys.
pub fn key_chain(keys: &[PageKey]) -> v1::Chain {
    let mut packed = BytesMut::with_capacity(keys.len() * CHAIN_KEY_BYTES);
    for key in keys {
        packed.extend_from_slice(key.as_bytes());
    }
    let keys = v1::KeyChain { packed: packed.freeze(), key_bytes: 32 };
    v1::Chain { of: Some(Of::Keys(keys)) }
}
