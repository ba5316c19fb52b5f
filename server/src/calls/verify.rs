//! Verify: the engine reads all that lies on the SSD, a few pages a step, and the client hears how far it is.
//!
//! A verification of hours is a row of short calls: each ends after a while, or by its deadline if that is sooner, and its last message says
//! where the next one goes on. So a server that stops waits for none of them. A client that goes away ends it.

use std::time::Duration;

use cairn_core::metrics::Call;
use cairn_core::{Clock, Deadline, Error, ErrorKind, Result, SlotId};
use cairn_engine::Verification;
use cairn_proto::v1;
use tonic::{Request, Status};

use super::House;
use crate::door::Visit;
use crate::outlet::{Outgoing, Outlet, outlet};

/// Longest time of one call.
const CALL_TIME_MAX: Duration = Duration::from_secs(2);
/// How often the client hears of the progress.
const TELL_INTERVAL: Duration = Duration::from_millis(250);
/// Messages that wait for a slow client.
const WAITING_MAX: usize = 2;

impl House {
    pub(super) async fn serve_verify(
        &self,
        mut request: Request<v1::VerifyRequest>,
    ) -> Result<Outgoing<v1::VerifyResponse>, Status> {
        let visit = self.rooms.door.receive(&mut request, Call::Admin)?;
        match self.begin_verify(&visit, request.into_inner()).await {
            Ok((verification, deadline)) => {
                let (outlet, outgoing) = outlet(WAITING_MAX);
                let clock = std::sync::Arc::clone(&self.rooms.clock);
                tokio::spawn(serve(verification, deadline, clock, visit, outlet));
                Ok(outgoing)
            }
            Err(error) => Err(visit.fail(&error)),
        }
    }

    async fn begin_verify(&self, visit: &Visit, request: v1::VerifyRequest) -> Result<(Verification, Deadline)> {
        let enough = Deadline::after(&*self.rooms.clock, CALL_TIME_MAX);
        let deadline = visit.deadline(request.timeout_ms)?.min(enough);
        let only = match request.namespace_id.is_empty() {
            true => None,
            false => Some(self.namespace(visit, &request.namespace_id)?),
        };
        let v1::Slot { region, slot } = request.from.unwrap_or_default();
        let begun = self.rooms.engine.verify(only.as_deref(), SlotId { region, slot }, request.bytes_per_second);
        let late = || Error::new(ErrorKind::Deadline, "the disk did not answer in time");
        Ok((visit.until(deadline, begun).await.ok_or_else(late)??, deadline))
    }
}

async fn serve(
    mut verification: Verification,
    deadline: Deadline,
    clock: std::sync::Arc<dyn Clock>,
    visit: Visit,
    outlet: Outlet<v1::VerifyResponse>,
) {
    let mut told = clock.now();
    loop {
        let step = tokio::select! {
            step = visit.until(deadline, verification.step()) => step,
            () = outlet.abandoned() => return,
        };
        match step {
            Some(Ok(true)) => {}
            Some(Ok(false)) | None => break,
            Some(Err(error)) => return outlet.end(Err(visit.fail(&error))),
        }
        if clock.now().since(told) < TELL_INTERVAL {
            continue;
        }
        told = clock.now();
        // A client that does not read is told at the end where it was.
        if let Some(Err(_gone)) = visit.until(deadline, outlet.pour(message(&verification, false))).await {
            return;
        }
    }
    let last = message(&verification, true);
    // Before the client hears of the end: who asks again finds its place free, and no verification under way.
    drop(verification);
    visit.answer();
    outlet.end(Ok(last));
}

fn message(verification: &Verification, last: bool) -> v1::VerifyResponse {
    let (counts, at, regions) = (verification.counts(), verification.at(), verification.regions());
    let next = v1::Slot { region: at.region, slot: at.slot };
    v1::VerifyResponse {
        counts: Some(v1::VerifyCounts {
            pages: counts.pages,
            bytes: counts.bytes,
            damaged: counts.damaged,
            unreadable: counts.unreadable,
        }),
        progress_ppm: u64::from(at.region.min(regions)) * 1_000_000 / u64::from(regions.max(1)),
        next: Some(next).filter(|next| last && next.region < regions),
        last,
    }
}
