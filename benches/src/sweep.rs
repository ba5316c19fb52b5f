//! Reads whatever a server still has of a load, each page once, and judges every byte. Stores nothing.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use indicatif::ProgressBar;
use tokio::task::JoinSet;

use crate::error::{BenchError, Result};
use crate::load::{Load, Queue};
use crate::store::Store;

/// What a sweep found.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Found {
    /// Distinct pages that can be reached from the start of a request.
    pub pages: u64,
    /// Bytes that are not those of their page.
    pub wrong_bytes: u64,
}

impl Found {
    /// # Errors
    /// [`BenchError::WrongBytes`] if there are any.
    pub fn judge(&self) -> Result<()> {
        match self.wrong_bytes {
            0 => Ok(()),
            wrong_bytes => Err(BenchError::WrongBytes { wrong_bytes }),
        }
    }
}

/// Reads the chains of `load` from the server at `endpoint`, with `concurrency` workers. A chain whose last page has been seen in another
/// is skipped. Memory: 8 bytes for each distinct page of the load.
///
/// # Errors
/// The first call that fails ends it.
pub async fn sweep(
    load: &Load,
    endpoint: &str,
    page_bytes: u64,
    concurrency: usize,
    bar: &ProgressBar,
) -> Result<Found> {
    let queue = Arc::new(Queue::of(load.requests()?));
    let seen = Arc::new(Seen::default());
    let mut workers = JoinSet::new();
    for _ in 0..concurrency.max(1) {
        let store = Store::open(endpoint, page_bytes, 0).await?;
        workers.spawn(work(store, queue.clone(), seen.clone(), bar.clone()));
    }
    let mut found = Found::default();
    while let Some(worker) = workers.join_next().await {
        let part = worker??;
        found.pages += part.pages;
        found.wrong_bytes += part.wrong_bytes;
    }
    Ok(found)
}

async fn work(store: Store, queue: Arc<Queue>, seen: Arc<Seen>, bar: ProgressBar) -> Result<Found> {
    let mut found = Found::default();
    while let Some(request) = queue.take() {
        let pages = request?.pages;
        if seen.needs(&pages) {
            let got = store.get(&store.chain(&pages)?).await?;
            found.pages += seen.note(&pages[..got.good_pages.min(pages.len())]);
            found.wrong_bytes += got.wrong_bytes;
        }
        bar.inc(1);
    }
    Ok(found)
}

/// Pages found so far.
#[derive(Debug, Default)]
struct Seen(Mutex<HashSet<u64>>);

impl Seen {
    fn needs(&self, chain: &[u64]) -> bool {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        chain.last().is_some_and(|last| !seen.contains(last))
    }

    /// Adds pages, and returns how many are new.
    fn note(&self, pages: &[u64]) -> u64 {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.iter().filter(|page| seen.insert(**page)).count() as u64
    }
}
