//! Replays a load: for each request, reads the prefix that the server has, judges every byte, and stores the rest.
//!
//! The way of a request: a worker takes it from the queue, makes its chain, gets, puts, counts; then it takes the next. One worker replays
//! strictly in order, so that the hit rate is that of the trace; several take from the same queue in order and overlap, as requests of a
//! real engine do. What bounds it: one request and one page a worker; nothing waits in between.

mod report;
mod resident;
mod tally;

use std::sync::Arc;
use std::time::Duration;

use cairn_client::{Client, ClientOptions};
use cairn_core::{Clock, Durability, SystemClock};
use indicatif::ProgressBar;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::error::Result;
use crate::load::{Load, Queue};
use crate::store::Store;

pub use report::Report;
use resident::Watch;
use tally::Tally;

/// Longest wait after the last request for pages that are still on their way to the SSD.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between two looks at the server.
const LOOK_GAP: Duration = Duration::from_millis(100);

/// How to replay.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Workers.
    pub concurrency: usize,
    /// Bytes of one page.
    pub page_bytes: u64,
    /// What puts ask for.
    #[serde(serialize_with = "label")]
    pub durability: Durability,
    /// Salt of the page names: another salt, other pages.
    #[serde(skip)]
    pub salt: u64,
}

fn label<S: serde::Serializer>(durability: &Durability, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(durability.label())
}

/// Replays `load` against the server at `endpoint` and reports. Wrong bytes are counted, not an error: the caller decides.
///
/// # Errors
/// The first call that fails ends it.
pub async fn replay(load: &Load, endpoint: &str, plan: &Plan, bar: &ProgressBar) -> Result<Report> {
    let admin = Client::connect(ClientOptions::new(endpoint)).await?;
    let written_before = written_bytes(&admin).await?;
    let watch = Watch::start(admin.clone());
    let queue = Arc::new(Queue::of(load.requests()?));
    let clock = Arc::new(SystemClock::start());
    let mut workers = JoinSet::new();
    for _ in 0..plan.concurrency.max(1) {
        let store = Store::open(endpoint, plan.page_bytes, plan.salt).await?;
        workers.spawn(work(store, queue.clone(), plan.durability, clock.clone(), bar.clone()));
    }
    let mut tally = Tally::default();
    while let Some(worker) = workers.join_next().await {
        tally.add(&worker??);
    }
    let elapsed = clock.now().since_start();
    settle(&admin, &*clock).await?;
    let memory = watch.finish().await?;
    let written_bytes = written_bytes(&admin).await?.saturating_sub(written_before);
    Ok(Report::new(plan, tally, elapsed, written_bytes, memory))
}

async fn work(
    store: Store,
    queue: Arc<Queue>,
    durability: Durability,
    clock: Arc<SystemClock>,
    bar: ProgressBar,
) -> Result<Tally> {
    let mut tally = Tally::default();
    while let Some(request) = queue.take() {
        let chain = store.chain(&request?.pages)?;
        let start = clock.now();
        let got = store.get(&chain).await?;
        tally.count_get(chain.pages(), &got, clock.now().since(start));
        if got.good_pages < chain.pages() {
            let start = clock.now();
            let report = store.put(&chain, durability).await?;
            tally.count_put(&report, clock.now().since(start));
        }
        bar.inc(1);
    }
    Ok(tally)
}

/// Waits until no page is on its way to the SSD any more, so that all that the load caused to be written is counted.
async fn settle(admin: &Client, clock: &dyn Clock) -> Result<()> {
    let start = clock.now();
    while clock.now().since(start) < SETTLE_TIMEOUT {
        if admin.stats().await?.ssd.is_none_or(|ssd| ssd.queued_pages == 0) {
            break;
        }
        sleep(LOOK_GAP).await;
    }
    Ok(())
}

async fn written_bytes(admin: &Client) -> Result<u64> {
    Ok(admin.stats().await?.ssd.map_or(0, |ssd| ssd.written_bytes))
}
