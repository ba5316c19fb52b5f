//! Gets: right bytes or none, whatever happens on the way.

#![allow(clippy::unwrap_used, reason = "a test stands on it")]

mod fake;

use std::time::Duration;

use cairn_client::{ErrorKind, GetOptions, GetStop, Namespace, PageMemory, TierRun};
use cairn_core::{StopReason, Tier};
use fake::{Fake, PAGE_BYTES, Slip, chain, kind, page};
use tokio::time::timeout;

/// A server that holds `held` of 6 pages, a namespace, and their chain.
async fn holding(held: usize) -> (Fake, Namespace, cairn_client::Chain) {
    let (fake, namespace) = Fake::opened().await;
    let chain = chain(&namespace, 6);
    fake.holds(&chain, held);
    (fake, namespace, chain)
}

/// Reads what comes, checks each page, and returns how many came and how it ended.
async fn read(namespace: &Namespace, chain: &cairn_client::Chain) -> (usize, cairn_client::GetReport) {
    let mut pages = namespace.get_prefix(chain, GetOptions::default()).await.unwrap();
    let mut come = 0;
    while let Some(got) = pages.next_page().await {
        assert_eq!(got.index(), come);
        assert_eq!(got.into_bytes(), page(come));
        come += 1;
    }
    (come, pages.end().await)
}

#[tokio::test(start_paused = true)]
async fn pages_come_whole_in_order_and_right() {
    let (_fake, namespace, chain) = holding(6).await;
    let (come, report) = read(&namespace, &chain).await;
    assert_eq!((come, report.good_pages, report.good_tokens), (6, 6, 24));
    assert_eq!(report.runs, [TierRun { tier: Tier::Dram, pages: 1 }, TierRun { tier: Tier::Ssd, pages: 5 }]);
    assert!(matches!(report.stop, GetStop::Server(StopReason::EndOfChain)));
}

#[tokio::test(start_paused = true)]
async fn a_short_prefix_says_where_and_why_it_ends() {
    let (_fake, namespace, chain) = holding(2).await;
    let (come, report) = read(&namespace, &chain).await;
    assert_eq!((come, report.good_pages), (2, 2));
    assert!(matches!(report.stop, GetStop::Server(StopReason::NotStored)));
}

#[tokio::test(start_paused = true)]
async fn pages_not_taken_are_counted_at_the_end() {
    let (_fake, namespace, chain) = holding(6).await;
    let mut pages = namespace.get_prefix(&chain, GetOptions::default()).await.unwrap();
    pages.next_page().await.unwrap();
    assert_eq!(pages.end().await.good_pages, 6);
}

#[tokio::test(start_paused = true)]
async fn a_page_damaged_on_the_way_is_never_handed_out() {
    let (fake, namespace, chain) = holding(6).await;
    fake.with(|state| state.slip = Some((2, Slip::Flip)));
    let (come, report) = read(&namespace, &chain).await;
    assert_eq!((come, report.good_pages), (2, 2));
    assert!(matches!(report.stop, GetStop::DamagedInTransit));

    let mut memory = vec![0; 6 * PAGE_BYTES];
    let report = namespace.get_prefix_into(&chain, GetOptions::default(), &mut memory).await.unwrap();
    assert_eq!(report.good_pages, 2);
    assert!(matches!(report.stop, GetStop::DamagedInTransit));
}

