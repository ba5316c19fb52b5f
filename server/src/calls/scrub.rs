//! The scrub and the quarantine, as operators see and steer them.

use cairn_core::metrics::Label;
use cairn_core::{Error, ErrorKind, Result};
use cairn_engine::{Quarantine, ScrubStats, WriteFault};
use cairn_proto::v1;

use super::House;
use crate::door::Visit;

/// Longest list of slots in quarantine: far below the most that gRPC clients take.
const SLOTS_MAX: usize = 10_000;

impl House {
    pub(super) fn scrubbed(&self, request: &v1::ScrubRequest) -> v1::ScrubStats {
        let engine = &self.rooms.engine;
        if request.now {
            engine.scrub_now(request.bytes_per_second);
        }
        self.scrub_stats(&engine.stats().scrub)
    }

    pub(super) fn scrub_stats(&self, scrub: &ScrubStats) -> v1::ScrubStats {
        let metrics = &self.rooms.metrics;
        v1::ScrubStats {
            period_seconds: scrub.plan.period.map_or(0, |period| period.as_secs().max(1)),
            bytes_per_second_max: scrub.plan.bytes_per_second_max,
            asked: scrub.asked,
            verifying: scrub.verifying,
            progress_ppm: scrub.progress_ppm,
            passes: scrub.passes,
            pages: metrics.ssd_scrubbed_pages.get(),
            bytes: metrics.ssd_scrubbed_bytes.get(),
            damaged: metrics.ssd_scrub_damaged.get(),
            oldest_seconds: scrub.oldest.map(|oldest| oldest.as_secs()),
        }
    }

    pub(super) async fn quarantined(
        &self,
        visit: &Visit,
        request: &v1::QuarantineRequest,
    ) -> Result<v1::QuarantineResponse> {
        let deadline = visit.deadline(0)?;
        let engine = &self.rooms.engine;
        if request.release_writes {
            let late =
                || Error::new(ErrorKind::Deadline, "the disk did not answer in time; look at it, then try again");
            visit.until(deadline, engine.release_writes()).await.ok_or_else(late)??;
        }
        let released_slots = if request.release_slots { engine.release_slots() } else { 0 };
        let Quarantine { writes, slots } = engine.quarantine();
        Ok(v1::QuarantineResponse {
            writes: writes.map(|fault| self.write_fault(fault)),
            omitted: slots.len().saturating_sub(SLOTS_MAX) as u64,
            slots: slots.iter().take(SLOTS_MAX).map(quarantined_slot).collect(),
            released_slots,
        })
    }

    fn write_fault(&self, WriteFault { cause, at }: WriteFault) -> v1::WriteFault {
        let age = self.rooms.clock.now().since(at);
        v1::WriteFault { cause, age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX) }
    }
}

fn quarantined_slot(slot: &cairn_ssd::QuarantinedSlot) -> v1::QuarantinedSlot {
    v1::QuarantinedSlot {
        region: slot.region,
        offset: slot.at,
        bytes: slot.bytes,
        damage: slot.damage.text().to_owned(),
    }
}
