//! Putting and getting: visibility, outcomes, limits, deadlines.

use std::sync::Arc;
use std::time::Duration;

use cairn_core::{Checksum, Durability, NotStored, PageOutcome, StopReason, Tier};
use cairn_testkit::payload;

use crate::rig::{Rig, branch, chain, send};

#[tokio::test]
async fn pages_come_back_in_order_with_the_right_bytes() {
    let rig = Rig::new(64, 64);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let keys = chain(&namespace, 1, 10);
    let report = cairn.put(&namespace, &keys, Durability::Memory).await;
    assert_eq!((report.good_pages, report.durability), (10, Durability::Memory));
    assert!(report.outcomes.iter().all(|outcome| matches!(outcome, PageOutcome::Stored(_))));
    let got = cairn.get(&namespace, &keys).await;
    assert_eq!((got.end.good_pages, got.end.stop), (10, StopReason::EndOfChain));
    assert_eq!(got.tiers, vec![Tier::Dram; 10]);
}

#[tokio::test]
async fn present_pages_need_not_be_sent() {
    let rig = Rig::new(64, 64);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let base = chain(&namespace, 1, 6);
    cairn.put(&namespace, &base, Durability::Memory).await;
    let longer = branch(&namespace, &base, 4, 9, 3);
    let put = cairn.begin(&namespace, &longer, Durability::Memory);
    assert_eq!(put.needed(), vec![4..7]);
}

#[tokio::test]
async fn a_durable_put_says_ssd_only_after_the_barrier() {
    let rig = Rig::new(64, 64);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let keys = chain(&namespace, 1, 5);
    let report = cairn.put(&namespace, &keys, Durability::Ssd).await;
    assert_eq!((report.good_pages, report.durability), (5, Durability::Ssd));
    assert_eq!(cairn.engine.stats().ssd.pages, 5);
    // Asking for what is durable already costs nothing.
    let written = cairn.metrics.ssd_written_bytes.get();
    assert_eq!(cairn.put(&namespace, &keys, Durability::Ssd).await.durability, Durability::Ssd);
    assert_eq!(cairn.metrics.ssd_written_bytes.get(), written);
}

#[tokio::test]
async fn case_01_a_page_that_was_never_committed_ends_the_prefix_before_it() {
    let rig = Rig::new(128, 128);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let keys = chain(&namespace, 1, 64);
    {
        // The client reserves page 10, fills half of it, and is gone.
        let mut put = cairn.begin(&namespace, &keys, Durability::Memory);
        for (page, key) in keys.iter().enumerate().take(10) {
            assert!(send(&mut put, page, key).await);
        }
        let mut frame = put.reserve(10).await.expect("a frame");
        frame[..4096].fill(0xab);
    }
    let got = cairn.get(&namespace, &keys).await;
    assert_eq!((got.end.good_pages, got.end.stop), (10, StopReason::NotStored));
}

#[tokio::test]
async fn case_02_a_put_that_died_half_way_does_not_keep_its_key() {
    let rig = Rig::new(8, 64);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let keys = chain(&namespace, 1, 1);
    let before = cairn.engine.stats().dram.used_bytes;
    let mut dead = cairn.begin(&namespace, &keys, Durability::Memory);
    let frame = dead.reserve(0).await.expect("a frame");
    // The second client need not wait for the first, dead or alive.
    assert_eq!(cairn.put(&namespace, &keys, Durability::Ssd).await.good_pages, 1);
    drop((frame, dead));
    assert_eq!(cairn.engine.stats().dram.used_bytes, before + crate::rig::PAGE_BYTES);
    // Nor does a restart remember the dead one.
    drop(cairn);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    assert_eq!(cairn.get(&namespace, &keys).await.end.good_pages, 1);
}

#[tokio::test]
async fn a_checksum_that_does_not_fit_refuses_the_page_and_frees_its_frame() {
    let rig = Rig::new(8, 8);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let keys = chain(&namespace, 1, 2);
    let mut put = cairn.begin(&namespace, &keys, Durability::Memory);
    let mut frame = put.reserve(0).await.expect("a frame");
    payload::fill(keys[0].as_bytes(), &mut frame);
    let wrong = Checksum::from_u64(Checksum::of(&frame).to_u64() ^ 1);
    assert_eq!(put.commit(0, frame, wrong), PageOutcome::NotStored(NotStored::ChecksumMismatch));
    assert_eq!(put.reserve(1).await.err(), Some(NotStored::ParentMissing));
    let report = put.finish().await;
    assert_eq!(report.good_pages, 0);
    assert_eq!(cairn.engine.stats().dram.used_bytes, 0);
    assert_eq!(cairn.matched(&namespace, &keys), 0);
}

#[tokio::test]
async fn pages_that_were_not_sent_are_reported_so() {
    let rig = Rig::new(8, 8);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let keys = chain(&namespace, 1, 3);
    let mut put = cairn.begin(&namespace, &keys, Durability::Memory);
    send(&mut put, 0, &keys[0]).await;
    let report = put.finish().await;
    assert_eq!(report.good_pages, 1);
    assert_eq!(report.outcomes[1..], [PageOutcome::NotStored(NotStored::NotSent); 2]);
}

