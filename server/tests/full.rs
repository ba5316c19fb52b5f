//! Tiers that are full go on taking pages, and never use more than they have.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod house;

use cairn_core::{NamespaceId, PageKey};
use cairn_proto::v1;
use house::*;

const PAGE_BYTES: u64 = 1 << 20;
/// Chains of four pages: twice what the SSD of 32 MiB holds.
const CHAINS: u32 = 16;
const CHAIN_PAGES: usize = 4;

/// Keys of a chain that shares no page with the others.
fn chain(namespace: &NamespaceId, number: u32) -> Vec<PageKey> {
    let tokens: Vec<u32> = (0..4 * PAGE_TOKENS).map(|token| number << 16 | token).collect();
    cairn_core::chain_from_tokens(namespace, &tokens, PAGE_TOKENS, &[]).unwrap()
}

/// Puts chain after chain, each of which must be stored whole, and returns what the server then is.
async fn put_all(house: &mut House, namespace: &NamespaceId, durability: v1::Durability) -> v1::StatsResponse {
    for number in 0..CHAINS {
        let begin = begin(namespace, &chain(namespace, number), durability);
        let done = totals(&house.put(begin, all_parts(CHAIN_PAGES as u64, PAGE_BYTES)).await.unwrap());
        assert_eq!((done.good_pages, done.not_stored), (CHAIN_PAGES as u64, 0), "chain {number}");
        assert_eq!(done.durability(), durability);
        let stats = house.stats().await;
        for tier in [stats.dram.unwrap(), stats.ssd.unwrap()] {
            assert!(tier.used_bytes <= tier.capacity_bytes, "{tier:?}");
        }
    }
    house.stats().await
}

/// The chain that was put last can be read whole, the first is no longer there.
async fn the_last_is_there_and_the_first_is_not(house: &mut House, namespace: &NamespaceId) {
    let (pages, _) = house.get(get(namespace, &chain(namespace, CHAINS - 1))).await.unwrap();
    assert_eq!(pages, [0, 1, 2, 3].map(|number| page(number, PAGE_BYTES).to_vec()));
    let (pages, done) = house.get(get(namespace, &chain(namespace, 0))).await.unwrap();
    assert!(pages.len() < CHAIN_PAGES);
    assert_eq!(done.stop(), v1::StopReason::NotStored);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_ssd_takes_puts_by_evicting_and_never_uses_more_than_it_has() {
    let mut house = House::open().await;
    let namespace = house.namespace(&identity(PAGE_BYTES)).await;
    let stats = put_all(&mut house, &namespace, v1::Durability::Ssd).await;
    assert!(stats.ssd.unwrap().evicted_pages > 0);
    the_last_is_there_and_the_first_is_not(&mut house, &namespace).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_memory_takes_puts_by_evicting_and_never_uses_more_than_it_has() {
    let mut house = House::open_with(&[("ssd.write", "requested")]).await;
    let namespace = house.namespace(&identity(PAGE_BYTES)).await;
    let stats = put_all(&mut house, &namespace, v1::Durability::Memory).await;
    assert!(stats.dram.unwrap().evicted_pages > 0);
    assert_eq!(stats.ssd.unwrap().used_bytes, 0);
    the_last_is_there_and_the_first_is_not(&mut house, &namespace).await;
}
