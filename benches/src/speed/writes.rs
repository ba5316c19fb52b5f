//! Write-behind as the SSD tier does it: batches of pages into free slots, a barrier behind each. No pipeline around it, no directory.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cairn_core::metrics::Metrics;
use cairn_core::{Checksum, Clock, Error, NamespaceId, OsEntropy, SlotId};
use cairn_pool::{HugePages, Pool, PoolSettings, SealedPage, TenantNo};
use cairn_ssd::{Device, FileDevice, PageFacts, PageIo, RingQueue, RingTarget, SsdComponents, SsdError, SsdTier};
use cairn_testkit::payload;

use super::house::{self, REGION_BYTES, Sizes};

/// Writes that may wait, as for a server.
const LINE_MAX: usize = 64;

/// A tier full of pages, and the pages in memory that they are copies of: one batch.
pub(super) struct Writes {
    io: PageIo,
    tier: Arc<SsdTier>,
    clock: Arc<dyn Clock>,
    page_bytes: u64,
    pages: Vec<(PageFacts, SealedPage)>,
    /// Slots with a page, the one written longest ago first.
    taken: VecDeque<SlotId>,
}

impl Writes {
    /// Makes a file at `path` and fills it with pages, in batches of `batch_pages`, `depth` writes under way at once. Blocks.
    pub(super) fn fill(
        path: &Path,
        sizes: &Sizes,
        batch_pages: u32,
        depth: u32,
        clock: Arc<dyn Clock>,
    ) -> cairn_core::Result<Self> {
        let metrics = house::metrics()?;
        let device = Arc::new(FileDevice::open_or_create(path, sizes.ssd_bytes()).map_err(SsdError::Device)?);
        let file = device.ring_file().ok_or_else(|| Error::invalid("the ssd is no file"))?;
        let parts = SsdComponents { device, clock: clock.clone(), metrics: metrics.clone() };
        let tier = Arc::new(SsdTier::format(parts, REGION_BYTES, &OsEntropy)?);
        let pool = pool(sizes, metrics.clone())?;
        let pages =
            (0..batch_pages).map(|page| sealed(&pool, page, sizes.page_bytes)).collect::<cairn_core::Result<_>>()?;
        let target = RingTarget { file, bytes: sizes.ssd_bytes(), depth: Some(depth) };
        let queue = RingQueue::start(target, LINE_MAX, clock.clone(), metrics).map_err(SsdError::Ring)?;
        let io = PageIo::new(tier.clone(), Box::new(queue));
        let page_bytes = sizes.page_bytes;
        let mut writes = Self { io, tier, clock, page_bytes, pages, taken: VecDeque::new() };
        while writes.tier.available(page_bytes, u64::from(batch_pages)) == u64::from(batch_pages) {
            writes.batch()?;
        }
        Ok(writes)
    }

    /// Writes over the oldest pages for a while; bytes a second. Blocks.
    pub(super) fn turn(&mut self, time: Duration) -> cairn_core::Result<f64> {
        let (start, mut pages) = (self.clock.now(), 0);
        while self.clock.now().since(start) < time {
            // A region is filled again when its last page has left.
            let wanted = self.pages.len() as u64;
            while self.tier.available(self.page_bytes, wanted) < wanted
                && let Some(slot) = self.taken.pop_front()
            {
                self.tier.free(slot);
            }
            self.batch()?;
            pages += self.pages.len();
        }
        Ok(pages as f64 * self.page_bytes as f64 / self.clock.now().since(start).as_secs_f64())
    }

    fn batch(&mut self) -> cairn_core::Result<()> {
        let mut batch = self.io.batch();
        for (facts, page) in &self.pages {
            let slot = self.tier.reserve(self.page_bytes)?;
            let slot = slot.ok_or_else(|| Error::invalid("the ssd has no free slot"))?;
            let bytes = page.verified().map_err(|_| Error::invalid("a page is damaged in memory"))?;
            batch.write(slot, facts, bytes)?;
            self.taken.push_back(slot);
        }
        Ok(batch.finish()?)
    }
}

fn pool(sizes: &Sizes, metrics: Arc<Metrics>) -> cairn_core::Result<Pool> {
    let settings = PoolSettings { bytes: sizes.dram_bytes, arena_bytes: REGION_BYTES, huge_pages: HugePages::Auto };
    let pool = Pool::start(settings, metrics)?;
    pool.wait_warm();
    Ok(pool)
}

fn sealed(pool: &Pool, page: u32, page_bytes: u64) -> cairn_core::Result<(PageFacts, SealedPage)> {
    let frame = pool.reserve(TenantNo(1), page_bytes);
    let mut frame = frame.ok_or_else(|| Error::invalid("the pool has no free frame"))?;
    let key = house::key(0, page);
    payload::fill(key.as_bytes(), &mut frame);
    let checksum = Checksum::of(&frame);
    let facts = PageFacts { namespace: NamespaceId::from_bytes([7; 32]), key, parent: None, position: 0, checksum };
    let damaged = |_| Error::invalid("a page is damaged in memory");
    Ok((facts, frame.seal(checksum).map_err(damaged)?))
}
