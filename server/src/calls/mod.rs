//! The calls of the API, one file each: message in, the engine's word for it, message out.

mod admin;
mod get;
mod matching;
mod open;
mod put;
mod scrub;
mod verify;

use std::sync::Arc;

use cairn_core::metrics::Metrics;
use cairn_core::{Clock, Moment, PageKey, Result, usable_pages};
use cairn_engine::{Engine, Namespace};
use cairn_proto::v1::cairn_server::Cairn;
use cairn_proto::{chain_keys, namespace_id, v1};
use tonic::{Request, Response, Status, Streaming};

use crate::config::settings::LimitSettings;
use crate::door::{Door, Visit};
use crate::drive_health::DriveHealth;
use crate::outlet::Outgoing;

/// What every call may use. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct House {
    pub(crate) rooms: Arc<Rooms>,
}

#[derive(Debug)]
pub(crate) struct Rooms {
    pub(crate) engine: Arc<Engine>,
    pub(crate) door: Door,
    pub(crate) drive: Arc<DriveHealth>,
    pub(crate) limits: LimitSettings,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) started: Moment,
    /// Random, made at the start of the process: tells a client that the server is another one than before.
    pub(crate) boot_id: [u8; 16],
    pub(crate) insecure: bool,
}

impl House {
    /// The namespace that a call names.
    fn namespace(&self, visit: &Visit, id: &[u8]) -> Result<Arc<Namespace>> {
        self.rooms.engine.namespace(visit.principal(), &namespace_id(id)?)
    }

    /// The keys of a call's chain.
    fn keys(&self, namespace: &Namespace, chain: Option<v1::Chain>) -> Result<Vec<PageKey>> {
        let (scheme, page_tokens) = (namespace.key_scheme(), namespace.page_tokens());
        Ok(chain_keys(chain, namespace.id(), scheme, page_tokens, self.rooms.limits.chain_pages_max)?)
    }
}

/// Pages that a request of `max_tokens` can use; 0 is no limit.
fn usable(namespace: &Namespace, max_tokens: u64) -> u64 {
    if max_tokens == 0 { u64::MAX } else { usable_pages(max_tokens, namespace.page_tokens()) }
}

/// Runs of pages by tier, as a message.
fn tier_runs(runs: &[(cairn_core::Tier, usize)]) -> Vec<v1::TierRun> {
    runs.iter().map(|(tier, pages)| v1::TierRun { tier: v1::Tier::number(*tier), pages: *pages as u64 }).collect()
}

/// Tokens in `pages` pages.
fn tokens(namespace: &Namespace, pages: usize) -> u64 {
    pages as u64 * u64::from(namespace.page_tokens())
}

#[tonic::async_trait]
impl Cairn for House {
    type PutPrefixStream = Outgoing<v1::PutPrefixResponse>;
    type GetPrefixStream = Outgoing<v1::GetPrefixResponse>;

    async fn open_namespace(
        &self,
        request: Request<v1::OpenNamespaceRequest>,
    ) -> Result<Response<v1::OpenNamespaceResponse>, Status> {
        self.serve_open(request).await.map(Response::new)
    }

    async fn r#match(&self, request: Request<v1::MatchRequest>) -> Result<Response<v1::MatchResponse>, Status> {
        self.serve_match(request).map(Response::new)
    }

    async fn put_prefix(
        &self,
        request: Request<Streaming<v1::PutPrefixRequest>>,
    ) -> Result<Response<Self::PutPrefixStream>, Status> {
        self.serve_put(request).map(Response::new)
    }

    async fn get_prefix(
        &self,
        request: Request<v1::GetPrefixRequest>,
    ) -> Result<Response<Self::GetPrefixStream>, Status> {
        self.serve_get(request).map(Response::new)
    }
}
