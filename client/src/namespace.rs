//! A namespace, opened: makes chains, asks for prefixes, and opens itself again when the server has lost it.

use std::sync::Arc;
use std::time::Duration;

use cairn_core::{
    ErrorKind, Identity, KeyScheme, NamespaceId, PageInputs, PageKey, Result, StopReason, Tier, chain_from_tokens,
};
use cairn_proto::v1;
use parking_lot::Mutex;

use crate::admin::BootId;
use crate::budget::{Budget, passing, repeated};
use crate::fault::Fault;
use crate::options::max_tokens;
use crate::{Chain, Client, MatchOptions};

/// What a server takes in one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most pages in one chain.
    pub chain_pages_max: u64,
    /// Most bytes in one part of a page.
    pub part_bytes_max: u64,
    /// Longest time that a call may take.
    pub timeout_max: Duration,
}

/// A run of pages in one tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierRun {
    /// Where they are.
    pub tier: Tier,
    /// How many there are.
    pub pages: usize,
}

/// The answer of [`Namespace::match_prefix`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Matched {
    /// Pages of the longest reusable prefix, at most those that the request can use.
    pub pages: usize,
    /// Their tokens.
    pub tokens: u64,
    /// The same pages by tier, in prefix order.
    pub runs: Vec<TierRun>,
    /// Pages of the prefix that are there although the request can not use them.
    pub pages_beyond: usize,
    /// The server's estimate of the time until all of `pages` could have been handed over.
    pub ready_in: Duration,
    /// Why the prefix ends there.
    pub stop: StopReason,
}

/// What the server said when it opened the namespace.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) id: NamespaceId,
    pub(crate) limits: Limits,
    pub(crate) boot_id: BootId,
}

impl Opened {
    pub(crate) fn from_wire(wire: v1::OpenNamespaceResponse, identity: &Identity) -> Result<Self, Fault> {
        const CALL: &str = "open_namespace";
        let limits = wire.limits.ok_or_else(|| Fault::protocol(CALL, "no limits"))?;
        if (wire.page_bytes, wire.page_tokens) != (identity.page_bytes, identity.page_tokens) {
            return Err(Fault::protocol(CALL, "page_bytes or page_tokens are not those of the identity"));
        }
        if limits.part_bytes_max == 0 || limits.timeout_ms_max == 0 {
            return Err(Fault::protocol(CALL, "a limit is 0"));
        }
        Ok(Self {
            id: cairn_proto::namespace_id(&wire.namespace_id).map_err(Fault::refused(CALL))?,
            limits: Limits {
                chain_pages_max: limits.chain_pages_max,
                part_bytes_max: limits.part_bytes_max,
                timeout_max: Duration::from_millis(limits.timeout_ms_max),
            },
            boot_id: BootId::from_wire(CALL, &wire.boot_id)?,
        })
    }
}

/// An open namespace. Cheap to clone.
///
/// When the server answers that it does not know the namespace, as it may after a restart, the namespace is opened again and the call
/// repeated, once. If it then has another id (the server has lost its secret, so no page of old can be there), chains made before are
/// refused as `Fenced`: make them again.
#[derive(Clone, Debug)]
pub struct Namespace {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    identity: Identity,
    opened: Mutex<Arc<Opened>>,
    /// Held while opening again, so that many calls that find out at once do it once.
    reopening: tokio::sync::Mutex<()>,
}

impl Namespace {
    pub(crate) fn new(client: Client, identity: Identity, opened: Opened) -> Self {
        let opened = Mutex::new(Arc::new(opened));
        Self { shared: Arc::new(Shared { client, identity, opened, reopening: tokio::sync::Mutex::new(()) }) }
    }

    /// The id under which the server knows it now.
    pub fn id(&self) -> NamespaceId {
        self.opened().id
    }

    /// What it is.
    pub fn identity(&self) -> &Identity {
        &self.shared.identity
    }

    /// What the server takes in one call.
    pub fn limits(&self) -> Limits {
        self.opened().limits
    }

    /// The server process that opened it last.
    pub fn boot_id(&self) -> BootId {
        self.opened().boot_id
    }

    /// The chain of `tokens`, from position 0: one key for each full page; an incomplete last page has none. Computed here (one hash a
    /// page), so that only 32 bytes a page travel.
    ///
    /// # Errors
    /// `Invalid` if the keys of this namespace are an engine's hashes, if `inputs` are not in ascending order of page and within the
    /// chain, or if the chain is longer than the server takes.
    pub fn chain_of_tokens(&self, tokens: &[u32], inputs: &[PageInputs]) -> Result<Chain> {
        self.keyed_by_tokens()?;
        let opened = self.opened();
        let keys = chain_from_tokens(&opened.id, tokens, self.page_tokens(), inputs).map_err(Fault::from)?;
        within(&opened, Chain::of_keys(opened.id, &keys))
    }

    /// The chain of keys that the caller has computed, as [`cairn_core::chain_from_tokens`] does for this namespace's id.
    ///
    /// # Errors
    /// `Invalid` if the keys of this namespace are an engine's hashes, or if the chain is longer than the server takes.
    pub fn chain_of_keys(&self, keys: &[PageKey]) -> Result<Chain> {
        self.keyed_by_tokens()?;
        let opened = self.opened();
        within(&opened, Chain::of_keys(opened.id, keys))
    }

