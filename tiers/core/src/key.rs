//! Page keys: the names of pages within a namespace.
//!
//! key_i = BLAKE3(namespace, key_{i-1}, tokens of page i, extra inputs of page i). A key therefore stands for every token from
//! position 0 to the end of its page: the same tokens after another prefix have another key.

use std::fmt;

use thiserror::Error as ThisError;

use crate::NamespaceId;

/// Shortest engine hash that is taken, in bytes. Below 128 bits another request's hash can be hit by chance or on purpose.
const ENGINE_HASH_BYTES_MIN: usize = 16;
/// Longest engine hash that is taken, in bytes.
const ENGINE_HASH_BYTES_MAX: usize = 64;

/// The key of one page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageKey([u8; 32]);

impl PageKey {
    /// Takes a chain key that came over the wire or from disk.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The key's bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key of page `i` from the key of page `i - 1` (`None` for page 0), the page's tokens and the page's extra inputs.
    ///
    /// BLAKE3 in key-derivation mode, context `"cairn 2026 page key v1"`, over: namespace id; 32 bytes of the parent's key, or zeros;
    /// number of tokens (u32 LE); the tokens (u32 LE each); length of the extra inputs (u32 LE); the extra inputs.
    pub fn of_tokens(namespace: &NamespaceId, parent: Option<&PageKey>, tokens: &[u32], extra: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("cairn 2026 page key v1");
        hasher.update(namespace.as_bytes());
        hasher.update(&parent.map_or([0; 32], |key| *key.as_bytes()));
        let mut body = Vec::with_capacity(8 + tokens.len() * 4 + extra.len());
        body.extend_from_slice(&u32::try_from(tokens.len()).unwrap_or(u32::MAX).to_le_bytes());
        for token in tokens {
            body.extend_from_slice(&token.to_le_bytes());
        }
        body.extend_from_slice(&u32::try_from(extra.len()).unwrap_or(u32::MAX).to_le_bytes());
        body.extend_from_slice(extra);
        hasher.update(&body);
        Self(*hasher.finalize().as_bytes())
    }

    /// The key of a page that the engine names by its own `hash`.
    ///
    /// BLAKE3 in key-derivation mode, context `"cairn 2026 engine key v1"`, over the namespace id and the hash.
    ///
    /// # Errors
    /// [`ChainFault::EngineHashBytes`] unless the hash has 16 to 64 bytes.
    pub fn of_engine_hash(namespace: &NamespaceId, hash: &[u8]) -> Result<Self, ChainFault> {
        if !(ENGINE_HASH_BYTES_MIN..=ENGINE_HASH_BYTES_MAX).contains(&hash.len()) {
            return Err(ChainFault::EngineHashBytes { bytes: hash.len() });
        }
        let mut hasher = blake3::Hasher::new_derive_key("cairn 2026 engine key v1");
        hasher.update(namespace.as_bytes());
        hasher.update(hash);
        Ok(Self(*hasher.finalize().as_bytes()))
    }
}

impl fmt::Display for PageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for PageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(6).try_for_each(|b| write!(f, "{b:02x}"))?;
        f.write_str("..")
    }
}

/// Extra inputs of one page: what shapes its bytes besides tokens, such as the digest of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageInputs {
    /// The page's position in the chain.
    pub page: usize,
    /// Digest of the inputs, up to 256 bytes.
    pub digest: Vec<u8>,
}

/// Why a chain is refused.
#[derive(Clone, PartialEq, Eq, Debug, ThisError)]
#[non_exhaustive]
pub enum ChainFault {
    /// An engine hash has the wrong length.
    #[error(
        "an engine hash has {ENGINE_HASH_BYTES_MIN} to {ENGINE_HASH_BYTES_MAX} bytes; shorter ones collide bytes={bytes}"
    )]
    EngineHashBytes {
        /// The length given.
        bytes: usize,
    },
    /// Extra inputs are out of order, repeated, too long or beyond the last page.
    #[error("extra inputs are in ascending page order, one a page, within the chain and at most 256 bytes page={page}")]
    Inputs {
        /// The page they name.
        page: usize,
    },
}

/// Computes the chain of `tokens`: one key for each full page of `page_tokens`; an incomplete last page has none.
///
/// # Errors
/// [`ChainFault::Inputs`] if `inputs` are not in ascending order of page, name a page beyond the last, or are too long.
///
/// # Panics
/// Never; a `page_tokens` of 0 gives no keys.
pub fn chain_from_tokens(
    namespace: &NamespaceId,
    tokens: &[u32],
    page_tokens: u32,
    inputs: &[PageInputs],
) -> Result<Vec<PageKey>, ChainFault> {
    let page_tokens = page_tokens as usize;
    let pages = tokens.len().checked_div(page_tokens).unwrap_or(0);
    let mut last = None;
    for input in inputs {
        let ascending = last.is_none_or(|last| last < input.page);
        if !ascending || input.page >= pages || input.digest.len() > 256 {
            return Err(ChainFault::Inputs { page: input.page });
        }
        last = Some(input.page);
    }
    let mut keys: Vec<PageKey> = Vec::with_capacity(pages);
    let mut inputs = inputs.iter().peekable();
    for (page, tokens) in tokens.chunks_exact(page_tokens.max(1)).take(pages).enumerate() {
        let extra = inputs.next_if(|input| input.page == page).map_or(&[][..], |input| &input.digest);
        keys.push(PageKey::of_tokens(namespace, keys.last(), tokens, extra));
    }
    Ok(keys)
}

/// Computes the chain of an engine's own hashes, in their order.
///
/// # Errors
/// [`ChainFault::EngineHashBytes`] for the first hash that does not have 16 to 64 bytes.
pub fn chain_from_engine_hashes<'a>(
    namespace: &NamespaceId,
    hashes: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<PageKey>, ChainFault> {
    hashes.into_iter().map(|hash| PageKey::of_engine_hash(namespace, hash)).collect()
}

/// Pages that a request of `request_tokens` can use: its last token must be computed to get logits, so a page that ends with it is of
/// no use. 1,024 tokens in 16-token pages can use 63 pages, not 64.
pub fn usable_pages(request_tokens: u64, page_tokens: u32) -> u64 {
    request_tokens.saturating_sub(1) / u64::from(page_tokens.max(1))
}
