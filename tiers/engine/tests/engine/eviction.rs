//! Eviction: parents after children, one page size making room for another, nobody's page taken from under them.

use std::collections::HashMap;
use std::sync::Arc;

use cairn_core::{Durability, NotStored, PageOutcome, StopReason, Tier};
use cairn_engine::GetEnd;
use proptest::prelude::*;

use crate::rig::{PAGE_BYTES, Rig, Running, branch, chain, identity};

#[tokio::test]
async fn what_was_used_longest_ago_goes_first_and_comes_back_from_the_ssd() {
    let rig = Rig::new(64, 512);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let chains: Vec<_> = (0..10).map(|name| chain(&namespace, name, 12)).collect();
    for keys in &chains {
        assert_eq!(cairn.put(&namespace, keys, Durability::Ssd).await.good_pages, 12);
    }
    assert!(cairn.engine.stats().dram.pages <= 64);
    assert_eq!(cairn.get(&namespace, &chains[9]).await.tiers, vec![Tier::Dram; 12]);
    assert_eq!(cairn.get(&namespace, &chains[0]).await.tiers, vec![Tier::Ssd; 12]);
}

#[tokio::test]
async fn a_chain_loses_its_tail_first() {
    let mut rig = Rig::new(20, 64);
    rig.settings.write_policy = cairn_policy::WritePolicy::Requested;
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let (old, new) = (chain(&namespace, 1, 15), chain(&namespace, 2, 10));
    cairn.put(&namespace, &old, Durability::Memory).await;
    cairn.put(&namespace, &new, Durability::Memory).await;
    assert_eq!(cairn.matched(&namespace, &new), 10);
    assert_eq!(cairn.get(&namespace, &old).await.end.good_pages, 10);
}

