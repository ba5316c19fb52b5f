//! What a server is and holds: for operators, dashboards and tests.

use std::fmt;
use std::time::Duration;

use cairn_core::{Identity, NamespaceId, Result};
use cairn_proto::v1;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::Client;
use crate::budget::{Budget, passing, repeated};
use crate::fault::Fault;

/// 16 random bytes that a server process made when it started: another id is another process, whose DRAM was empty then.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BootId([u8; 16]);

impl BootId {
    pub(crate) fn from_wire(call: &'static str, bytes: &[u8]) -> Result<Self, Fault> {
        let id = bytes.try_into().map_err(|_| Fault::protocol(call, format!("boot_id of {} bytes", bytes.len())))?;
        Ok(Self(id))
    }

    /// The id's bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Which server process answered last.
#[derive(Debug, Default)]
pub(crate) struct Boot {
    id: Option<BootId>,
    restarts_seen: u64,
}

impl Boot {
    pub(crate) fn note(&mut self, id: BootId) {
        self.restarts_seen += u64::from(self.id.is_some_and(|known| known != id));
        self.id = Some(id);
    }

    pub(crate) fn id(&self) -> Option<BootId> {
        self.id
    }

    pub(crate) fn restarts_seen(&self) -> u64 {
        self.restarts_seen
    }
}

/// What a server says about itself to whoever asks whether to send it calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
    /// It takes calls.
    Serving,
    /// It is up and takes none: starting or stopping.
    NotServing,
    /// It does not say.
    Unknown,
}

/// The namespaces that a server knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamespaceList {
    /// Those that fit in one answer.
    pub namespaces: Vec<NamespaceSummary>,
    /// How many more there are.
    pub omitted: u64,
}

/// A namespace, as the server lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamespaceSummary {
    /// Its id.
    pub id: NamespaceId,
    /// Its identity, as it came: complete, its ranges not checked. `None` if the server knows the namespace only from pages that it found
    /// on disk.
    pub identity: Option<Identity>,
    /// Bytes of one page.
    pub page_bytes: u64,
    /// Pages in DRAM.
    pub dram_pages: u64,
    /// Pages on the SSD. A page in both tiers counts in both.
    pub ssd_pages: u64,
}

impl NamespaceSummary {
    fn from_wire(wire: v1::NamespaceInfo) -> Result<Self, Fault> {
        const CALL: &str = "list_namespaces";
        Ok(Self {
            id: cairn_proto::namespace_id(&wire.namespace_id).map_err(Fault::refused(CALL))?,
            identity: wire.identity.map(Identity::try_from).transpose().map_err(Fault::refused(CALL))?,
            page_bytes: wire.page_bytes,
            dram_pages: wire.dram_pages,
            ssd_pages: wire.ssd_pages,
        })
    }
}

/// Calls about the server as a whole. Those that change nothing are repeated while the server is away or overloaded.
impl Client {
    /// What the server is, holds and has done, as the message that it sends.
    ///
    /// # Errors
    /// `Unavailable` or `Deadline` if the server does not answer within the client's timeout.
    pub async fn stats(&self) -> Result<v1::StatsResponse> {
        let budget = self.budget("stats", None);
        let stats = repeated(&budget, self.options().retries_max, passing, || async {
            self.answer(self.admin_calls().stats(v1::StatsRequest {}).await)
        })
        .await?;
        if let Some(server) = &stats.server {
            self.note_boot(BootId::from_wire("stats", &server.boot_id)?);
        }
        Ok(stats)
    }

    /// The caller's namespaces.
    ///
    /// # Errors
    /// As [`Client::stats`].
    pub async fn namespaces(&self) -> Result<NamespaceList> {
        let budget = self.budget("list_namespaces", None);
        let listed = repeated(&budget, self.options().retries_max, passing, || async {
            self.answer(self.admin_calls().list_namespaces(v1::ListNamespacesRequest {}).await)
        })
        .await?;
        let namespaces = listed.namespaces.into_iter().map(NamespaceSummary::from_wire).collect::<Result<_, _>>()?;
        Ok(NamespaceList { namespaces, omitted: listed.omitted })
    }

    /// Drops every page of a namespace from every tier, and returns how many there were. Durable when it returns. Not repeated.
    ///
    /// # Errors
    /// `Fenced` if there is no such namespace; `Unavailable` or `Deadline` if the server does not answer.
    pub async fn clear(&self, namespace: &NamespaceId) -> Result<u64> {
        let budget = self.budget("clear", None);
        let request = v1::ClearRequest { namespace_id: namespace.as_bytes().to_vec() };
        let cleared = budget.watch(async { self.answer(self.admin_calls().clear(request).await) }).await?;
        Ok(cleared.pages)
    }

    /// Asks the server's health service, once, waiting `timeout` at most and no grace: what a load balancer would see.
    ///
    /// # Errors
    /// `Unavailable` or `Deadline` if the server does not answer.
    pub async fn health(&self, timeout: Duration) -> Result<Health> {
        let budget = Budget::start("health", timeout, Duration::ZERO);
        let request = HealthCheckRequest { service: String::new() };
        let mut service = HealthClient::new(self.channel());
        let answer = budget.watch(async { self.answer(service.check(request).await) }).await?;
        Ok(match ServingStatus::try_from(answer.status) {
            Ok(ServingStatus::Serving) => Health::Serving,
            Ok(ServingStatus::NotServing) => Health::NotServing,
            Ok(ServingStatus::Unknown | ServingStatus::ServiceUnknown) | Err(_) => Health::Unknown,
        })
    }
}
