//! Identity: pages of two identities, or of two tenants, never meet.

use cairn_core::{
    Adapter, Declared, Durability, ErrorKind, HeadRange, Heads, Identity, LayerRange, Principal, Quantisation,
    StateKind, TenantId,
};

use crate::rig::{Rig, chain, identity};

/// Puts under one identity and looks under each of the others: no page may be found, for the namespace's own keys and for the very same keys.
async fn share_nothing(identities: &[Identity]) {
    let rig = Rig::new(256, 256);
    let cairn = rig.open().await;
    for (at, one) in identities.iter().enumerate() {
        let namespace = cairn.namespace_of(one);
        let keys = chain(&namespace, 1, 3);
        cairn.put(&namespace, &keys, Durability::Memory).await;
        for other in identities.iter().skip(at + 1) {
            let other = cairn.namespace_of(other);
            assert_ne!(namespace.id(), other.id());
            assert_ne!(keys, chain(&other, 1, 3), "same tokens, same keys");
            assert_eq!(cairn.matched(&other, &chain(&other, 1, 3)), 0);
            assert_eq!(cairn.matched(&other, &keys), 0, "a key of another namespace was found");
        }
        assert_eq!(cairn.get(&namespace, &keys).await.end.good_pages, 3);
    }
}

fn with(change: impl FnOnce(&mut Identity)) -> Identity {
    let mut identity = identity();
    change(&mut identity);
    identity
}

#[tokio::test]
async fn case_24_bf16_and_fp8_state_of_the_same_tokens_never_meet() {
    share_nothing(&[
        identity(),
        with(|i| i.dtype = "fp8_e4m3".into()),
        with(|i| {
            i.quantisation = Declared::Is(Quantisation { scheme: "fp8_e4m3".into(), scales: "dynamic".into() });
        }),
        with(|i| {
            i.quantisation = Declared::Is(Quantisation { scheme: "fp8_e4m3".into(), scales: "b3:77".into() });
        }),
    ])
    .await;
}

#[tokio::test]
async fn case_25_adapters_and_salts_of_any_name_never_meet() {
    let adapter = |name: &str, revision: &str| Declared::Is(Adapter { name: name.into(), revision: revision.into() });
    share_nothing(&[
        identity(),
        with(|i| i.adapter = adapter("a", "1")),
        with(|i| i.adapter = adapter("b", "1")),
        // Reloaded in place under the same name.
        with(|i| i.adapter = adapter("a", "2")),
        // An adapter named like a salt, and a salt named like an adapter.
        with(|i| i.adapter = adapter("salt", "1")),
        with(|i| i.cache_salt = Declared::Is("salt".into())),
        with(|i| i.cache_salt = Declared::Is("a1".into())),
    ])
    .await;
}

#[tokio::test]
async fn case_26_new_weights_under_the_same_name_hit_nothing_old_and_the_old_can_be_cleared() {
    let old = identity();
    let new = with(|i| i.model_revision = "r2".into());
    share_nothing(&[old.clone(), new.clone()]).await;
    let rig = Rig::new(256, 256);
    let cairn = rig.open().await;
    let (old, new) = (cairn.namespace_of(&old), cairn.namespace_of(&new));
    cairn.put(&old, &chain(&old, 1, 20), Durability::Ssd).await;
    cairn.put(&new, &chain(&new, 1, 5), Durability::Ssd).await;
    assert_eq!(cairn.engine.clear(&old).await.expect("cleared"), 20);
    let stats = cairn.engine.stats();
    assert_eq!((stats.dram.pages, stats.ssd.pages), (5, 5));
    assert_eq!(cairn.get(&new, &chain(&new, 1, 5)).await.end.good_pages, 5);
}

#[tokio::test]
async fn case_27_parallelism_page_size_layout_and_kind_never_meet() {
    let heads = |first, count| Heads::Range(HeadRange { first, count, of: 8 });
    share_nothing(&[
        identity(),
        with(|i| i.heads = heads(0, 4)),
        with(|i| i.heads = heads(4, 4)),
        with(|i| i.heads = heads(0, 2)),
        with(|i| i.layers = LayerRange { first: 0, count: 18, of: 36 }),
        with(|i| i.layers = LayerRange { first: 18, count: 18, of: 36 }),
        with(|i| i.page_tokens = 64),
        with(|i| i.layout = "HND".into()),
        with(|i| i.layout_version = "2".into()),
        with(|i| i.kind = StateKind::LatentAttention),
        with(|i| i.positions = Declared::None),
    ])
    .await;
}

#[tokio::test]
async fn another_tenants_namespace_is_as_unknown_as_one_that_does_not_exist() {
    let rig = Rig::new(64, 64);
    let cairn = rig.open().await;
    let mine = cairn.namespace();
    let other = Principal { tenant: TenantId::new("other").expect("a name") };
    let theirs = cairn.engine.open_namespace(&other, &identity()).expect("opens");
    assert_ne!(mine.id(), theirs.id(), "the tenant's salt is part of the id");
    cairn.put(&mine, &chain(&mine, 1, 4), Durability::Memory).await;
    assert_eq!(cairn.matched(&theirs, &chain(&mine, 1, 4)), 0);
    let foreign = cairn.engine.namespace(&other, mine.id()).expect_err("not theirs");
    let unknown =
        cairn.engine.namespace(&other, &cairn_core::NamespaceId::from_bytes([9; 32])).expect_err("does not exist");
    assert_eq!(foreign.kind(), ErrorKind::Fenced);
    assert_eq!((foreign.kind(), foreign.context()), (unknown.kind(), unknown.context()));
    assert_eq!(cairn.engine.namespaces(&other).len(), 1);
}

#[tokio::test]
async fn identities_that_can_not_be_are_refused() {
    let rig = Rig::new(64, 64);
    let cairn = rig.open().await;
    for (change, field) in [
        (with(|i| i.model.clear()), "model"),
        (with(|i| i.page_bytes = 0), "page_bytes"),
        (with(|i| i.page_bytes = 1), "page_bytes"),
        (with(|i| i.page_tokens = 0), "page_tokens"),
        (with(|i| i.layers = LayerRange { first: 30, count: 7, of: 36 }), "layers"),
        (with(|i| i.page_bytes = 1 << 40), "page_bytes"),
    ] {
        let refused = cairn.engine.open_namespace(&Principal::local(), &change).expect_err("refused");
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.chain().contains(field), "{}", refused.chain());
    }
    assert!(cairn.engine.namespaces(&Principal::local()).is_empty());
}

#[tokio::test]
async fn one_namespace_too_many_is_refused_and_costs_nothing_not_even_at_the_next_start() {
    let mut rig = Rig::new(64, 64);
    rig.settings.namespaces_max = 2;
    let cairn = rig.open().await;
    cairn.namespace();
    cairn.namespace_of(&with(|i| i.model_revision = "r2".into()));
    for revision in 3..6 {
        let one_more = with(|i| i.model_revision = format!("r{revision}"));
        let refused = cairn.engine.open_namespace(&Principal::local(), &one_more).expect_err("one too many");
        assert_eq!(refused.kind(), ErrorKind::NoSpace);
    }
    drop(cairn);
    // What was open stays open, also under a lower limit.
    rig.settings.namespaces_max = 1;
    let cairn = rig.open().await;
    assert_eq!(cairn.engine.namespaces(&Principal::local()).len(), 2);
    cairn.namespace();
}
