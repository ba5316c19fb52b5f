//! What each write policy makes of a trace: hits, bytes written per byte read back from the SSD, drive writes a day.
//!
//! `zstd -dc conversation.jsonl.zst | cargo run --release -p cairn-policy --example write_policies`
//!
//! Reads JSON lines as Mooncake published them on standard input. One request after the other; a page is 512 tokens and 72 MiB; both tiers
//! evict by prefix LRU, and what is read from the SSD is in DRAM afterwards, as in the server.
#![allow(clippy::expect_used, clippy::cast_possible_truncation, reason = "a tool for this repository's own traces")]

use std::io::BufRead;
use std::time::Duration;

use cairn_core::{Durability, Moment, Thousandths, Tier};
use cairn_policy::{Admission, Budget, EvictionPolicy, Ledger, Link, PageId, Plan, PrefixLru, WritePolicy};

const PAGE_BYTES: u64 = 72 << 20;
const DRAM_PAGES: usize = 1_820;
const SSD_PAGES: usize = 132_450;
/// The bucket holds an hour and is empty at the start.
const BUCKET_DAYS: Thousandths = Thousandths(42);

#[derive(serde::Deserialize)]
struct Request {
    timestamp: u64,
    hash_ids: Vec<u32>,
}

struct TierPages {
    lru: PrefixLru,
    there: Vec<bool>,
    pages: usize,
}

impl TierPages {
    fn new(pages: usize, ids: usize) -> Self {
        Self { lru: PrefixLru::new(), there: vec![false; ids], pages }
    }

    fn has(&self, page: u32) -> bool {
        self.there[page as usize]
    }

    /// Adds the pages of `chain[..pages]` that are missing.
    fn fill(&mut self, chain: &[u32], pages: usize) -> u64 {
        let mut added = 0;
        for at in 0..pages {
            if self.has(chain[at]) {
                continue;
            }
            if self.lru.len() == self.pages {
                let Some(victim) = self.lru.victim(&mut |_| true) else { break };
                self.lru.remove(victim);
                self.there[victim.0 as usize] = false;
            }
            self.lru.insert(PageId(chain[at]), at.checked_sub(1).map(|parent| PageId(chain[parent])));
            self.there[chain[at] as usize] = true;
            added += 1;
        }
        added
    }

    fn touch(&mut self, chain: &[u32]) {
        let pages: Vec<PageId> = chain.iter().filter(|page| self.has(**page)).map(|page| PageId(*page)).collect();
        self.lru.touch(&pages);
    }
}

#[derive(Default)]
struct Tally {
    accesses: u64,
    hits: u64,
    ssd_hits: u64,
    written: u64,
}

fn replay(requests: &[Request], policy: WritePolicy, plan: Option<Plan>) -> Tally {
    let ids = requests.iter().flat_map(|request| &request.hash_ids).max().map_or(0, |most| *most as usize + 1);
    let (mut dram, mut ssd) = (TierPages::new(DRAM_PAGES, ids), TierPages::new(SSD_PAGES, ids));
    let mut admission = Admission::new(policy, plan.is_some());
    let mut budget = Budget::open(plan, Ledger::default(), Moment::default());
    let mut tally = Tally::default();
    for (number, request) in requests.iter().enumerate() {
        // Timestamps come in steps of 3 s with about ten requests in each.
        let now = Moment::from_start(Duration::from_millis(request.timestamp + number as u64 % 10 * 300));
        let chain = &request.hash_ids;
        let place = |page: u32| match (ssd.has(page), dram.has(page)) {
            (true, _) => Some(Tier::Ssd),
            (false, true) => Some(Tier::Dram),
            (false, false) => None,
        };
        let mut links: Vec<Link> =
            chain.iter().map(|page| Link { page: u64::from(*page), place: place(*page) }).collect();
        let found = links.iter().take_while(|link| link.place.is_some()).count();
        tally.accesses += chain.len() as u64;
        tally.hits += found as u64;
        tally.ssd_hits += chain[..found].iter().filter(|page| !dram.has(**page)).count() as u64;
        links.iter_mut().skip(found).for_each(|link| link.place = None);
        dram.touch(chain);
        ssd.touch(chain);
        let mut write = |verdict: cairn_policy::Verdict, ssd: &mut TierPages, budget: &mut Budget| {
            let written = ssd.fill(chain, verdict.pages);
            budget.settle(verdict.held_bytes, written * PAGE_BYTES, now);
            tally.written += written;
        };
        let verdict = admission.get(&links, PAGE_BYTES, &mut budget, now);
        write(verdict, &mut ssd, &mut budget);
        for (link, page) in links.iter_mut().zip(chain) {
            link.place = if ssd.has(*page) { Some(Tier::Ssd) } else { link.place };
        }
        let verdict = admission.put(&links, PAGE_BYTES, Durability::Memory, &mut budget, now);
        dram.fill(chain, chain.len());
        write(verdict, &mut ssd, &mut budget);
    }
    tally
}

fn main() {
    let requests: Vec<Request> = std::io::stdin()
        .lock()
        .lines()
        .map(|line| serde_json::from_str(&line.expect("a line")).expect("a request"))
        .collect();
    let days = requests.last().map_or(1.0, |last| last.timestamp as f64 / 86_400_000.0);
    println!(
        "{:<10} {:>9} {:>7} {:>12} {:>11} {:>9}",
        "policy", "budget", "hit %", "per ssd hit", "per any hit", "dwpd"
    );
    for writes in [None, Some(1), Some(3), Some(10)] {
        let capacity = SSD_PAGES as u64 * PAGE_BYTES;
        let plan = writes.map(|writes| Plan::of_drive_writes(Thousandths(writes * 1000), capacity, 5, BUCKET_DAYS));
        for policy in WritePolicy::ALL.into_iter().skip(1) {
            let Tally { accesses, hits, ssd_hits, written } = replay(&requests, policy, plan);
            println!(
                "{:<10} {:>9} {:>7.2} {:>12.2} {:>11.2} {:>9.2}",
                policy.name(),
                writes.map_or("none".to_owned(), |writes| format!("{writes} DWPD")),
                100.0 * hits as f64 / accesses.max(1) as f64,
                written as f64 / ssd_hits.max(1) as f64,
                written as f64 / hits.max(1) as f64,
                written as f64 / SSD_PAGES as f64 / days,
            );
        }
    }
}
