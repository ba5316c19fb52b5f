//! Identities: complete or refused.

use cairn_core::{Adapter, Declared, HeadRange, Heads, Identity, KeyScheme, LayerRange, Quantisation, StateKind};

use crate::Refused;
use crate::v1;
use crate::v1::identity::{
    Adapter as AdapterField, CacheSalt as SaltField, Heads as HeadsField, Keys as KeysField,
    Positions as PositionsField, Quantisation as QuantisationField,
};

/// A required field, or the refusal that names it.
fn required<T>(value: Option<T>, field: &'static str) -> Result<T, Refused> {
    value.ok_or(Refused::Missing(field))
}

/// Takes an identity whose every field is present. Ranges and lengths are checked by [`Identity::validate`], not here.
impl TryFrom<v1::Identity> for Identity {
    type Error = Refused;

    fn try_from(wire: v1::Identity) -> Result<Self, Refused> {
        Ok(Self {
            model: required(wire.model, "identity.model")?,
            model_revision: required(wire.model_revision, "identity.model_revision")?,
            adapter: adapter(required(wire.adapter, "identity.adapter")?)?,
            positions: match required(wire.positions, "identity.positions")? {
                PositionsField::NoPositions(_) => Declared::None,
                PositionsField::WithPositions(positions) => Declared::Is(positions),
            },
            kind: state_kind(required(wire.kind, "identity.kind")?)?,
            dtype: required(wire.dtype, "identity.dtype")?,
            layout: required(wire.layout, "identity.layout")?,
            layout_version: required(wire.layout_version, "identity.layout_version")?,
            page_tokens: required(wire.page_tokens, "identity.page_tokens")?,
            page_bytes: required(wire.page_bytes, "identity.page_bytes")?,
            layers: layers(required(wire.layers, "identity.layers")?)?,
            heads: heads(required(wire.heads, "identity.heads")?)?,
            quantisation: quantisation(required(wire.quantisation, "identity.quantisation")?)?,
            cache_salt: match required(wire.cache_salt, "identity.cache_salt")? {
                SaltField::NoCacheSalt(_) => Declared::None,
                SaltField::WithCacheSalt(salt) => Declared::Is(salt),
            },
            keys: keys(required(wire.keys, "identity.keys")?)?,
        })
    }
}

fn adapter(wire: AdapterField) -> Result<Declared<Adapter>, Refused> {
    Ok(match wire {
        AdapterField::NoAdapter(_) => Declared::None,
        AdapterField::WithAdapter(adapter) => Declared::Is(Adapter {
            name: required(adapter.name, "identity.adapter.name")?,
            revision: required(adapter.revision, "identity.adapter.revision")?,
        }),
    })
}

fn layers(wire: v1::LayerRange) -> Result<LayerRange, Refused> {
    Ok(LayerRange {
        first: required(wire.first, "identity.layers.first")?,
        count: required(wire.count, "identity.layers.count")?,
        of: required(wire.of, "identity.layers.of")?,
    })
}

fn heads(wire: HeadsField) -> Result<Heads, Refused> {
    Ok(match wire {
        HeadsField::Replicated(_) => Heads::Replicated,
        HeadsField::HeadRange(range) => Heads::Range(HeadRange {
            first: required(range.first, "identity.head_range.first")?,
            count: required(range.count, "identity.head_range.count")?,
            of: required(range.of, "identity.head_range.of")?,
        }),
    })
}

fn quantisation(wire: QuantisationField) -> Result<Declared<Quantisation>, Refused> {
    Ok(match wire {
        QuantisationField::NoQuantisation(_) => Declared::None,
        QuantisationField::WithQuantisation(quantisation) => Declared::Is(Quantisation {
            scheme: required(quantisation.scheme, "identity.quantisation.scheme")?,
            scales: required(quantisation.scales, "identity.quantisation.scales")?,
        }),
    })
}

fn keys(wire: KeysField) -> Result<KeyScheme, Refused> {
    Ok(match wire {
        KeysField::TokenKeys(_) => KeyScheme::Tokens,
        KeysField::EngineHash(hash) => KeyScheme::EngineHash {
            algorithm: required(hash.algorithm, "identity.engine_hash.algorithm")?,
            seed: match required(hash.seed, "identity.engine_hash.seed")? {
                v1::engine_hash::Seed::NoSeed(_) => Declared::None,
                v1::engine_hash::Seed::WithSeed(seed) => Declared::Is(seed),
            },
        },
    })
}

