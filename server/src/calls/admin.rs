//! The Admin service: what the server is, holds and has done; clearing.

use std::sync::Arc;

use cairn_core::metrics::{Call, Family, Label};
use cairn_core::{Error, ErrorKind, Result, StopReason, Tier};
use cairn_engine::{BudgetStats, EngineStats, FlashStats, NamespaceSummary, OpenMode};
use cairn_proto::v1;
use cairn_proto::v1::admin_server::Admin;
use prometheus::IntCounter;
use prost::Message;
use tonic::{Request, Response, Status};

use super::House;
use crate::door::Visit;
use crate::drive_health::Wear;
use crate::outlet::Outgoing;

/// Longest list of namespaces: the most that gRPC clients take unless they are told otherwise, less what goes around it.
const LIST_BYTES_MAX: usize = (4 << 20) - 64;
/// What goes around one namespace in the list: its tag and its length.
const INFO_EXTRA_BYTES: usize = 8;

#[tonic::async_trait]
impl Admin for House {
    type VerifyStream = Outgoing<v1::VerifyResponse>;

    async fn stats(&self, mut request: Request<v1::StatsRequest>) -> Result<Response<v1::StatsResponse>, Status> {
        let visit = self.rooms.door.receive(&mut request, Call::Admin)?;
        let stats = self.stats();
        visit.answer();
        Ok(Response::new(stats))
    }

    async fn list_namespaces(
        &self,
        mut request: Request<v1::ListNamespacesRequest>,
    ) -> Result<Response<v1::ListNamespacesResponse>, Status> {
        let visit = self.rooms.door.receive(&mut request, Call::Admin)?;
        let listed = self.listed(&visit).await;
        visit.end(listed.map(Response::new))
    }

    async fn clear(&self, mut request: Request<v1::ClearRequest>) -> Result<Response<v1::ClearResponse>, Status> {
        let visit = self.rooms.door.receive(&mut request, Call::Admin)?;
        let cleared = self.cleared(&visit, &request.into_inner()).await;
        visit.end(cleared.map(|pages| Response::new(v1::ClearResponse { pages })))
    }

    async fn scrub(&self, mut request: Request<v1::ScrubRequest>) -> Result<Response<v1::ScrubResponse>, Status> {
        let visit = self.rooms.door.receive(&mut request, Call::Admin)?;
        let scrub = self.scrubbed(&request.into_inner());
        visit.answer();
        Ok(Response::new(v1::ScrubResponse { scrub: Some(scrub) }))
    }

    async fn verify(&self, request: Request<v1::VerifyRequest>) -> Result<Response<Self::VerifyStream>, Status> {
        self.serve_verify(request).await.map(Response::new)
    }

    async fn quarantine(
        &self,
        mut request: Request<v1::QuarantineRequest>,
    ) -> Result<Response<v1::QuarantineResponse>, Status> {
        let visit = self.rooms.door.receive(&mut request, Call::Admin)?;
        let quarantine = self.quarantined(&visit, &request.into_inner()).await;
        visit.end(quarantine.map(Response::new))
    }
}

impl House {
    async fn listed(&self, visit: &Visit) -> Result<v1::ListNamespacesResponse> {
        let deadline = visit.deadline(0)?;
        let (engine, principal) = (Arc::clone(&self.rooms.engine), visit.principal().clone());
        // Walks every entry.
        let counting = move || list(engine.namespaces(&principal));
        visit.blocking(deadline, "the namespaces were not counted in time", counting).await
    }

    async fn cleared(&self, visit: &Visit, request: &v1::ClearRequest) -> Result<u64> {
        let deadline = visit.deadline(0)?;
        let namespace = self.namespace(visit, &request.namespace_id)?;
        let cleared = visit.until(deadline, self.rooms.engine.clear(&namespace)).await;
        cleared
            .ok_or_else(|| Error::new(ErrorKind::Deadline, "the namespace was not cleared in time; clear it again"))?
    }

