//! OpenNamespace.

use std::sync::Arc;

use cairn_core::metrics::Call;
use cairn_core::{Identity, Result};
use cairn_engine::Namespace;
use cairn_proto::{Refused, v1};
use tonic::{Request, Status};

use super::House;
use crate::door::Visit;

impl House {
    pub(super) async fn serve_open(
        &self,
        mut request: Request<v1::OpenNamespaceRequest>,
    ) -> Result<v1::OpenNamespaceResponse, Status> {
        let visit = self.rooms.door.receive(&mut request, Call::OpenNamespace)?;
        let opened = self.open(&visit, request.into_inner()).await;
        visit.end(opened.map(|namespace| self.opened(&namespace)))
    }

    async fn open(&self, visit: &Visit, request: v1::OpenNamespaceRequest) -> Result<Arc<Namespace>> {
        let deadline = visit.deadline(0)?;
        let identity = Identity::try_from(request.identity.ok_or(Refused::Missing("identity"))?)?;
        let (engine, principal) = (Arc::clone(&self.rooms.engine), visit.principal().clone());
        // The first opening writes to the directory and waits for the disk.
        let opening = move || engine.open_namespace(&principal, &identity);
        visit.blocking(deadline, "the namespace was not opened in time; open it again", opening).await?
    }

    fn opened(&self, namespace: &Namespace) -> v1::OpenNamespaceResponse {
        let limits = &self.rooms.limits;
        v1::OpenNamespaceResponse {
            namespace_id: namespace.id().as_bytes().to_vec(),
            page_bytes: namespace.page_bytes(),
            page_tokens: namespace.page_tokens(),
            limits: Some(v1::Limits {
                chain_pages_max: limits.chain_pages_max,
                part_bytes_max: limits.part_bytes_max.0,
                timeout_ms_max: u64::try_from(limits.timeout_max.0.as_millis()).unwrap_or(u64::MAX),
            }),
            boot_id: self.rooms.boot_id.to_vec(),
        }
    }
}