#[tokio::test]
async fn a_request_of_1024_tokens_reads_63_pages_of_16() {
    let rig = Rig::new(128, 128);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let keys = chain(&namespace, 1, 64);
    cairn.put(&namespace, &keys, Durability::Memory).await;
    let usable = cairn_core::usable_pages(1024, crate::rig::PAGE_TOKENS);
    let before = cairn.metrics.get_bytes.get();
    let got = cairn.get_with(&namespace, &keys, 0, usable, cairn.deadline()).await;
    assert_eq!((got.end.good_pages, got.end.stop), (63, StopReason::MaxTokens));
    assert_eq!(cairn.metrics.get_bytes.get() - before, 63 * crate::rig::PAGE_BYTES);
    let matched = cairn.engine.match_prefix(&namespace, &keys, usable).expect("a match");
    assert_eq!((matched.pages, matched.pages_beyond, matched.stop), (63, 1, StopReason::MaxTokens));
}

#[tokio::test]
async fn pages_that_the_caller_has_are_not_read() {
    let rig = Rig::new(64, 64);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let keys = chain(&namespace, 1, 8);
    cairn.put(&namespace, &keys, Durability::Memory).await;
    let got = cairn.get_with(&namespace, &keys, 5, u64::MAX, cairn.deadline()).await;
    assert_eq!((got.tiers.len(), got.end.good_pages), (3, 8));
}

#[tokio::test]
async fn a_put_into_a_pool_that_is_all_in_use_ends_with_no_space_by_its_deadline() {
    let rig = Rig::new(4, 64);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let held = chain(&namespace, 1, 4);
    cairn.put(&namespace, &held, Durability::Memory).await;
    cairn.written(&namespace).await;
    let held = chain(&namespace, 1, 4);
    let options = cairn_engine::GetOptions { first_page: 0, usable_pages: u64::MAX, deadline: cairn.deadline() };
    let get = cairn.engine.get_prefix(&namespace, held.clone(), options).expect("a get");
    // Whatever of the chain is in DRAM is held now; the rest of the pool is filled by puts that hold their frames.
    let other = chain(&namespace, 2, 4);
    let soon = cairn.deadline_in(Duration::from_millis(50));
    let mut filler = cairn.engine.begin_put(&namespace, other, Durability::Memory, soon).expect("the put begins");
    let mut frames = Vec::new();
    while let Ok(frame) = filler.reserve(0).await {
        frames.push(frame);
    }
    let third = chain(&namespace, 3, 1);
    let report =
        cairn.put_until(&namespace, &third, Durability::Memory, cairn.deadline_in(Duration::from_millis(50))).await;
    assert_eq!(report.outcomes, vec![PageOutcome::NotStored(NotStored::NoSpace)]);
    drop((get, frames, filler));
    assert_eq!(cairn.put(&namespace, &third, Durability::Memory).await.good_pages, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_48_sixteen_puts_of_the_same_pages_all_succeed_and_flash_is_written_once() {
    let rig = Rig::new(512, 64);
    let cairn = Arc::new(rig.open().await);
    let namespace = cairn.namespace();
    let keys = chain(&namespace, 1, 12);
    let mut puts = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let (cairn, namespace, keys) = (Arc::clone(&cairn), Arc::clone(&namespace), keys.clone());
        puts.spawn(async move { cairn.put(&namespace, &keys, Durability::Ssd).await });
    }
    while let Some(report) = puts.join_next().await {
        let report = report.expect("a put");
        assert_eq!((report.good_pages, report.durability), (12, Durability::Ssd));
    }
    let stats = cairn.engine.stats();
    assert_eq!((stats.ssd.pages, stats.dram.pages), (12, 12));
    assert_eq!(stats.dram.used_bytes, 12 * crate::rig::PAGE_BYTES);
    assert_eq!(stats.ssd.used_bytes, 12 * (crate::rig::PAGE_BYTES + 4096));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_hundred_gets_of_one_cold_prefix_read_it_once() {
    let rig = Rig::new(64, 64);
    {
        let cairn = rig.open().await;
        let namespace = cairn.namespace();
        cairn.put(&namespace, &chain(&namespace, 1, 8), Durability::Ssd).await;
    }
    let cairn = Arc::new(rig.open().await);
    let namespace = cairn.namespace();
    let keys = chain(&namespace, 1, 8);
    let mut gets = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let (cairn, namespace, keys) = (Arc::clone(&cairn), Arc::clone(&namespace), keys.clone());
        gets.spawn(async move { cairn.get(&namespace, &keys).await.end.good_pages });
    }
    while let Some(good_pages) = gets.join_next().await {
        assert_eq!(good_pages.expect("a get"), 8);
    }
    assert_eq!(cairn.metrics.ssd_read_seconds.get_sample_count(), 8);
}
