//! Chains: packed tokens or packed keys on the wire, page keys inside. What is packed stays a slice of the message that it came in, and
//! limits are checked before anything is allocated for the keys.

use bytes::{BufMut, BytesMut};
use cairn_core::{ChainFault, KeyScheme, NamespaceId, PageInputs, PageKey, chain_from_engine_hashes};

use crate::Refused;
use crate::v1;
use crate::v1::chain::Of;

const CHAIN_KEY_BYTES: usize = 32;
const TOKEN_BYTES: usize = 4;
/// Longest digest of a page's extra inputs.
const INPUT_BYTES_MAX: usize = 256;

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
    let (tokens, rest) = chain.tokens.as_chunks::<TOKEN_BYTES>();
    if !rest.is_empty() {
        let bytes = chain.tokens.len();
        return Err(Refused::Packing { field: "chain.tokens.tokens", bytes, item_bytes: TOKEN_BYTES });
    }
    let page_tokens = page_tokens as usize;
    let pages = tokens.len().checked_div(page_tokens).unwrap_or(0);
    within(pages, pages_max)?;
    let mut keys: Vec<PageKey> = Vec::with_capacity(pages);
    let mut inputs = &chain.inputs[..];
    // The tokens of one page at a time are unpacked.
    let mut unpacked = Vec::new();
    for (page, packed) in tokens.chunks_exact(page_tokens.max(1)).take(pages).enumerate() {
        unpacked.clear();
        unpacked.extend(packed.iter().map(|token| u32::from_le_bytes(*token)));
        let extra = take_input(&mut inputs, page)?;
        keys.push(PageKey::of_tokens(id, keys.last(), &unpacked, extra));
    }
    match first_input(inputs)? {
        None => Ok(keys),
        // Beyond the chain, or behind one that should have come after it.
        Some(left) => Err(ChainFault::Inputs { page: left.page }.into()),
    }
}

/// One page's extra inputs, at the start of packed ones.
struct Input<'a> {
    page: usize,
    digest: &'a [u8],
    /// What follows it.
    rest: &'a [u8],
}

fn first_input(packed: &[u8]) -> Result<Option<Input<'_>>, Refused> {
    if packed.is_empty() {
        return Ok(None);
    }
    let read = || {
        let (page, rest) = packed.split_first_chunk()?;
        let (digest_bytes, rest) = rest.split_first_chunk()?;
        let (digest, rest) = rest.split_at_checked(u16::from_le_bytes(*digest_bytes).into())?;
        Some(Input { page: u32::from_le_bytes(*page) as usize, digest, rest })
    };
    read().map(Some).ok_or(Refused::InputsCutOff { bytes: packed.len() })
}

/// Takes the inputs of `page` if they come next; there are none otherwise.
fn take_input<'a>(packed: &mut &'a [u8], page: usize) -> Result<&'a [u8], Refused> {
    match first_input(packed)? {
        Some(input) if input.page == page => {
            if input.digest.len() > INPUT_BYTES_MAX {
                return Err(ChainFault::Inputs { page }.into());
            }
            *packed = input.rest;
            Ok(input.digest)
        }
        _ => Ok(&[]),
    }
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
        return Err(Refused::Packing { field: "chain.keys.packed", bytes: chain.packed.len(), item_bytes: key_bytes });
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

/// A chain message of tokens and of extra inputs, which are in ascending order of page.
///
/// # Errors
/// [`Refused::Chain`] if the inputs of a page can not be packed: their digest is too long, or the page is beyond any chain.
pub fn token_chain(tokens: &[u32], inputs: &[PageInputs]) -> Result<v1::Chain, Refused> {
    let mut packed = BytesMut::with_capacity(tokens.len() * TOKEN_BYTES);
    tokens.iter().for_each(|token| packed.put_u32_le(*token));
    let mut packed_inputs = BytesMut::new();
    for PageInputs { page, digest } in inputs {
        let refused = |_| ChainFault::Inputs { page: *page };
        packed_inputs.put_u32_le(u32::try_from(*page).map_err(refused)?);
        packed_inputs.put_u16_le(u16::try_from(digest.len()).map_err(refused)?);
        packed_inputs.put_slice(digest);
    }
    let tokens = v1::TokenChain { tokens: packed.freeze(), inputs: packed_inputs.freeze() };
    Ok(v1::Chain { of: Some(Of::Tokens(tokens)) })
}
