//! An identity is taken whole or refused by the name of what is missing.

use cairn_core::{Adapter, Declared, HeadRange, Heads, Identity, KeyScheme, LayerRange, Quantisation, StateKind};
use cairn_proto::{Refused, v1};

fn full() -> Identity {
    Identity {
        model: "m".into(),
        model_revision: "r1".into(),
        adapter: Declared::Is(Adapter { name: "lora".into(), revision: "7".into() }),
        positions: Declared::Is("rope theta=1e6".into()),
        kind: StateKind::Attention,
        dtype: "bf16".into(),
        layout: "NHD".into(),
        layout_version: "1".into(),
        page_tokens: 16,
        page_bytes: 4096,
        layers: LayerRange { first: 0, count: 4, of: 8 },
        heads: Heads::Range(HeadRange { first: 0, count: 2, of: 4 }),
        quantisation: Declared::Is(Quantisation { scheme: "fp8".into(), scales: "dynamic".into() }),
        cache_salt: Declared::Is("pepper".into()),
        keys: KeyScheme::EngineHash { algorithm: "vllm sha256_cbor".into(), seed: Declared::Is("0".into()) },
    }
}

fn bare() -> Identity {
    Identity {
        adapter: Declared::None,
        positions: Declared::None,
        heads: Heads::Replicated,
        quantisation: Declared::None,
        cache_salt: Declared::None,
        keys: KeyScheme::Tokens,
        ..full()
    }
}

#[test]
fn an_identity_survives_the_wire() {
    for identity in [full(), bare()] {
        assert_eq!(Identity::try_from(v1::Identity::from(&identity)), Ok(identity));
    }
}

#[test]
fn each_missing_field_is_refused_by_name() {
    type Strip = fn(&mut v1::Identity);
    let table: [(&str, Strip); 15] = [
        ("identity.model", |i| i.model = None),
        ("identity.model_revision", |i| i.model_revision = None),
        ("identity.adapter", |i| i.adapter = None),
        ("identity.positions", |i| i.positions = None),
        ("identity.kind", |i| i.kind = None),
        ("identity.dtype", |i| i.dtype = None),
        ("identity.layout", |i| i.layout = None),
        ("identity.layout_version", |i| i.layout_version = None),
        ("identity.page_tokens", |i| i.page_tokens = None),
        ("identity.page_bytes", |i| i.page_bytes = None),
        ("identity.layers", |i| i.layers = None),
        ("identity.heads", |i| i.heads = None),
        ("identity.quantisation", |i| i.quantisation = None),
        ("identity.cache_salt", |i| i.cache_salt = None),
        ("identity.keys", |i| i.keys = None),
    ];
    for (field, strip) in table {
        let mut wire = v1::Identity::from(&full());
        strip(&mut wire);
        assert_eq!(Identity::try_from(wire), Err(Refused::Missing(field)));
    }
}

#[test]
fn a_first_layer_that_was_left_out_is_not_layer_zero() {
    let mut wire = v1::Identity::from(&full());
    wire.layers = Some(v1::LayerRange { first: None, count: Some(4), of: Some(8) });
    assert_eq!(Identity::try_from(wire), Err(Refused::Missing("identity.layers.first")));
}

#[test]
fn an_unspecified_or_unknown_kind_is_refused() {
    for value in [0, 99] {
        let mut wire = v1::Identity::from(&full());
        wire.kind = Some(value);
        assert_eq!(Identity::try_from(wire), Err(Refused::UnknownValue { field: "identity.kind", value }));
    }
}
