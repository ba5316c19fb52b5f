//! The care of the SSD over the API: the scrub, a verification, the quarantine, and what was written.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod house;

use std::os::unix::fs::FileExt;

use cairn_core::PageKey;
use cairn_proto::v1;
use house::*;

const PAGE_BYTES: u64 = 1 << 20;
const PAGES: u32 = 4;

/// A server with a chain of four pages on its SSD.
async fn filled() -> (House, cairn_core::NamespaceId, Vec<PageKey>) {
    let mut house = House::open_with(&[("ssd.scrub_period", "0s")]).await;
    let namespace = house.namespace(&identity(PAGE_BYTES)).await;
    let tokens: Vec<u32> = (0..PAGES * PAGE_TOKENS).collect();
    let keys = cairn_core::chain_from_tokens(&namespace, &tokens, PAGE_TOKENS, &[]).unwrap();
    let begin = begin(&namespace, &keys, v1::Durability::Ssd);
    let done = totals(&house.put(begin, all_parts(u64::from(PAGES), PAGE_BYTES)).await.unwrap());
    assert_eq!(done.durability(), v1::Durability::Ssd);
    (house, namespace, keys)
}

/// Flips a bit in the payload of a page of the first region.
fn flip_bit(house: &House, slot: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(house.folder.path().join("ssd/pages")).unwrap();
    let at = 65_536 + 4096 + slot * (PAGE_BYTES + 4096) + 4096 + 777;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

/// Asks for a verification, call after call; what was found, and in how many calls.
async fn verify(house: &mut House, request: v1::VerifyRequest) -> (v1::VerifyCounts, u32) {
    let (mut found, mut calls, mut next) = (v1::VerifyCounts::default(), 0, Some(v1::Slot::default()));
    while let Some(from) = next {
        let request = v1::VerifyRequest { from: Some(from), ..request.clone() };
        let mut answers = house.admin.verify(request).await.unwrap().into_inner();
        let mut last = None;
        while let Some(answer) = answers.message().await.unwrap() {
            assert!(last.is_none(), "nothing comes after the last message");
            last = answer.last.then_some(answer);
        }
        let last = last.expect("a last message");
        let counts = last.counts.unwrap();
        found = v1::VerifyCounts {
            pages: found.pages + counts.pages,
            bytes: found.bytes + counts.bytes,
            damaged: found.damaged + counts.damaged,
            unreadable: found.unreadable + counts.unreadable,
        };
        (next, calls) = (last.next, calls + 1);
    }
    (found, calls)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verification_finds_damage_and_the_slot_is_listed_and_released() {
    let (mut house, namespace, keys) = filled().await;
    let clean = v1::VerifyCounts { pages: 4, bytes: 4 * PAGE_BYTES, damaged: 0, unreadable: 0 };
    assert_eq!(verify(&mut house, v1::VerifyRequest::default()).await, (clean, 1));
    flip_bit(&house, 2);
    let only = v1::VerifyRequest { namespace_id: namespace.as_bytes().to_vec(), ..Default::default() };
    let (found, _) = verify(&mut house, only).await;
    assert_eq!((found.pages, found.damaged), (3, 1));
    house.until("the slot is in quarantine", |stats| stats.flash.unwrap().quarantined_bytes > 0).await;
    let listed = house.admin.quarantine(v1::QuarantineRequest::default()).await.unwrap().into_inner();
    let slot = v1::QuarantinedSlot {
        region: 0,
        offset: 2 * (PAGE_BYTES + 4096),
        bytes: PAGE_BYTES + 4096,
        damage: "payload".to_owned(),
    };
    assert_eq!((listed.writes, listed.slots), (None, vec![slot]));
    // In memory it is whole, and served from there.
    let (pages, _) = house.get(get(&namespace, &keys)).await.unwrap();
    assert_eq!(pages.len(), 4);
    let release = v1::QuarantineRequest { release_slots: true, release_writes: true };
    let left = house.admin.quarantine(release).await.unwrap().into_inner();
    assert_eq!((left.released_slots, left.slots.len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verification_that_takes_longer_than_a_call_goes_on_in_another() {
    let (mut house, ..) = filled().await;
    // A page each 50 ms.
    let slow = v1::VerifyRequest { bytes_per_second: 20 * PAGE_BYTES, timeout_ms: 60, ..Default::default() };
    let (found, calls) = verify(&mut house, slow).await;
    assert_eq!((found.pages, found.bytes), (4, 4 * PAGE_BYTES));
    assert!(calls > 1, "{calls}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrub_that_was_asked_for_runs_to_its_end_and_shows_in_stats_and_metrics() {
    let (mut house, ..) = filled().await;
    let before = house.admin.scrub(v1::ScrubRequest::default()).await.unwrap().into_inner().scrub.unwrap();
    assert_eq!((before.period_seconds, before.passes, before.pages, before.asked), (0, 0, 0, false));
    let now = v1::ScrubRequest { now: true, bytes_per_second: Some(0) };
    house.admin.scrub(now).await.unwrap();
    house.until("the pass is complete", |stats| stats.scrub.unwrap().passes == 1).await;
    let scrub = house.stats().await.scrub.unwrap();
    assert_eq!((scrub.pages, scrub.bytes, scrub.damaged), (4, 4 * PAGE_BYTES, 0));
    let metrics = house.http("/metrics").await;
    for line in ["cairn_ssd_scrubbed_pages_total 4\n", "cairn_ssd_scrub_passes_total 1\n"] {
        assert!(metrics.contains(line), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn write_amplification_is_near_one_and_can_be_had_from_the_stats() {
    let (mut house, ..) = filled().await;
    let flash = house.stats().await.flash.unwrap();
    assert_eq!((flash.page_bytes, flash.reinserted_bytes, flash.reclaimed_regions), (4 * PAGE_BYTES, 0, 0));
    let amplification = flash.written_bytes as f64 / flash.page_bytes as f64;
    // A header a page, one of the region, and the superblocks.
    assert!((1.0..1.02).contains(&amplification), "{amplification}");
}