async fn broken_by(slip: Slip) -> ErrorKind {
    let (fake, namespace, chain) = holding(6).await;
    fake.with(|state| state.slip = Some((3, slip)));
    let (come, report) = read(&namespace, &chain).await;
    assert_eq!((come, report.good_pages, report.good_tokens), (3, 3, 12), "{slip:?}");
    match report.stop {
        GetStop::Broken(error) => error.kind(),
        stop => panic!("{stop:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn pages_before_a_break_are_good_and_the_break_is_named() {
    assert_eq!(broken_by(Slip::Hang).await, ErrorKind::Deadline);
    assert_eq!(broken_by(Slip::Cut).await, ErrorKind::Unavailable);
    assert_eq!(broken_by(Slip::Gap).await, ErrorKind::Internal);
    assert_eq!(broken_by(Slip::NoEnd).await, ErrorKind::Internal);
}

#[tokio::test(start_paused = true)]
async fn pages_go_straight_into_the_memory_of_the_caller() {
    let (_fake, namespace, chain) = holding(5).await;
    let mut memory = vec![0; 6 * PAGE_BYTES];
    let report = namespace.get_prefix_into(&chain, GetOptions::default(), &mut memory).await.unwrap();
    assert_eq!(report.good_pages, 5);
    for i in 0..5 {
        assert_eq!(memory[i * PAGE_BYTES..(i + 1) * PAGE_BYTES], page(i), "page {i}");
    }
    assert!(memory[5 * PAGE_BYTES..].iter().all(|byte| *byte == 0));
}

#[tokio::test(start_paused = true)]
async fn pages_that_the_caller_has_are_not_read_again() {
    let (_fake, namespace, chain) = holding(6).await;
    let options = GetOptions { first_page: 4, ..Default::default() };
    let mut memory = vec![0; 2 * PAGE_BYTES];
    let report = namespace.get_prefix_into(&chain, options, &mut memory).await.unwrap();
    assert_eq!((report.good_pages, report.runs), (6, vec![TierRun { tier: Tier::Ssd, pages: 2 }]));
    assert_eq!(memory[..PAGE_BYTES], page(4));
    assert_eq!(memory[PAGE_BYTES..], page(5));
}

#[tokio::test(start_paused = true)]
async fn pages_that_the_caller_vouches_for_count_as_good_whether_the_server_has_them_or_not() {
    let (_fake, namespace, chain) = holding(2).await;
    for (first_page, good_pages) in [(4, 4), (7, 6)] {
        let options = GetOptions { first_page, ..Default::default() };
        let report = namespace.get_prefix(&chain, options).await.unwrap().end().await;
        assert_eq!((report.good_pages, report.good_tokens), (good_pages, 4 * good_pages as u64));
        assert!(matches!(report.stop, GetStop::Server(_)), "{report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn memory_for_fewer_pages_than_the_chain_has_reads_what_fits() {
    let (_fake, namespace, chain) = holding(6).await;
    let mut memory = vec![0; 2 * PAGE_BYTES];
    let report = namespace.get_prefix_into(&chain, GetOptions::default(), &mut memory).await.unwrap();
    assert_eq!(report.good_pages, 2);
    let mut odd = vec![0; PAGE_BYTES + 1];
    assert_eq!(kind(namespace.get_prefix_into(&chain, GetOptions::default(), &mut odd).await), ErrorKind::Invalid);
}

struct Frames {
    memory: Vec<u8>,
    frame_of: Vec<usize>,
    frame_bytes: usize,
}

impl PageMemory for Frames {
    fn page(&mut self, page: usize) -> &mut [u8] {
        let from = self.frame_of[page] * PAGE_BYTES;
        &mut self.memory[from..from + self.frame_bytes]
    }
}

#[tokio::test(start_paused = true)]
async fn pages_go_into_scattered_frames() {
    let (_fake, namespace, chain) = holding(3).await;
    let mut frames = Frames { memory: vec![0; 8 * PAGE_BYTES], frame_of: vec![7, 0, 3], frame_bytes: PAGE_BYTES };
    let report = namespace.get_prefix_to(&chain, GetOptions::default(), &mut frames).await.unwrap();
    assert_eq!(report.good_pages, 3);
    for i in 0..3 {
        frames.frame_bytes = PAGE_BYTES;
        assert_eq!(*frames.page(i), page(i)[..]);
    }
    frames.frame_bytes = PAGE_BYTES - 1;
    let refused = namespace.get_prefix_to(&chain, GetOptions::default(), &mut frames).await;
    assert_eq!(kind(refused), ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_for_a_page_loses_nothing() {
    let (_fake, namespace, chain) = holding(6).await;
    let mut pages = namespace.get_prefix(&chain, GetOptions::default()).await.unwrap();
    let mut come = 0;
    loop {
        // A timeout of nothing polls once, so waits are dropped between the parts of a page.
        match timeout(Duration::ZERO, pages.next_page()).await {
            Ok(Some(got)) => {
                assert_eq!(got.into_bytes(), page(come));
                come += 1;
            }
            Ok(None) => break,
            Err(_) => tokio::task::yield_now().await,
        }
    }
    let report = pages.end().await;
    assert_eq!((come, report.good_pages), (6, 6));
    assert!(matches!(report.stop, GetStop::Server(StopReason::EndOfChain)), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn the_length_of_the_request_limits_what_is_read_and_nothing_is_not_everything() {
    let (fake, namespace, chain) = holding(1).await;
    for request_tokens in [None, Some(0), Some(17)] {
        let options = GetOptions { request_tokens, ..Default::default() };
        namespace.get_prefix(&chain, options).await.unwrap().end().await;
    }
    assert_eq!(fake.with(|state| state.max_tokens.clone()), [0, 1, 17]);
}
