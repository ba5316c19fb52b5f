//! Identity: everything that shapes a page's bytes, and the namespace id made of it.
//!
//! A page may be reused only if all of this is the same. So every field is required; what does not apply is stated as
//! [`Declared::None`], never left out and never defaulted. The canonical form and its test vectors are in `docs/FORMAT.md`, so that a
//! client in any language can reproduce them.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error as ThisError;

use crate::TenantSalt;

/// Longest text field of an identity, in bytes.
const TEXT_BYTES_MAX: usize = 512;
/// Smallest page, in bytes. Below this a page is all bookkeeping; 0-byte and 1-byte pages are mistakes.
const PAGE_BYTES_MIN: u64 = 256;
/// Largest page, in bytes. A server may set a lower limit.
const PAGE_BYTES_MAX: u64 = 1 << 30;
/// Most tokens in one page.
const PAGE_TOKENS_MAX: u32 = 1 << 16;

/// Something that an identity either has or states not to have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Declared<T> {
    /// Stated: there is none.
    None,
    /// Stated: it is this.
    Is(T),
}

/// A LoRA or other adapter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    /// The adapter's name.
    pub name: String,
    /// Its revision: changes when the weights under the name change.
    pub revision: String,
}

/// What kind of state a page holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateKind {
    /// Keys and values of full attention (multi-head, grouped-query, multi-query).
    Attention,
    /// Latent attention (MLA): one latent vector per token and layer.
    LatentAttention,
    /// Keys and values of sliding-window attention.
    SlidingWindow,
    /// Recurrent or state-space state.
    Recurrent,
    /// Compressed attention.
    CompressedAttention,
    /// Encoder outputs, such as image features.
    EncoderOutput,
}

impl StateKind {
    const fn code(self) -> u8 {
        match self {
            Self::Attention => 1,
            Self::LatentAttention => 2,
            Self::SlidingWindow => 3,
            Self::Recurrent => 4,
            Self::CompressedAttention => 5,
            Self::EncoderOutput => 6,
        }
    }
}

/// The layers whose state a page holds: a pipeline stage holds a part of the model's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerRange {
    /// First layer, counted from 0.
    pub first: u32,
    /// Number of layers.
    pub count: u32,
    /// Layers of the whole model.
    pub of: u32,
}

/// The heads whose state a page holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Heads {
    /// The same state on every tensor-parallel rank (latent attention): stored once for all.
    Replicated,
    /// A tensor-parallel rank's share of the key/value heads.
    Range(HeadRange),
}

/// A run of key/value heads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadRange {
    /// First head, counted from 0.
    pub first: u32,
    /// Number of heads.
    pub count: u32,
    /// Key/value heads of the whole model.
    pub of: u32,
}

/// How the state is quantised.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantisation {
    /// The scheme, such as `fp8_e4m3`.
    pub scheme: String,
    /// What determines the scales, such as a digest of the scale file, or `dynamic`.
    pub scales: String,
}

/// What the keys of a namespace are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyScheme {
    /// Cairn's own chain keys, computed from tokens.
    Tokens,
    /// Hashes that the engine computes: opaque to Cairn, 16 to 64 bytes each.
    EngineHash {
        /// Name of the engine's hash algorithm, such as `vllm sha256_cbor`.
        algorithm: String,
        /// The seed that the algorithm was started with; two seeds never share pages.
        seed: Declared<String>,
    },
}

/// Everything that shapes a page's bytes. Build it in full: there are no defaults.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Model name.
    pub model: String,
    /// Revision of the weights.
    pub model_revision: String,
    /// Adapter on top of the weights.
    pub adapter: Declared<Adapter>,
    /// Position encoding and its parameters, in the engine's words.
    pub positions: Declared<String>,
    /// Kind of state.
    pub kind: StateKind,
    /// Element type, such as `bf16`.
    pub dtype: String,
    /// Order of dimensions inside a page, such as `NHD`.
    pub layout: String,
    /// Version of that layout: changes when the engine changes what the name means.
    pub layout_version: String,
    /// Tokens per page.
    pub page_tokens: u32,
    /// Bytes per page.
    pub page_bytes: u64,
    /// Layers in a page.
    pub layers: LayerRange,
    /// Heads in a page.
    pub heads: Heads,
    /// Quantisation of the state.
    pub quantisation: Declared<Quantisation>,
    /// The client's own salt. It is added to the server's tenant salt and never replaces it.
    pub cache_salt: Declared<String>,
    /// What the keys are.
    pub keys: KeyScheme,
}

/// Why an identity is refused.
#[derive(Clone, PartialEq, Eq, Debug, ThisError)]
#[non_exhaustive]
pub enum IdentityFault {
    /// A required text is empty.
    #[error("a field is empty; what does not apply is stated as none field={0}")]
    Empty(&'static str),
    /// A text is too long.
    #[error("a field is too long field={field} bytes={bytes} bytes_max={TEXT_BYTES_MAX}")]
    TooLong {
        /// The field.
        field: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// A number is outside its range.
    #[error("a number is out of range field={field} value={value} min={min} max={max}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// The value given.
        value: u64,
        /// The least allowed.
        min: u64,
        /// The most allowed.
        max: u64,
    },
    /// A range does not lie inside what it is a part of.
    #[error("a range is empty or does not fit field={field} first={first} count={count} of={of}")]
    BadRange {
        /// The field.
        field: &'static str,
        /// First member.
        first: u32,
        /// Number of members.
        count: u32,
        /// Size of the whole.
        of: u32,
    },
}

impl Identity {
    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is empty, too long or out of range.
    pub fn validate(&self) -> Result<(), IdentityFault> {
        for (field, text) in self.texts() {
            if text.is_empty() {
                return Err(IdentityFault::Empty(field));
            }
            if text.len() > TEXT_BYTES_MAX {
                return Err(IdentityFault::TooLong { field, bytes: text.len() });
            }
        }
        in_range("page_tokens", u64::from(self.page_tokens), 1, u64::from(PAGE_TOKENS_MAX))?;
        in_range("page_bytes", self.page_bytes, PAGE_BYTES_MIN, PAGE_BYTES_MAX)?;
        let LayerRange { first, count, of } = self.layers;
        inside("layers", first, count, of)?;
        if let Heads::Range(HeadRange { first, count, of }) = self.heads {
            inside("heads", first, count, of)?;
        }
        Ok(())
    }