    fn stats(&self) -> v1::StatsResponse {
        let stats = self.rooms.engine.stats();
        v1::StatsResponse {
            server: Some(self.server_stats(&stats)),
            dram: Some(self.dram_stats(&stats)),
            ssd: Some(self.ssd_stats(&stats)),
            traffic: Some(self.traffic_stats()),
            recovery: Some(v1::RecoveryStats {
                mode: stats.recovery.mode.label().to_owned(),
                pages: stats.recovery.pages,
                dropped: stats.recovery.dropped,
                rebuilding: stats.recovery.mode == OpenMode::Rebuilding,
                millis: u64::try_from(stats.recovery.took.as_millis()).unwrap_or(u64::MAX),
            }),
            budget: Some(self.budget_stats(&stats.budget)),
            flash: Some(flash_stats(&stats.flash)),
            scrub: Some(self.scrub_stats(&stats.scrub)),
        }
    }

    fn server_stats(&self, stats: &EngineStats) -> v1::ServerStats {
        let up = self.rooms.clock.now().since(self.rooms.started);
        v1::ServerStats {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            boot_id: self.rooms.boot_id.to_vec(),
            uptime_ms: u64::try_from(up.as_millis()).unwrap_or(u64::MAX),
            insecure: self.rooms.insecure,
            resident_bytes: crate::process::resident_bytes(),
            namespaces: stats.namespaces,
            entries: stats.entries,
        }
    }

    fn dram_stats(&self, stats: &EngineStats) -> v1::TierStats {
        let metrics = &self.rooms.metrics;
        v1::TierStats {
            capacity_bytes: stats.dram.capacity_bytes,
            used_bytes: stats.dram.used_bytes,
            pages: stats.dram.pages,
            evicted_pages: metrics.dram_evicted.get(),
            damaged_pages: metrics.dram_damaged.get(),
            backing: stats.dram_backing.clone(),
            ..Default::default()
        }
    }

    fn ssd_stats(&self, stats: &EngineStats) -> v1::TierStats {
        let metrics = &self.rooms.metrics;
        v1::TierStats {
            capacity_bytes: stats.ssd.capacity_bytes,
            used_bytes: stats.ssd.used_bytes,
            pages: stats.ssd.pages,
            evicted_pages: metrics.ssd_evicted.get(),
            written_bytes: metrics.ssd_written_bytes.get(),
            read_bytes: metrics.ssd_read_bytes.get(),
            damaged_pages: metrics.ssd_damaged.iter().map(|(_, counter)| counter.get()).sum(),
            write_quarantined: stats.write_quarantined,
            backing: stats.ssd_backing.clone(),
            queued_pages: u64::try_from(metrics.ssd_write_queue_pages.get()).unwrap_or(0),
            skipped: counts(&metrics.ssd_skipped),
        }
    }

    fn budget_stats(&self, budget: &BudgetStats) -> v1::BudgetStats {
        let metrics = &self.rooms.metrics;
        let plan = budget.plan;
        let drive = self.rooms.drive.look();
        let by_drive = drive.wear.as_ref().and_then(|wear| wear.years_left(budget.pace_day_bytes));
        let by_ledger = plan.and_then(|plan| plan.years_left(budget.written_bytes, budget.pace_day_bytes));
        v1::BudgetStats {
            policy: budget.policy.name().to_owned(),
            plan_day_bytes: plan.map_or(0, |plan| plan.day_bytes()),
            bucket_bytes: plan.map_or(0, |plan| plan.bucket_bytes()),
            level_bytes: budget.level_bytes,
            held_bytes: budget.held_bytes,
            day_bytes: budget.day_bytes,
            pace_day_bytes: budget.pace_day_bytes,
            written_bytes: budget.written_bytes,
            running_seconds: budget.running_seconds,
            plan_years: plan.map_or(0, |plan| plan.years()),
            rated_bytes: plan.map_or(0, |plan| u64::try_from(plan.rated_bytes()).unwrap_or(u64::MAX)),
            years_left: by_drive.or(by_ledger),
            wear_source: by_drive.map_or("ledger", |_| "drive").to_owned(),
            admitted_pages: metrics.ssd_admitted_pages.get(),
            refused_pages: counts(&metrics.ssd_refused_pages),
            refused_bytes: counts(&metrics.ssd_refused_bytes),
            not_durable_pages: metrics.put_not_durable.get(),
            drive: drive.wear.map(drive_wear),
            drive_unknown: drive.unknown.unwrap_or_default(),
        }
    }