#[tokio::test]
async fn pages_of_two_sizes_make_room_for_each_other_in_both_tiers() {
    let rig = Rig::new(256, 256);
    let cairn = rig.open().await;
    let small = cairn.namespace();
    for name in 0..32 {
        cairn.put(&small, &chain(&small, name, 16), Durability::Ssd).await;
    }
    let mut wide = identity();
    wide.page_bytes = 3 * PAGE_BYTES;
    let large = cairn.namespace_of(&wide);
    for name in 0..4 {
        let keys = chain(&large, name, 8);
        let report = cairn.put(&large, &keys, Durability::Ssd).await;
        assert_eq!((report.good_pages, report.durability), (8, Durability::Ssd));
        assert_eq!(cairn.get(&large, &keys).await.end.good_pages, 8);
    }
    // The small ones keep what was not needed.
    let stats = cairn.engine.stats();
    assert!(stats.dram.pages > 100 && stats.ssd.pages > 100, "{stats:?}");
    no_orphans(&cairn, &small, &(0..32).map(|name| chain(&small, name, 16)).collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn pages_that_a_get_holds_are_not_evicted() {
    let mut rig = Rig::new(16, 64);
    rig.settings.write_policy = cairn_policy::WritePolicy::Requested;
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let held = chain(&namespace, 1, 8);
    cairn.put(&namespace, &held, Durability::Memory).await;
    let options = cairn_engine::GetOptions { first_page: 0, usable_pages: u64::MAX, deadline: cairn.deadline() };
    let mut get = cairn.engine.get_prefix(&namespace, held.clone(), options).expect("a get");
    for name in 10..30 {
        cairn.put(&namespace, &chain(&namespace, name, 6), Durability::Memory).await;
    }
    let mut pages = 0;
    while let Some(served) = get.next().await {
        assert!(cairn_testkit::payload::is_right(held[served.page].as_bytes(), 0, served.bytes.as_ref()));
        pages += 1;
    }
    assert_eq!(pages, 8);
}

/// For every chain: nothing is there beyond what a match finds.
async fn no_orphans(
    cairn: &Running,
    namespace: &std::sync::Arc<cairn_engine::Namespace>,
    chains: &[Vec<cairn_core::PageKey>],
) {
    for keys in chains {
        let matched = cairn.matched(namespace, keys);
        for beyond in matched + 1..keys.len() {
            let got = cairn.get_with(namespace, keys, beyond, u64::MAX, cairn.deadline()).await;
            assert_eq!(got.tiers.len(), 0, "page {beyond} is there although the prefix ends at {matched}");
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put { family: u32, shared: usize, name: u32, pages: usize, durable: bool },
    Get { pick: usize },
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..3u32, 0..8usize, 0..6u32, 1..8usize, any::<bool>())
            .prop_map(|(family, shared, name, pages, durable)| Step::Put { family, shared, name, pages, durable }),
        6 => (0..64usize).prop_map(|pick| Step::Get { pick }),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// Random puts of branching chains into tiny tiers, gets and crashes: every byte is right, a get returns all that it planned, and
    /// nothing lies behind a gap.
    #[test]
    fn random_work_on_tiny_tiers_keeps_prefixes_whole(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let rig = Rig::new(24, 40);
            let mut cairn = rig.open().await;
            let mut known: HashMap<Vec<u8>, Vec<cairn_core::PageKey>> = HashMap::new();
            for step in steps {
                let namespace = cairn.namespace();
                match step {
                    Step::Put { family, shared, name, pages, durable } => {
                        let base = chain(&namespace, family, 8);
                        let keys = branch(&namespace, &base, shared, name, pages);
                        let asked = if durable { Durability::Ssd } else { Durability::Memory };
                        let report = cairn.put(&namespace, &keys, asked).await;
                        assert_eq!(report.good_pages, keys.len(), "{report:?} {:?}", cairn.engine.stats());
                        if durable && report.good_pages == keys.len() {
                            assert_eq!(report.durability, Durability::Ssd);
                        }
                        known.insert(keys.iter().flat_map(|key| *key.as_bytes()).collect(), keys);
                    }
                    Step::Get { pick } => {
                        let Some(keys) = known.values().nth(pick % known.len().max(1)) else { continue };
                        cairn.get(&namespace, keys).await;
                    }
                    Step::Restart => {
                        drop(cairn);
                        cairn = rig.open().await;
                    }
                }
            }
            let namespace = cairn.namespace();
            cairn.written(&namespace).await;
            let chains: Vec<_> = known.into_values().collect();
            no_orphans(&cairn, &namespace, &chains).await;
            let stats = cairn.engine.stats();
            assert_eq!(stats.dram.used_bytes, stats.dram.pages * PAGE_BYTES);
            assert_eq!(stats.ssd.used_bytes, stats.ssd.pages * (PAGE_BYTES + 4096));
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn puts_that_crowd_a_small_pool_end_with_a_whole_prefix_and_do_not_wait_for_each_other() {
    let rig = Rig::new(24, 2048);
    let cairn = Arc::new(rig.open().await);
    let namespace = cairn.namespace();
    let mut puts = tokio::task::JoinSet::new();
    for name in 0..40 {
        let (cairn, namespace) = (Arc::clone(&cairn), Arc::clone(&namespace));
        puts.spawn(async move {
            let keys = chain(&namespace, name, 20);
            cairn.put(&namespace, &keys, Durability::Ssd).await
        });
    }
    while let Some(report) = puts.join_next().await {
        let waited = PageOutcome::NotStored(NotStored::NoSpace);
        assert!(!report.expect("a put").outcomes.contains(&waited), "waited until its deadline");
    }
    let chains: Vec<_> = (0..40).map(|name| chain(&namespace, name, 20)).collect();
    cairn.written(&namespace).await;
    no_orphans(&cairn, &namespace, &chains).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_36_many_cold_gets_on_a_pool_that_holds_few_do_not_wait_for_each_other() {
    let rig = Rig::new(64, 512);
    let cairn = Arc::new(rig.open().await);
    let namespace = cairn.namespace();
    let chains: Vec<_> = (0..12).map(|name| chain(&namespace, name, 24)).collect();
    for keys in &chains {
        assert_eq!(cairn.put(&namespace, keys, Durability::Ssd).await.good_pages, 24);
    }
    for _ in 0..5 {
        let mut gets = tokio::task::JoinSet::new();
        for keys in chains.clone() {
            let (cairn, namespace) = (Arc::clone(&cairn), Arc::clone(&namespace));
            gets.spawn(async move { cairn.get(&namespace, &keys).await.end });
        }
        while let Some(end) = gets.join_next().await {
            assert_eq!(end.expect("a get"), GetEnd { good_pages: 24, stop: StopReason::EndOfChain });
        }
    }
}

#[tokio::test]
async fn one_large_page_takes_the_place_of_a_long_chain_of_tiny_ones() {
    let mut rig = Rig::new(1024, 64);
    rig.settings.dram.arena_bytes = rig.settings.dram.bytes;
    rig.settings.write_policy = cairn_policy::WritePolicy::Requested;
    let cairn = rig.open().await;
    let mut tiny = identity();
    tiny.page_bytes = 256;
    let small = cairn.namespace_of(&tiny);
    let keys = chain(&small, 1, 2048);
    assert_eq!(cairn.put(&small, &keys, Durability::Memory).await.good_pages, 2048);
    let large = cairn.namespace();
    assert_eq!(cairn.put(&large, &chain(&large, 2, 3), Durability::Memory).await.good_pages, 3);
    assert_eq!(cairn.matched(&small, &keys), 0);
}

#[tokio::test]
async fn a_page_that_no_region_of_an_older_device_can_hold_is_refused_and_others_are_written() {
    let mut rig = Rig::new(512, 16);
    drop(rig.open().await);
    // The device keeps the regions that it was formatted with.
    rig.settings.region_bytes = 64 << 20;
    let cairn = rig.open().await;
    let mut wide = identity();
    wide.page_bytes = 256 * 1024;
    let refused = cairn.engine.open_namespace(&cairn_core::Principal::local(), &wide);
    assert_eq!(refused.expect_err("too large").kind(), cairn_core::ErrorKind::Invalid);
    let small = cairn.namespace();
    assert_eq!(cairn.put(&small, &chain(&small, 1, 2), Durability::Ssd).await.durability, Durability::Ssd);
}

#[tokio::test]
async fn a_get_of_a_prefix_larger_than_the_pool_comes_through_although_the_pool_holds_its_tail() {
    let rig = Rig::new(32, 128);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let keys = chain(&namespace, 1, 64);
    assert_eq!(cairn.put(&namespace, &keys, Durability::Ssd).await.good_pages, 64);
    // DRAM holds the tail; the head is on the SSD only.
    let runs = cairn.engine.match_prefix(&namespace, &keys, u64::MAX).expect("a match").runs;
    assert_eq!(runs.last().map(|(tier, _)| *tier), Some(Tier::Dram));
    assert_eq!(cairn.get(&namespace, &keys).await.end, GetEnd { good_pages: 64, stop: StopReason::EndOfChain });
    assert_eq!(cairn.get(&namespace, &keys).await.end.good_pages, 64);
}

#[tokio::test]
async fn a_put_that_fills_the_pool_with_its_own_prefix_ends_with_no_space_and_keeps_the_prefix() {
    let mut rig = Rig::new(32, 128);
    rig.settings.write_policy = cairn_policy::WritePolicy::Requested;
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let keys = chain(&namespace, 1, 64);
    assert_eq!(cairn.put(&namespace, &keys[..32], Durability::Memory).await.good_pages, 32);
    let report = cairn.put(&namespace, &keys, Durability::Memory).await;
    assert_eq!(report.good_pages, 32);
    assert_eq!(report.outcomes[32], PageOutcome::NotStored(NotStored::NoSpace));
    assert_eq!(cairn.get(&namespace, &keys).await.end.good_pages, 32);
    // Asking for the SSD makes room as it goes.
    assert_eq!(cairn.put(&namespace, &keys, Durability::Ssd).await.good_pages, 64);
}
