//! Match.

use cairn_core::Result;
use cairn_core::metrics::Call;
use cairn_proto::v1;
use tonic::{Request, Status};

use super::{House, tier_runs, tokens, usable};
use crate::door::Visit;

impl House {
    pub(super) fn serve_match(&self, mut request: Request<v1::MatchRequest>) -> Result<v1::MatchResponse, Status> {
        let visit = self.rooms.door.receive(&mut request, Call::Match)?;
        let matched = self.matched(&visit, request.into_inner());
        visit.end(matched)
    }

    /// Never waits, so the deadline is only checked for its range.
    fn matched(&self, visit: &Visit, request: v1::MatchRequest) -> Result<v1::MatchResponse> {
        visit.deadline(request.timeout_ms)?;
        let namespace = self.namespace(visit, &request.namespace_id)?;
        let keys = self.keys(&namespace, request.chain)?;
        let matched = self.rooms.engine.match_prefix(&namespace, &keys, usable(&namespace, request.max_tokens))?;
        Ok(v1::MatchResponse {
            pages: matched.pages as u64,
            tokens: tokens(&namespace, matched.pages),
            runs: tier_runs(&matched.runs),
            pages_beyond_max_tokens: matched.pages_beyond as u64,
            ready_in_us: u64::try_from(matched.ready_in.as_micros()).unwrap_or(u64::MAX),
            stop: v1::StopReason::number(matched.stop),
        })
    }
}
