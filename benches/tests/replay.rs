//! The load test against a real server. Needs `cairnd` beside the test's own build: `cargo build --release -p cairn-server`.

use std::collections::HashSet;

use cairn_bench::cairnd::{Cairnd, Recipe};
use cairn_bench::load::{Load, Source};
use cairn_bench::progress;
use cairn_bench::replay::{Plan, replay};
use cairn_bench::sizes::Sizes;
use cairn_bench::trace::TraceError;
use cairn_core::Durability;

/// Pages found from the start of each request by a cache that forgets nothing.
fn ideal_hits(load: &Load) -> Result<u64, TraceError> {
    let mut seen = HashSet::new();
    let mut hits = 0;
    for request in load.requests()? {
        let pages = request?.pages;
        hits += pages.iter().take_while(|page| seen.contains(*page)).count() as u64;
        seen.extend(pages);
    }
    Ok(hits)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_in_order_finds_every_page_that_the_tiers_can_hold() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = Sizes { page_bytes: 4096, dram_pages: 500, ssd_pages: 12_000 };
    let recipe = Recipe::beside_this_program(&folder.path().join("data"), sizes.settings()).unwrap();
    let cairnd = Cairnd::start(recipe).await.unwrap();
    let load = Load::plan(Source::Generated { seed: 1 }, 500).unwrap();
    // What is only written behind may find no room in the queue, and then it is not on the SSD when memory has no room for it.
    let plan = Plan { concurrency: 1, page_bytes: 4096, durability: Durability::Ssd, salt: 0 };
    let report = replay(&load, cairnd.endpoint(), &plan, &progress::bar(load.len(), false)).await.unwrap();
    assert_eq!(report.hits_dram_pages + report.hits_ssd_pages, ideal_hits(&load).unwrap(), "{report}");
    assert!(report.hits_dram_pages > 0 && report.hits_ssd_pages > 0, "{report}");
    assert_eq!(report.hits_dram_pages + report.hits_ssd_pages + report.stored_pages, report.pages_asked, "{report}");
    assert!(report.not_stored_pages.is_empty(), "{report}");
    report.judge().unwrap();
}
