//! One page on the SSD on its way to be verified, for the [scrub](crate::scrub) and for a [verification](crate::verify).
//!
//! It was picked and pinned under the catalogue's lock, is read without it, behind everybody else and into memory of its own, and is judged
//! under it again: damage counts, and costs the page, only if it is still there and still the same filling.

use cairn_core::SlotId;
use cairn_core::metrics::IoClass;
use cairn_directory::NamespaceNo;
use cairn_ssd::{Expected, PageMemory, ReadFault, ReadJob, ReadReply, Submitted, Withdrawn};
use tracing::warn;

use crate::engine::Shared;
use crate::values::ToVerify;

/// What became of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verified {
    Whole {
        bytes: u64,
    },
    Damaged,
    Unreadable,
    /// It had left meanwhile, or the engine is closing.
    Gone,
}

/// A page that is being read.
#[derive(Debug)]
pub(crate) struct UnderWay {
    namespace: NamespaceNo,
    pub(crate) slot: SlotId,
    expected: Expected,
    reply: ReadReply<PageMemory>,
}

impl UnderWay {
    /// Begins to read a page. `None` if the engine is closing: nobody else has places in the line.
    pub(crate) fn begin(shared: &Shared, page: ToVerify) -> Option<Self> {
        let ToVerify { namespace, expected, pin } = page;
        let slot = pin.slot();
        let job = ReadJob { pin, expected, into: PageMemory::new(expected.payload_bytes) };
        match shared.pages.read(IoClass::Scrub, job) {
            Submitted::Queued(reply) => Some(Self { namespace, slot, expected, reply }),
            Submitted::Full => None,
        }
    }

    /// Waits for the page and judges it. Blocks.
    pub(crate) fn wait(self, shared: &Shared) -> Verified {
        let read = self.reply.wait();
        judge(shared, self.namespace, &self.expected, read)
    }

    /// Waits for the page and judges it. Dropping it withdraws the read.
    pub(crate) async fn end(self, shared: &Shared) -> Verified {
        let read = self.reply.await;
        judge(shared, self.namespace, &self.expected, read)
    }
}

fn judge(
    shared: &Shared,
    namespace: NamespaceNo,
    expected: &Expected,
    read: std::result::Result<std::result::Result<PageMemory, ReadFault>, Withdrawn>,
) -> Verified {
    let Expected { key, generation, payload_bytes, .. } = expected;
    match read {
        Ok(Ok(_)) => {
            shared.metrics.ssd_scrubbed_pages.inc();
            shared.metrics.ssd_scrubbed_bytes.inc_by(*payload_bytes);
            Verified::Whole { bytes: *payload_bytes }
        }
        Ok(Err(fault @ ReadFault::Damaged(_))) => {
            if !shared.drop_lost_on_ssd(namespace, key, *generation, &fault) {
                return Verified::Gone;
            }
            shared.metrics.ssd_scrub_damaged.inc();
            Verified::Damaged
        }
        Ok(Err(fault)) => {
            shared.tier.note(&fault);
            if let Some(kept_back) = shared.page_troubles.unreadable.line(shared.clock.now()) {
                warn!(page = %key, %fault, kept_back, "the scrub could not read a page");
            }
            Verified::Unreadable
        }
        Err(Withdrawn) => Verified::Gone,
    }
}