    fn traffic_stats(&self) -> v1::TrafficStats {
        let metrics = &self.rooms.metrics;
        v1::TrafficStats {
            gets: metrics.calls_answered.of(Call::GetPrefix).get(),
            puts: metrics.calls_answered.of(Call::PutPrefix).get(),
            matches: metrics.calls_answered.of(Call::Match).get(),
            get_pages_dram: metrics.get_pages.of(Tier::Dram).get(),
            get_pages_ssd: metrics.get_pages.of(Tier::Ssd).get(),
            get_bytes: metrics.get_bytes.get(),
            get_stops: counts::<StopReason>(&metrics.get_stops),
            put_pages_stored: metrics.put_pages.of(cairn_core::metrics::Put::Stored).get(),
            put_pages_present: metrics.put_pages.of(cairn_core::metrics::Put::Present).get(),
            put_bytes: metrics.put_bytes.get(),
            put_not_stored: counts(&metrics.put_not_stored),
        }
    }
}

fn drive_wear(wear: Wear) -> v1::DriveWear {
    v1::DriveWear {
        disk: wear.disk,
        used_percent: wear.log.used_percent,
        written_bytes: wear.log.written_bytes,
        pace_day_bytes: wear.pace_day_bytes,
        spare_percent: wear.log.spare_percent,
        critical_warning: wear.log.critical_warning,
        age_seconds: wear.age.as_secs(),
    }
}

fn flash_stats(flash: &FlashStats) -> v1::FlashStats {
    v1::FlashStats {
        written_bytes: flash.written_bytes,
        page_bytes: flash.page_bytes,
        reinserted_bytes: flash.reinserted_bytes,
        reclaimed_regions: flash.reclaimed_regions,
        trimmed_bytes: flash.trimmed_bytes,
        dead_bytes: flash.dead_bytes,
        quarantined_bytes: flash.quarantined_bytes,
    }
}

/// A family of counters by reason, those at zero left out.
fn counts<L: Label>(family: &Family<L, IntCounter>) -> Vec<v1::Count> {
    let count =
        |(reason, counter): (L, &IntCounter)| v1::Count { reason: reason.text().to_owned(), count: counter.get() };
    family.iter().map(count).filter(|count| count.count > 0).collect()
}

/// As many namespaces as fit in an answer, and how many do not.
fn list(summaries: Vec<NamespaceSummary>) -> v1::ListNamespacesResponse {
    let mut answer = v1::ListNamespacesResponse::default();
    let mut bytes = 0;
    for summary in summaries {
        let info = namespace_info(summary);
        bytes += info.encoded_len() + INFO_EXTRA_BYTES;
        if bytes <= LIST_BYTES_MAX {
            answer.namespaces.push(info);
        } else {
            answer.omitted += 1;
        }
    }
    answer
}

fn namespace_info(summary: NamespaceSummary) -> v1::NamespaceInfo {
    v1::NamespaceInfo {
        namespace_id: summary.id.as_bytes().to_vec(),
        page_bytes: summary.identity.page_bytes,
        identity: Some(v1::Identity::from(&summary.identity)),
        dram_pages: summary.dram_pages,
        ssd_pages: summary.ssd_pages,
    }
}

#[cfg(test)]
mod tests {
    use cairn_core::{Declared, Heads, Identity, KeyScheme, LayerRange, NamespaceId, StateKind};

    use super::*;

    fn summary() -> NamespaceSummary {
        let long = || "x".repeat(500);
        let identity = Identity {
            model: long(),
            model_revision: long(),
            adapter: Declared::None,
            positions: Declared::Is(long()),
            kind: StateKind::Attention,
            dtype: long(),
            layout: long(),
            layout_version: long(),
            page_tokens: 16,
            page_bytes: 4096,
            layers: LayerRange { first: 0, count: 1, of: 1 },
            heads: Heads::Replicated,
            quantisation: Declared::None,
            cache_salt: Declared::None,
            keys: KeyScheme::Tokens,
        };
        NamespaceSummary { id: NamespaceId::from_bytes([7; 32]), identity, dram_pages: u64::MAX, ssd_pages: u64::MAX }
    }

    #[test]
    fn a_list_that_is_too_long_for_clients_is_cut_and_says_so() {
        let few = list(vec![summary(); 3]);
        assert_eq!((few.namespaces.len(), few.omitted), (3, 0));
        let many = list(vec![summary(); 4096]);
        assert_eq!(many.namespaces.len() as u64 + many.omitted, 4096);
        assert!(many.omitted > 0);
        assert!((4_000_000..=4 << 20).contains(&many.encoded_len()), "{}", many.encoded_len());
    }
}