    /// The chain of an engine's own hashes, in prefix order, 16 to 64 bytes each and all of one length.
    ///
    /// # Errors
    /// `Invalid` if this namespace is keyed by tokens, if a hash has another length, or if the chain is longer than the server takes.
    pub fn chain_of_engine_hashes<'a>(&self, hashes: impl IntoIterator<Item = &'a [u8]>) -> Result<Chain> {
        if self.identity().keys == KeyScheme::Tokens {
            return Err(Fault::KeyScheme { wanted: "made of tokens" }.into());
        }
        let opened = self.opened();
        within(&opened, Chain::of_hashes(&opened.id, hashes)?)
    }

    /// The longest reusable prefix of `chain`. Holds nothing: what is there now may be gone when it is asked for. Repeated while the
    /// server is away or overloaded.
    ///
    /// # Errors
    /// `Fenced` if the chain belongs to another namespace id; `Unavailable` or `Deadline` if the server does not answer.
    pub async fn match_prefix(&self, chain: &Chain, options: MatchOptions) -> Result<Matched> {
        let budget = &self.budget("match", options.timeout);
        let answer = self
            .unfenced(budget, chain, passing, |opened, chain| async move {
                let request = v1::MatchRequest {
                    namespace_id: opened.id.as_bytes().to_vec(),
                    chain: Some(chain),
                    max_tokens: max_tokens(options.request_tokens),
                    timeout_ms: budget.timeout_ms(),
                };
                self.client().answer(self.client().calls(0).r#match(request).await)
            })
            .await?;
        Ok(matched(answer)?)
    }

    /// Runs `attempt` as [`repeated`] does, and once more after opening the namespace again if the server does not know it.
    pub(crate) async fn unfenced<T, F: Future<Output = Result<T>>>(
        &self,
        budget: &Budget,
        chain: &Chain,
        may_repeat: impl Fn(&cairn_core::Error) -> bool,
        mut attempt: impl FnMut(Arc<Opened>, v1::Chain) -> F,
    ) -> Result<T> {
        let retries_max = self.client().options().retries_max;
        let opened = self.opened();
        let message = chain.message(opened.id)?;
        let first = repeated(budget, retries_max, &may_repeat, || attempt(opened.clone(), message.clone())).await;
        let Err(error) = first else { return first };
        if error.kind() != ErrorKind::Fenced {
            return Err(error);
        }
        let opened = self.reopen(&opened, budget).await?;
        let message = chain.message(opened.id)?;
        repeated(budget, retries_max, &may_repeat, || attempt(opened.clone(), message.clone())).await
    }

    /// Opens the namespace again, unless another call has done so since `lost` was the state.
    async fn reopen(&self, lost: &Arc<Opened>, budget: &Budget) -> Result<Arc<Opened>> {
        let _reopening = budget.watch(async { Ok(self.shared.reopening.lock().await) }).await?;
        let now = self.opened();
        if !Arc::ptr_eq(&now, lost) {
            return Ok(now);
        }
        let opened = Arc::new(self.client().open(self.identity(), budget).await?);
        *self.shared.opened.lock() = opened.clone();
        Ok(opened)
    }

    pub(crate) fn client(&self) -> &Client {
        &self.shared.client
    }

    pub(crate) fn opened(&self) -> Arc<Opened> {
        self.shared.opened.lock().clone()
    }

    pub(crate) fn page_tokens(&self) -> u32 {
        self.identity().page_tokens
    }

    pub(crate) fn page_bytes(&self) -> usize {
        usize::try_from(self.identity().page_bytes).unwrap_or(usize::MAX)
    }

    /// Starts the time of a call, cut to what the server allows.
    pub(crate) fn budget(&self, call: &'static str, timeout: Option<Duration>) -> Budget {
        let client = self.client();
        let timeout = timeout.unwrap_or(client.options().timeout);
        client.budget(call, Some(timeout.min(self.limits().timeout_max)))
    }

    fn keyed_by_tokens(&self) -> Result<(), Fault> {
        match self.identity().keys {
            KeyScheme::Tokens => Ok(()),
            KeyScheme::EngineHash { .. } => Err(Fault::KeyScheme { wanted: "hashes of the engine" }),
        }
    }
}

fn within(opened: &Opened, chain: Chain) -> Result<Chain> {
    let (pages, pages_max) = (chain.pages(), opened.limits.chain_pages_max);
    if pages as u64 > pages_max { Err(Fault::ChainTooLong { pages, pages_max }.into()) } else { Ok(chain) }
}

fn matched(wire: v1::MatchResponse) -> Result<Matched, Fault> {
    Ok(Matched {
        pages: pages(wire.pages),
        tokens: wire.tokens,
        runs: tier_runs("match", &wire.runs)?,
        pages_beyond: pages(wire.pages_beyond_max_tokens),
        ready_in: Duration::from_micros(wire.ready_in_us),
        stop: v1::StopReason::word(wire.stop).map_err(Fault::refused("match"))?,
    })
}

pub(crate) fn tier_runs(call: &'static str, wire: &[v1::TierRun]) -> Result<Vec<TierRun>, Fault> {
    let run = |run: &v1::TierRun| {
        let tier = v1::Tier::word(run.tier).map_err(Fault::refused(call))?;
        Ok(TierRun { tier, pages: pages(run.pages) })
    };
    wire.iter().map(run).collect()
}

/// A number of pages from the wire. One that does not fit is larger than any chain, and ends as such.
pub(crate) fn pages(wire: u64) -> usize {
    usize::try_from(wire).unwrap_or(usize::MAX)
}
