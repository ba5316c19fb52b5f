//! Chains as they travel: packed keys of one length, shared and never copied.

use bytes::{Bytes, BytesMut};
use cairn_core::{Error, NamespaceId, PageKey};
use cairn_proto::v1;

use crate::fault::Fault;

/// The names of a prefix's pages, page 0 first. Cheap to clone; made by a [`crate::Namespace`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chain {
    /// The namespace that the keys are made for; `None` for an engine's own hashes, which do not depend on it.
    namespace: Option<NamespaceId>,
    packed: Bytes,
    key_bytes: usize,
}

impl Chain {
    pub(crate) fn of_keys(namespace: NamespaceId, keys: &[PageKey]) -> Self {
        let mut packed = BytesMut::with_capacity(keys.len() * 32);
        for key in keys {
            packed.extend_from_slice(key.as_bytes());
        }
        Self { namespace: Some(namespace), packed: packed.freeze(), key_bytes: 32 }
    }

    /// Packs an engine's hashes, which have one length.
    pub(crate) fn of_hashes<'a>(
        namespace: &NamespaceId,
        hashes: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Self, Fault> {
        let mut packed = BytesMut::new();
        let mut key_bytes = 0;
        for (page, hash) in hashes.into_iter().enumerate() {
            if page == 0 {
                // Refuses a length that no server takes; all others have the same.
                PageKey::of_engine_hash(namespace, hash)?;
                key_bytes = hash.len();
            }
            if hash.len() != key_bytes {
                return Err(Fault::HashBytes { page, bytes: hash.len(), expected: key_bytes });
            }
            packed.extend_from_slice(hash);
        }
        Ok(Self { namespace: None, packed: packed.freeze(), key_bytes })
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.packed.len().checked_div(self.key_bytes).unwrap_or(0)
    }

    /// The key of page `page` as it travels: 32 bytes of a chain key, or the engine's hash. `None` beyond the end.
    pub fn key(&self, page: usize) -> Option<&[u8]> {
        self.packed.chunks_exact(self.key_bytes.max(1)).nth(page)
    }

    /// The chain of the first `pages` pages, or of all if there are fewer. Copies no keys.
    #[must_use]
    pub fn prefix(&self, pages: usize) -> Self {
        let packed = self.packed.slice(..pages.min(self.pages()) * self.key_bytes);
        Self { packed, ..self.clone() }
    }

    /// The message, for a call in `namespace`.
    pub(crate) fn message(&self, namespace: NamespaceId) -> Result<v1::Chain, Error> {
        match self.namespace {
            Some(chain) if chain != namespace => Err(Fault::ForeignChain { chain, namespace }.into()),
            _ => {
                let key_bytes = u32::try_from(self.key_bytes).unwrap_or(u32::MAX);
                let keys = v1::KeyChain { packed: self.packed.clone(), key_bytes };
                Ok(v1::Chain { of: Some(v1::chain::Of::Keys(keys)) })
            }
        }
    }
}
