//! Measures how long it takes to match chains of 512 pages in an index of many, and what a page costs in memory.
//!
//! `cargo run --release -p cairn-directory --example match_speed -- 10000000`
#![expect(clippy::print_stdout, reason = "a measurement for people")]

use std::hint::black_box;
use std::sync::Arc;

use cairn_core::{Clock, PageKey, SystemClock};
use cairn_directory::{Index, NamespaceNo};
use cairn_policy::PageId;

const CHAIN_PAGES: u32 = 512;
const WALKS: u32 = 2000;
const SPACE: NamespaceNo = NamespaceNo(0);

fn main() {
    let pages = std::env::args().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(1_000_000_u32);
    let chains = (pages / CHAIN_PAGES).max(1);
    let clock = SystemClock::start();
    let (index, slowest_us) = fill(chains, &clock);
    let mut walk_us: Vec<f64> = Vec::new();
    // A step that is prime to the number of chains visits them all, far from each other.
    for walk in 0..WALKS {
        let chain: Vec<PageKey> = keys(walk.wrapping_mul(7919) % chains).collect();
        let start = clock.now();
        let found = black_box(index.walk(SPACE, black_box(&chain)));
        walk_us.push(clock.now().since(start).as_secs_f64() * 1e6);
        assert_eq!(found.len(), CHAIN_PAGES as usize);
    }
    walk_us.sort_by(f64::total_cmp);
    println!("entries={} bytes_per_entry={}", index.len(), index.bytes_per_entry());
    println!("walk_pages={CHAIN_PAGES} p50_us={:.1} p99_us={:.1}", percentile(&walk_us, 50), percentile(&walk_us, 99));
    println!("slowest_insert_us={slowest_us:.1}");
}

/// Chains put page by page in turn, so that no two pages of a chain are neighbours in memory: the worst there is.
fn fill(chains: u32, clock: &SystemClock) -> (Index<Arc<()>>, f64) {
    let mut index = Index::new();
    let mut heads: Vec<Option<PageId>> = vec![None; chains as usize];
    let mut slowest_us = 0_f64;
    for position in 0..CHAIN_PAGES {
        for (chain, head) in (0..).zip(&mut heads) {
            let start = clock.now();
            *head = index.insert(SPACE, key(chain, position), position, *head);
            slowest_us = slowest_us.max(clock.now().since(start).as_secs_f64() * 1e6);
        }
    }
    (index, slowest_us)
}

fn keys(chain: u32) -> impl Iterator<Item = PageKey> {
    (0..CHAIN_PAGES).map(move |position| key(chain, position))
}

fn key(chain: u32, position: u32) -> PageKey {
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&chain.to_le_bytes());
    bytes[4..8].copy_from_slice(&position.to_le_bytes());
    PageKey::from_bytes(bytes)
}

fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted.get(sorted.len() * percent / 100).copied().unwrap_or_default()
}