fn state_kind(value: i32) -> Result<StateKind, Refused> {
    match v1::StateKind::try_from(value) {
        Ok(v1::StateKind::Attention) => Ok(StateKind::Attention),
        Ok(v1::StateKind::LatentAttention) => Ok(StateKind::LatentAttention),
        Ok(v1::StateKind::SlidingWindow) => Ok(StateKind::SlidingWindow),
        Ok(v1::StateKind::Recurrent) => Ok(StateKind::Recurrent),
        Ok(v1::StateKind::CompressedAttention) => Ok(StateKind::CompressedAttention),
        Ok(v1::StateKind::EncoderOutput) => Ok(StateKind::EncoderOutput),
        Ok(v1::StateKind::Unspecified) | Err(_) => Err(Refused::UnknownValue { field: "identity.kind", value }),
    }
}

fn wire_state_kind(kind: StateKind) -> v1::StateKind {
    match kind {
        StateKind::Attention => v1::StateKind::Attention,
        StateKind::LatentAttention => v1::StateKind::LatentAttention,
        StateKind::SlidingWindow => v1::StateKind::SlidingWindow,
        StateKind::Recurrent => v1::StateKind::Recurrent,
        StateKind::CompressedAttention => v1::StateKind::CompressedAttention,
        StateKind::EncoderOutput => v1::StateKind::EncoderOutput,
    }
}

impl From<&Identity> for v1::Identity {
    fn from(identity: &Identity) -> Self {
        let none = v1::Nothing {};
        Self {
            model: Some(identity.model.clone()),
            model_revision: Some(identity.model_revision.clone()),
            adapter: Some(match &identity.adapter {
                Declared::None => AdapterField::NoAdapter(none),
                Declared::Is(Adapter { name, revision }) => AdapterField::WithAdapter(v1::Adapter {
                    name: Some(name.clone()),
                    revision: Some(revision.clone()),
                }),
            }),
            positions: Some(match &identity.positions {
                Declared::None => PositionsField::NoPositions(none),
                Declared::Is(positions) => PositionsField::WithPositions(positions.clone()),
            }),
            kind: Some(wire_state_kind(identity.kind).into()),
            dtype: Some(identity.dtype.clone()),
            layout: Some(identity.layout.clone()),
            layout_version: Some(identity.layout_version.clone()),
            page_tokens: Some(identity.page_tokens),
            page_bytes: Some(identity.page_bytes),
            layers: Some(wire_layers(identity.layers)),
            heads: Some(match identity.heads {
                Heads::Replicated => HeadsField::Replicated(none),
                Heads::Range(HeadRange { first, count, of }) => {
                    HeadsField::HeadRange(v1::HeadRange { first: Some(first), count: Some(count), of: Some(of) })
                }
            }),
            quantisation: Some(match &identity.quantisation {
                Declared::None => QuantisationField::NoQuantisation(none),
                Declared::Is(Quantisation { scheme, scales }) => {
                    QuantisationField::WithQuantisation(v1::Quantisation {
                        scheme: Some(scheme.clone()),
                        scales: Some(scales.clone()),
                    })
                }
            }),
            cache_salt: Some(match &identity.cache_salt {
                Declared::None => SaltField::NoCacheSalt(none),
                Declared::Is(salt) => SaltField::WithCacheSalt(salt.clone()),
            }),
            keys: Some(wire_keys(&identity.keys)),
        }
    }
}

fn wire_layers(layers: LayerRange) -> v1::LayerRange {
    v1::LayerRange { first: Some(layers.first), count: Some(layers.count), of: Some(layers.of) }
}

fn wire_keys(keys: &KeyScheme) -> KeysField {
    match keys {
        KeyScheme::Tokens => KeysField::TokenKeys(v1::Nothing {}),
        KeyScheme::EngineHash { algorithm, seed } => KeysField::EngineHash(v1::EngineHash {
            algorithm: Some(algorithm.clone()),
            seed: Some(match seed {
                Declared::None => v1::engine_hash::Seed::NoSeed(v1::Nothing {}),
                Declared::Is(seed) => v1::engine_hash::Seed::WithSeed(seed.clone()),
            }),
        }),
    }
}
