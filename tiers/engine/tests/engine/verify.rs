//! A verification: everything is read because somebody asks, and what is found is counted once.

use std::sync::Arc;

use cairn_core::{Durability, ErrorKind, SlotId};
use cairn_engine::VerifyCounts;

use crate::rig::{PAGE_BYTES, Rig, Running, chain, find_payload, flip_bit, identity};

const START: SlotId = SlotId { region: 0, slot: 0 };

/// Verifies everything from `from` on.
async fn verify(cairn: &Running, from: SlotId) -> VerifyCounts {
    let mut verification = cairn.engine.verify(None, from, 0).await.expect("nobody else verifies");
    while verification.step().await.expect("the engine is open") {}
    assert_eq!(verification.at().region, verification.regions());
    verification.counts()
}

#[tokio::test]
async fn damage_is_found_and_dropped_and_a_second_verification_is_clean() {
    let rig = Rig::new(128, 128);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let keys = chain(&namespace, 1, 40);
    cairn.put(&namespace, &keys, Durability::Ssd).await;
    for page in [3, 30] {
        flip_bit(&rig, find_payload(&rig, &keys[page]) + 1000);
    }
    let found = verify(&cairn, START).await;
    let clean = VerifyCounts { pages: 38, bytes: 38 * PAGE_BYTES, damaged: 0, unreadable: 0 };
    assert_eq!(found, VerifyCounts { damaged: 2, ..clean });
    assert_eq!(verify(&cairn, START).await, clean);
    assert_eq!(cairn.metrics.ssd_scrub_damaged.get(), 2);
}

#[tokio::test]
async fn one_namespace_alone_can_be_verified() {
    let rig = Rig::new(128, 128);
    let cairn = rig.open().await;
    let mut other = identity();
    other.model = "another".into();
    let (namespace, other) = (cairn.namespace(), cairn.namespace_of(&other));
    let theirs = chain(&other, 1, 20);
    cairn.put(&namespace, &chain(&namespace, 1, 10), Durability::Ssd).await;
    cairn.put(&other, &theirs, Durability::Ssd).await;
    flip_bit(&rig, find_payload(&rig, &theirs[0]));
    let mut verification = cairn.engine.verify(Some(&namespace), START, 0).await.expect("begun");
    while verification.step().await.expect("open") {}
    let VerifyCounts { pages, damaged, .. } = verification.counts();
    assert_eq!((pages, damaged), (10, 0));
    drop(verification);
    assert_eq!(verify(&cairn, START).await.damaged, 1);
}

#[tokio::test]
async fn a_verification_that_was_given_up_is_gone_on_with_and_there_is_one_at_a_time() {
    let rig = Rig::new(128, 128);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    cairn.put(&namespace, &chain(&namespace, 1, 60), Durability::Ssd).await;
    let mut first = cairn.engine.verify(None, START, 0).await.expect("begun");
    assert!(first.step().await.expect("open"));
    let refused = cairn.engine.verify(None, START, 0).await.expect_err("one is under way");
    assert!(matches!(refused.kind(), ErrorKind::Overloaded { .. }));
    let (pages, at) = (first.counts().pages, first.at());
    assert!(pages > 0 && pages < 60);
    drop(first);
    assert_eq!(verify(&cairn, at).await.pages, 60 - pages);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verification_of_an_engine_that_closes_says_so() {
    let rig = Rig::new(128, 128);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    cairn.put(&namespace, &chain(&namespace, 1, 60), Durability::Ssd).await;
    let engine = Arc::clone(&cairn.engine);
    let mut verification = engine.verify(None, START, 0).await.expect("begun");
    cairn.engine.close(std::time::Duration::from_secs(60)).await;
    assert_eq!(verification.step().await.expect_err("closed").kind(), ErrorKind::Unavailable);
}
