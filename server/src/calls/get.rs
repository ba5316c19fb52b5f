//! GetPrefix: pages out of the engine, in parts, through a short queue, to the client.
//!
//! A part is a slice of the verified page itself; no bytes are copied here. The one copy on this path is tonic's own, into the buffer that
//! a message is encoded in. A slow client holds the parts in the queue (and the frames they lie in) and one part on its way through
//! tonic. When the deadline passes, the get ends and lets go of every page; the client is told the length that it has got, when it reads
//! that far. Until then, or until its connection ends, it holds that one part and the call's place.

use std::sync::Arc;

use cairn_core::metrics::Call;
use cairn_core::{Deadline, Result, StopReason};
use cairn_engine::{Get, GetEnd, GetOptions, Namespace, ServedPage};
use cairn_proto::v1;
use cairn_proto::v1::get_prefix_response::Step;
use tonic::{Request, Status};

use super::{House, tier_runs, tokens, usable};
use crate::door::Visit;
use crate::outlet::{Gone, Outgoing, Outlet, outlet};

/// Bytes of one part: large enough that messages cost little, small enough that the first bytes of a page leave early.
const PART_BYTES: usize = 1 << 20;
/// Parts that wait for a slow client.
const PARTS_WAITING_MAX: usize = 2;

/// A get that has begun, and what its end needs to know.
struct Serving {
    get: Get,
    namespace: Arc<Namespace>,
    deadline: Deadline,
}

impl House {
    pub(super) fn serve_get(
        &self,
        mut request: Request<v1::GetPrefixRequest>,
    ) -> Result<Outgoing<v1::GetPrefixResponse>, Status> {
        let visit = self.rooms.door.receive(&mut request, Call::GetPrefix)?;
        match self.begin_get(&visit, request.into_inner()) {
            Ok(serving) => {
                let (outlet, outgoing) = outlet(PARTS_WAITING_MAX);
                tokio::spawn(serving.serve(visit, outlet));
                Ok(outgoing)
            }
            Err(error) => Err(visit.fail(&error)),
        }
    }

    fn begin_get(&self, visit: &Visit, request: v1::GetPrefixRequest) -> Result<Serving> {
        let deadline = visit.deadline(request.timeout_ms)?;
        let namespace = self.namespace(visit, &request.namespace_id)?;
        let keys = self.keys(&namespace, request.chain)?;
        let options = GetOptions {
            first_page: usize::try_from(request.first_page).unwrap_or(usize::MAX),
            usable_pages: usable(&namespace, request.max_tokens),
            deadline,
        };
        let get = self.rooms.engine.get_prefix(&namespace, keys, options)?;
        Ok(Serving { get, namespace, deadline })
    }
}

impl Serving {
    async fn serve(mut self, visit: Visit, outlet: Outlet<v1::GetPrefixResponse>) {
        outlet.add(step(Step::Plan(self.plan())));
        let Ok(end) = self.send_pages(&visit, &outlet).await else {
            return; // The client is gone; what the get held goes with it.
        };
        // First: a client that has seen the end finds its place free.
        visit.answer();
        outlet.end(Ok(step(Step::Done(self.done(end)))));
    }

    async fn send_pages(&mut self, visit: &Visit, outlet: &Outlet<v1::GetPrefixResponse>) -> Result<GetEnd, Gone> {
        loop {
            let page = tokio::select! {
                page = self.get.next() => page,
                () = outlet.abandoned() => return Err(Gone),
            };
            let Some(page) = page else { return Ok(self.get.end()) };
            for part in parts(page) {
                match visit.until(self.deadline, outlet.pour(step(Step::Part(part)))).await {
                    Some(poured) => poured?,
                    None => return Ok(self.cut(outlet)),
                }
            }
        }
    }

    /// The deadline has passed and the client has not read what it was sent. The page under way, and those whose last part still
    /// waits, were never delivered.
    fn cut(&mut self, outlet: &Outlet<v1::GetPrefixResponse>) -> GetEnd {
        let mut undelivered = 1;
        for unread in outlet.take_back() {
            match unread.step {
                Some(Step::Part(part)) => undelivered += usize::from(part.seal.is_some()),
                _ => outlet.add(unread),
            }
        }
        GetEnd { good_pages: self.get.cut().good_pages.saturating_sub(undelivered), stop: StopReason::Deadline }
    }

    fn plan(&self) -> v1::GetPlan {
        let runs = self.get.planned_runs();
        v1::GetPlan {
            pages: runs.iter().map(|(_, pages)| *pages as u64).sum(),
            page_bytes: self.namespace.page_bytes(),
            runs: tier_runs(runs),
        }
    }

    fn done(&self, end: GetEnd) -> v1::GetDone {
        v1::GetDone {
            good_pages: end.good_pages as u64,
            good_tokens: tokens(&self.namespace, end.good_pages),
            stop: v1::StopReason::number(end.stop),
        }
    }
}

fn step(step: Step) -> v1::GetPrefixResponse {
    v1::GetPrefixResponse { step: Some(step) }
}

/// The parts of a page, in order; the last one carries the seal.
fn parts(served: ServedPage) -> impl Iterator<Item = v1::PagePart> {
    let page = served.page as u64;
    let seal = v1::PageSeal { checksum: served.bytes.checksum().to_u64(), tier: v1::Tier::number(served.tier) };
    let bytes = served.bytes.into_bytes();
    (0..bytes.len()).step_by(PART_BYTES).map(move |offset| {
        let end = bytes.len().min(offset + PART_BYTES);
        let seal = (end == bytes.len()).then_some(seal);
        v1::PagePart { page, offset: offset as u64, data: bytes.slice(offset..end), seal }
    })
}
