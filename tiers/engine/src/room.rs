//! Page memory for a page: from the pool, else from what the DRAM policy gives up, else when somebody lets go, by the deadline.

use std::pin::pin;

use cairn_core::Deadline;
use cairn_pool::PageBufMut;

use crate::engine::Shared;
use crate::namespace::Namespace;

/// Takes a frame for a page of `namespace`. `None`: everything was in use until `deadline`. Cancel-safe.
pub(crate) async fn frame(shared: &Shared, namespace: &Namespace, deadline: Deadline) -> Option<PageBufMut> {
    loop {
        // Listening starts before the look, so that a frame that comes back in between is not missed.
        let mut freed = pin!(shared.pool.freed().notified());
        freed.as_mut().enable();
        if let Some(frame) = frame_now(shared, namespace) {
            return Some(frame);
        }
        let left = deadline.remaining(&*shared.clock);
        if left.is_zero() || tokio::time::timeout(left, freed).await.is_err() {
            return None;
        }
    }
}

/// Takes a frame for a page of `namespace` if there is one, or one can be freed, without waiting.
pub(crate) fn frame_now(shared: &Shared, namespace: &Namespace) -> Option<PageBufMut> {
    loop {
        if let Some(frame) = shared.pool.reserve(namespace.tenant_no(), namespace.page_bytes()) {
            return Some(frame);
        }
        // Another caller may be faster to the frame that this frees; each round takes a page out of DRAM, so the rounds come to an end.
        if !evict(shared, namespace) {
            return None;
        }
    }
}

fn evict(shared: &Shared, namespace: &Namespace) -> bool {
    let mut catalogue = shared.catalogue.lock();
    let Some(shape) = catalogue.shape(namespace.no()).copied() else { return false };
    let pages = catalogue.evict_from_dram(&shape);
    shared.metrics.dram_evicted.inc_by(pages);
    pages > 0
}