    fn texts(&self) -> Vec<(&'static str, &str)> {
        let mut texts = vec![
            ("model", self.model.as_str()),
            ("model_revision", &self.model_revision),
            ("dtype", &self.dtype),
            ("layout", &self.layout),
            ("layout_version", &self.layout_version),
        ];
        if let Declared::Is(adapter) = &self.adapter {
            texts.extend([("adapter.name", adapter.name.as_str()), ("adapter.revision", &adapter.revision)]);
        }
        if let Declared::Is(positions) = &self.positions {
            texts.push(("positions", positions));
        }
        if let Declared::Is(q) = &self.quantisation {
            texts.extend([("quantisation.scheme", q.scheme.as_str()), ("quantisation.scales", &q.scales)]);
        }
        if let Declared::Is(salt) = &self.cache_salt {
            texts.push(("cache_salt", salt));
        }
        if let KeyScheme::EngineHash { algorithm, seed } = &self.keys {
            texts.push(("keys.algorithm", algorithm));
            if let Declared::Is(seed) = seed {
                texts.push(("keys.seed", seed));
            }
        }
        texts
    }

    /// The canonical bytes: `"cairn identity v1"`, then every field in order as a tag byte and its value. A text is a little-endian u32
    /// length and UTF-8 bytes; a number is little endian; [`Declared`] is a byte 0, or a byte 1 and the value.
    pub fn canonical_bytes(&self) -> Vec<u8> {
        let mut out = Canonical(b"cairn identity v1".to_vec());
        out.tag(1).text(&self.model);
        out.tag(2).text(&self.model_revision);
        out.tag(3).declared(&self.adapter, |out, a| {
            out.text(&a.name).text(&a.revision);
        });
        out.tag(4).declared(&self.positions, |out, p| {
            out.text(p);
        });
        out.tag(5).byte(self.kind.code());
        out.tag(6).text(&self.dtype);
        out.tag(7).text(&self.layout);
        out.tag(8).text(&self.layout_version);
        out.tag(9).u32(self.page_tokens);
        out.tag(10).u64(self.page_bytes);
        out.tag(11).u32(self.layers.first).u32(self.layers.count).u32(self.layers.of);
        match self.heads {
            Heads::Replicated => out.tag(12).byte(0),
            Heads::Range(h) => out.tag(12).byte(1).u32(h.first).u32(h.count).u32(h.of),
        };
        out.tag(13).declared(&self.quantisation, |out, q| {
            out.text(&q.scheme).text(&q.scales);
        });
        out.tag(14).declared(&self.cache_salt, |out, s| {
            out.text(s);
        });
        match &self.keys {
            KeyScheme::Tokens => {
                out.tag(15).byte(0);
            }
            KeyScheme::EngineHash { algorithm, seed } => {
                out.tag(15).byte(1).text(algorithm).declared(seed, |out, s| {
                    out.text(s);
                });
            }
        }
        out.0
    }

    /// The namespace id of this identity for the tenant with `salt`: BLAKE3 in key-derivation mode, context
    /// `"cairn 2026 namespace id v1"`, over the salt and the canonical bytes.
    pub fn namespace_id(&self, salt: &TenantSalt) -> NamespaceId {
        let mut hasher = blake3::Hasher::new_derive_key("cairn 2026 namespace id v1");
        hasher.update(salt.as_bytes());
        hasher.update(&self.canonical_bytes());
        NamespaceId(*hasher.finalize().as_bytes())
    }
}

fn in_range(field: &'static str, value: u64, min: u64, max: u64) -> Result<(), IdentityFault> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(IdentityFault::OutOfRange { field, value, min, max }) }
}

fn inside(field: &'static str, first: u32, count: u32, of: u32) -> Result<(), IdentityFault> {
    let fits = count > 0 && first.checked_add(count).is_some_and(|end| end <= of);
    if fits { Ok(()) } else { Err(IdentityFault::BadRange { field, first, count, of }) }
}

/// Writer of canonical bytes.
struct Canonical(Vec<u8>);

impl Canonical {
    fn tag(&mut self, tag: u8) -> &mut Self {
        self.byte(tag)
    }

    fn byte(&mut self, byte: u8) -> &mut Self {
        self.0.push(byte);
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        // Longer than 4 GiB can not pass `validate`.
        self.u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    fn declared<T>(&mut self, value: &Declared<T>, write: impl FnOnce(&mut Self, &T)) -> &mut Self {
        match value {
            Declared::None => {
                self.byte(0);
            }
            Declared::Is(value) => {
                self.byte(1);
                write(self, value);
            }
        }
        self
    }
}

/// The id of a namespace: one identity of one tenant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceId([u8; 32]);

impl NamespaceId {
    /// Takes an id that came over the wire or from disk.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The id's bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for NamespaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for NamespaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
