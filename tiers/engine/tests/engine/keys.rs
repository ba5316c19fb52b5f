//! Keys: order, repetition, length.

use cairn_core::{Durability, ErrorKind};

use crate::rig::{Rig, branch, chain};

#[tokio::test]
async fn a_key_list_out_of_order_is_refused_and_nothing_is_lost() {
    let rig = Rig::new(64, 64);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let keys = chain(&namespace, 1, 6);
    cairn.put(&namespace, &keys, Durability::Memory).await;
    let mut swapped = keys.clone();
    swapped.swap(2, 3);
    let refused = cairn.engine.match_prefix(&namespace, &swapped, u64::MAX).expect_err("out of order");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.context().contains("out of order"), "{refused}");
    let refused = cairn.engine.begin_put(&namespace, swapped, Durability::Memory, cairn.deadline());
    assert_eq!(refused.expect_err("out of order").kind(), ErrorKind::Invalid);
    assert_eq!(cairn.matched(&namespace, &keys), 6);
}

#[tokio::test]
async fn a_known_page_after_another_parent_is_refused() {
    let rig = Rig::new(64, 64);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let (one, other) = (chain(&namespace, 1, 4), chain(&namespace, 2, 4));
    cairn.put(&namespace, &one, Durability::Memory).await;
    cairn.put(&namespace, &other, Durability::Memory).await;
    let mixed = vec![one[0], one[1], other[2]];
    let refused = cairn.engine.match_prefix(&namespace, &mixed, u64::MAX).expect_err("another parent");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_put_that_names_a_page_twice_is_refused() {
    let rig = Rig::new(64, 64);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let mut keys = chain(&namespace, 1, 3);
    keys.push(keys[1]);
    let refused = cairn.engine.begin_put(&namespace, keys, Durability::Memory, cairn.deadline());
    assert_eq!(refused.expect_err("named twice").kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_chain_longer_than_the_limit_is_refused() {
    let mut rig = Rig::new(64, 64);
    rig.settings.chain_pages_max = 10;
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let keys = chain(&namespace, 1, 11);
    assert_eq!(cairn.engine.match_prefix(&namespace, &keys, u64::MAX).expect_err("long").kind(), ErrorKind::Invalid);
    assert_eq!(cairn.matched(&namespace, &keys[..10]), 0);
}

#[tokio::test]
async fn branches_share_the_pages_of_their_common_prefix() {
    let rig = Rig::new(64, 64);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let base = chain(&namespace, 1, 8);
    cairn.put(&namespace, &base, Durability::Memory).await;
    let fork = branch(&namespace, &base, 5, 77, 3);
    assert_eq!(cairn.matched(&namespace, &fork), 5);
    cairn.put(&namespace, &fork, Durability::Memory).await;
    assert_eq!(cairn.engine.stats().dram.pages, 11);
    assert_eq!(cairn.get(&namespace, &fork).await.end.good_pages, 8);
}

#[tokio::test]
async fn a_known_page_behind_a_gap_and_at_another_position_is_refused_and_nothing_is_stored() {
    let rig = Rig::new(64, 64);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let known = chain(&namespace, 1, 6);
    cairn.put(&namespace, &known, Durability::Memory).await;
    let new = chain(&namespace, 2, 1);
    let refused = cairn.engine.begin_put(&namespace, vec![new[0], known[4]], Durability::Memory, cairn.deadline());
    assert_eq!(refused.expect_err("out of order").kind(), ErrorKind::Invalid);
    assert_eq!(cairn.matched(&namespace, &new), 0);
}
