//! Page memory for a page: from the pool, else from what the DRAM policy gives up, else when somebody lets go, by the deadline.
//!
//! Who waits for memory holds none that could be had again elsewhere: callers that wait for each other's pages would wait until their
//! deadlines.

use std::pin::pin;

use cairn_core::{Deadline, PageKey};
use cairn_pool::PageBufMut;

use crate::engine::Shared;
use crate::namespace::Namespace;
use crate::sync::timeout;

/// Takes a frame for a page of `namespace`, without evicting the page `spared`. `None`: everything else was in use until `deadline`, or no
/// arena can hold such a page. Cancel-safe.
pub(crate) async fn frame(
    shared: &Shared,
    namespace: &Namespace,
    spared: Option<PageKey>,
    deadline: Deadline,
) -> Option<PageBufMut> {
    loop {
        // Listening starts before the look, so that a frame that comes back in between is not missed.
        let mut freed = pin!(shared.pool.freed().notified());
        freed.as_mut().enable();
        if let Some(frame) = frame_now(shared, namespace, spared) {
            return Some(frame);
        }
        let left = deadline.remaining(&*shared.clock);
        if namespace.page_bytes() > shared.page_bytes_max || left.is_zero() || timeout(left, freed).await.is_err() {
            return None;
        }
    }
}

/// The same, if it can be done without waiting.
pub(crate) fn frame_now(shared: &Shared, namespace: &Namespace, spared: Option<PageKey>) -> Option<PageBufMut> {
    // A namespace of an earlier run may have pages that no arena of this one can hold: nothing is evicted for them.
    if namespace.page_bytes() > shared.page_bytes_max {
        return None;
    }
    loop {
        if let Some(frame) = shared.pool.reserve(namespace.tenant_no(), namespace.page_bytes()) {
            return Some(frame);
        }
        // Another caller may be faster to the frame that this frees; each round takes a page out of DRAM, so the rounds come to an end.
        if !evict(shared, namespace, spared) {
            return None;
        }
    }
}

fn evict(shared: &Shared, namespace: &Namespace, spared: Option<PageKey>) -> bool {
    let mut catalogue = shared.catalogue.lock();
    let Some(shape) = catalogue.shape(namespace.no()).copied() else { return false };
    let pages = catalogue.evict(&shape, &shared.pool, spared.map(|key| (namespace.no(), key)));
    shared.metrics.dram_evicted.inc_by(pages);
    pages > 0
}
