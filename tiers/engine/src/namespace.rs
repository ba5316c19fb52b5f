//! Namespaces: which there are, whose they are, and what their pages look like.

use std::collections::HashMap;
use std::sync::Arc;

use cairn_core::{Error, ErrorKind, Identity, KeyScheme, NamespaceId, Principal, Result, TenantId};
use cairn_directory::NamespaceNo;
use cairn_pool::TenantNo;
use dashmap::DashMap;

use crate::sync::Mutex;

/// One identity of one tenant, opened.
#[derive(Debug)]
pub struct Namespace {
    id: NamespaceId,
    no: NamespaceNo,
    tenant: TenantId,
    tenant_no: TenantNo,
    identity: Identity,
}

impl Namespace {
    /// The id that names it in every call.
    pub fn id(&self) -> &NamespaceId {
        &self.id
    }

    /// The identity that it was opened with.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Bytes of one page.
    pub fn page_bytes(&self) -> u64 {
        self.identity.page_bytes
    }

    /// Tokens of one page.
    pub fn page_tokens(&self) -> u32 {
        self.identity.page_tokens
    }

    /// What its keys are.
    pub fn key_scheme(&self) -> &KeyScheme {
        &self.identity.keys
    }

    /// The tenant it belongs to.
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    pub(crate) fn no(&self) -> NamespaceNo {
        self.no
    }

    pub(crate) fn tenant_no(&self) -> TenantNo {
        self.tenant_no
    }
}

/// A namespace as an operator sees it.
#[derive(Clone, Debug)]
pub struct NamespaceSummary {
    /// Its id.
    pub id: NamespaceId,
    /// Its identity.
    pub identity: Identity,
    /// Pages in DRAM.
    pub dram_pages: u64,
    /// Pages on the SSD.
    pub ssd_pages: u64,
}

/// Every namespace that is open, or that pages on the SSD name.
#[derive(Debug)]
pub(crate) struct Namespaces {
    known: DashMap<NamespaceId, Known>,
    numbers: Mutex<Numbers>,
    namespaces_max: usize,
}

#[derive(Clone, Debug)]
enum Known {
    Open(Arc<Namespace>),
    /// Named by pages found on the SSD. Nobody sees it until the tenant it belongs to opens it again.
    Found(NamespaceNo),
}

#[derive(Debug, Default)]
struct Numbers {
    namespaces: u32,
    tenants: HashMap<TenantId, TenantNo>,
}

impl Namespaces {
    pub(crate) fn new(namespaces_max: usize) -> Self {
        Self { known: DashMap::new(), numbers: Mutex::default(), namespaces_max }
    }

    /// The number of a namespace that pages on the SSD name.
    pub(crate) fn find_or_number(&self, id: NamespaceId) -> NamespaceNo {
        let mut numbers = self.numbers.lock();
        match self.known.get(&id).map(|known| known.no()) {
            Some(no) => no,
            None => {
                let no = numbers.next_namespace();
                self.known.insert(id, Known::Found(no));
                no
            }
        }
    }

    /// Whether `id` may be opened: it is known, or there is room for one more. Callers that ask at the same moment may overshoot the limit
    /// by their number.
    ///
    /// # Errors
    /// `NoSpace` at the limit of namespaces.
    pub(crate) fn admit(&self, id: &NamespaceId) -> Result<()> {
        if self.known.contains_key(id) || self.known.len() < self.namespaces_max {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::NoSpace,
            format!("the server is at its limit of namespaces namespaces_max={}", self.namespaces_max),
        ))
    }

    /// Makes `id` open, under the number it has or a new one. Does not ask for the limit: what an earlier run has opened stays open.
    pub(crate) fn open(&self, id: NamespaceId, tenant: &TenantId, identity: &Identity) -> Arc<Namespace> {
        let mut numbers = self.numbers.lock();
        let no = match self.known.get(&id).map(|known| known.clone()) {
            Some(Known::Open(namespace)) => return namespace,
            Some(Known::Found(no)) => no,
            None => numbers.next_namespace(),
        };
        let tenant_no = numbers.tenant(tenant);
        let namespace = Arc::new(Namespace { id, no, tenant: tenant.clone(), tenant_no, identity: identity.clone() });
        self.known.insert(id, Known::Open(Arc::clone(&namespace)));
        namespace
    }

    /// The open namespace `id`, if it belongs to `principal`. Another tenant's and an unknown one get the same answer.
    ///
    /// # Errors
    /// `Fenced`: open it (again), then repeat the call.
    pub(crate) fn get(&self, principal: &Principal, id: &NamespaceId) -> Result<Arc<Namespace>> {
        match self.known.get(id).as_deref() {
            Some(Known::Open(namespace)) if namespace.tenant == principal.tenant => Ok(Arc::clone(namespace)),
            _ => Err(Error::new(ErrorKind::Fenced, "the namespace is not open here: open it, then repeat the call")),
        }
    }

    /// The open namespaces of `principal`.
    pub(crate) fn of(&self, principal: &Principal) -> Vec<Arc<Namespace>> {
        let mut found: Vec<_> = self
            .known
            .iter()
            .filter_map(|known| match known.value() {
                Known::Open(namespace) if namespace.tenant == principal.tenant => Some(Arc::clone(namespace)),
                _ => None,
            })
            .collect();
        found.sort_by_key(|namespace| namespace.no.0);
        found
    }

    /// The number of a known namespace.
    pub(crate) fn number(&self, id: &NamespaceId) -> Option<NamespaceNo> {
        self.known.get(id).map(|known| known.no())
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }
}

impl Known {
    fn no(&self) -> NamespaceNo {
        match self {
            Self::Open(namespace) => namespace.no,
            Self::Found(no) => *no,
        }
    }
}

impl Numbers {
    fn next_namespace(&mut self) -> NamespaceNo {
        let no = NamespaceNo(self.namespaces);
        self.namespaces += 1;
        no
    }

    fn tenant(&mut self, tenant: &TenantId) -> TenantNo {
        let next = TenantNo(u32::try_from(self.tenants.len()).unwrap_or(u32::MAX));
        *self.tenants.entry(tenant.clone()).or_insert(next)
    }
}
