//! How fast the gRPC path is, as a share of what the machine can do.
//!
//! All of it on the loopback interface, with one connection. Nothing is written to the SSD meanwhile: pages are put for memory only, and the
//! server is set to write only what asks for it.

use std::time::Duration;

use bytes::Bytes;
use cairn_client::{GetOptions, MatchOptions, Namespace, PutOptions};
use cairn_core::{Clock, Durability, SystemClock};
use cairn_testkit::payload;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::cairnd::{Cairnd, Recipe, temporary_folder};
use crate::error::{BenchError, Result};
use crate::figures::{Figure, Rounds, median};
use crate::machine::{loopback_stream, processor_time};
use crate::sizes::Sizes;
use crate::store::Store;

/// A prefix of 1,024 tokens of Qwen3-8B: 64 pages of 16 tokens.
const PAGES: u64 = 64;
const PAGE_BYTES: u64 = 2_304 << 10;
/// Pages of the chain that is matched, and their size.
const MATCH_PAGES: u64 = 512;
const MATCH_PAGE_BYTES: u64 = 4096;
/// Matches; the median is reported.
const MATCHES: usize = 1000;
/// How long the server is watched at rest.
const REST: Duration = Duration::from_secs(10);

/// Least share of a plain loopback stream that a hot get reaches.
const GET_SHARE: f64 = 0.25;
/// Least share that a put reaches.
const PUT_SHARE: f64 = 0.2;
/// Longest match of 512 pages over a socket, in microseconds.
const MATCH_US_MAX: f64 = 400.0;
/// Most of one core that a server at rest uses, in percent.
const REST_PERCENT_MAX: f64 = 1.0;

/// Measures all of it.
pub(super) async fn measure(rounds: usize) -> Result<Vec<Figure>> {
    let folder = temporary_folder()?;
    // Room for the hot prefix and two put beside it; older puts are evicted, as in a cache that is full.
    let sizes = Sizes { page_bytes: PAGE_BYTES, dram_pages: 4 * PAGES, ssd_pages: PAGES };
    let mut settings = sizes.settings();
    // Two page sizes share the pool: the arena size has to leave one for the small pages.
    settings.retain(|setting| !setting.starts_with("dram."));
    settings.extend(["dram.bytes=1GiB", "dram.arena_bytes=64MiB", "ssd.write=requested"].map(str::to_owned));
    let cairnd = Cairnd::start(Recipe::beside_this_program(&folder.path().join("data"), settings)?).await?;
    let clock = SystemClock::start();
    let mut figures = streams(&cairnd, &clock, rounds).await?;
    figures.push(match_latency(&cairnd, &clock).await?);
    figures.push(rest(&cairnd, &clock).await?);
    cairnd.stop().await?;
    Ok(figures)
}

/// Loopback stream, get and put, in turns. The first, uncounted, warms both ends.
async fn streams(cairnd: &Cairnd, clock: &SystemClock, rounds: usize) -> Result<Vec<Figure>> {
    let store = Store::open(cairnd.endpoint(), PAGE_BYTES, 1).await?;
    let hot: Vec<u64> = (0..PAGES).collect();
    store.put(&store.chain(&hot)?, Durability::Memory).await?;
    let mut memory = vec![0; usize::try_from(PAGES * PAGE_BYTES).unwrap_or(usize::MAX)];
    // The same bytes for every page: what is measured is how they travel.
    let page = Bytes::from(payload::page(b"speed", memory.len() / hot.len()));
    let (mut gets, mut puts) = (Rounds::default(), Rounds::default());
    for round in 0..=rounds as u64 {
        let stream = stream_time(memory.len()).await?;
        let get = get_time(&store, &hot, &mut memory, clock).await?;
        let fresh: Vec<u64> = (0..PAGES).map(|id| (round + 1) * PAGES + id).collect();
        let put = put_time(&store, &fresh, &page, clock).await?;
        if round > 0 {
            let rate = |time: Duration| memory.len() as f64 / time.as_secs_f64() / 1e9;
            gets.add(rate(get), rate(stream));
            puts.add(rate(put), rate(stream));
        }
    }
    Ok(vec![
        Figure::reported("loopback TCP stream", gets.limit(), "GB/s"),
        Figure::share_of("gRPC get, 64 x 2.25 MiB, hot", &gets, "GB/s", GET_SHARE),
        Figure::share_of("gRPC put, 64 x 2.25 MiB, memory", &puts, "GB/s", PUT_SHARE),
    ])
}

async fn stream_time(bytes: usize) -> Result<Duration> {
    let measured = spawn_blocking(move || loopback_stream(&SystemClock::start(), bytes)).await?;
    measured.map_err(|source| BenchError::Measure { what: "the loopback stream", source })
}

/// Time until every page is in the caller's memory, verified against its seal.
async fn get_time(store: &Store, ids: &[u64], memory: &mut [u8], clock: &dyn Clock) -> Result<Duration> {
    let chain = store.chain(ids)?;
    let start = clock.now();
    let report = store.namespace().get_prefix_into(&chain, GetOptions::default(), memory).await?;
    let took = clock.now().since(start);
    whole(report.good_pages, ids.len(), "get").map(|()| took)
}

async fn put_time(store: &Store, ids: &[u64], page: &Bytes, clock: &dyn Clock) -> Result<Duration> {
    let chain = store.chain(ids)?;
    let start = clock.now();
    let report = store.namespace().put_prefix(&chain, |_| page.clone(), PutOptions::default()).await?;
    let took = clock.now().since(start);
    whole(report.stored(), ids.len(), "put").map(|()| took)
}

/// A rate of pages that did not travel would be a lie.
fn whole(pages: usize, expected: usize, call: &str) -> Result<()> {
    if pages == expected {
        return Ok(());
    }
    Err(BenchError::Settings(format!(
        "the {call} was cut short, so it can not be timed pages={pages} expected={expected}"
    )))
}

async fn match_latency(cairnd: &Cairnd, clock: &dyn Clock) -> Result<Figure> {
    let store = Store::open(cairnd.endpoint(), MATCH_PAGE_BYTES, 1).await?;
    let ids: Vec<u64> = (0..MATCH_PAGES).collect();
    let chain = store.chain(&ids)?;
    store.put(&chain, Durability::Memory).await?;
    let namespace: &Namespace = store.namespace();
    let mut times = Vec::with_capacity(MATCHES);
    for _ in 0..MATCHES {
        let start = clock.now();
        let matched = namespace.match_prefix(&chain, MatchOptions::default()).await?;
        times.push(clock.now().since(start).as_secs_f64() * 1e6);
        whole(matched.pages, ids.len(), "match")?;
    }
    Ok(Figure::at_most("match of 512 pages over gRPC, p50", median(times), "us", MATCH_US_MAX))
}

/// Processor time of a server that holds pages and serves nobody.
async fn rest(cairnd: &Cairnd, clock: &dyn Clock) -> Result<Figure> {
    let failed = |source| BenchError::Measure { what: "the server's processor time", source };
    let pid = cairnd.pid().ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
    let (start, used_before) = (clock.now(), processor_time(pid).map_err(failed)?);
    sleep(REST).await;
    let used = processor_time(pid).map_err(failed)?.saturating_sub(used_before);
    let percent = 100.0 * used.as_secs_f64() / clock.now().since(start).as_secs_f64();
    Ok(Figure::at_most("server at rest, of one core", percent, "%", REST_PERCENT_MAX))
}
