//! Match: how much of a chain is there, and where. Takes no hold of anything and counts as no use.

use std::time::Duration;

use cairn_core::{PageKey, Result, StopReason, Tier};

use crate::engine::Engine;
use crate::get::{out_of_order, runs_of};
use crate::namespace::Namespace;

/// The longest reusable prefix of a chain, as it was at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Matched {
    /// Its length in pages; at most what the request can use.
    pub pages: usize,
    /// The same pages by tier, in prefix order.
    pub runs: Vec<(Tier, usize)>,
    /// Pages of the prefix that are there although the request can not use them.
    pub pages_beyond: usize,
    /// Estimated time until all of `pages` could have been handed over.
    pub ready_in: Duration,
    /// Why it ends there.
    pub stop: StopReason,
}

impl Engine {
    /// Matches `chain`, of which a request can use `usable_pages`. One pass under the catalogue's lock; no I/O.
    ///
    /// # Errors
    /// `Invalid` if the chain is longer than the limit, or a known page of it belongs at another position.
    pub fn match_prefix(&self, namespace: &Namespace, chain: &[PageKey], usable_pages: u64) -> Result<Matched> {
        let shared = &self.shared;
        let started = shared.clock.now();
        shared.check_chain(chain)?;
        let tiers: Vec<Tier> = {
            let catalogue = shared.catalogue.lock();
            let found = catalogue.find(namespace.no(), chain, 0).map_err(|fault| out_of_order(&fault))?;
            found
                .iter()
                .filter_map(|id| catalogue.entry(*id))
                .map(|entry| if entry.dram.is_some() { Tier::Dram } else { Tier::Ssd })
                .collect()
        };
        let pages = tiers.len().min(usize::try_from(usable_pages).unwrap_or(usize::MAX));
        let runs = runs_of(tiers[..pages].iter().copied());
        let to_read: usize = runs.iter().filter(|(tier, _)| *tier == Tier::Ssd).map(|(_, pages)| pages).sum();
        shared.metrics.match_seconds.observe(shared.clock.now().since(started).as_secs_f64());
        Ok(Matched {
            pages,
            runs,
            pages_beyond: tiers.len() - pages,
            ready_in: shared.read_pace.estimate(to_read as u64 * namespace.page_bytes()),
            stop: match tiers.len() {
                found if found > pages => StopReason::MaxTokens,
                found if found == chain.len() => StopReason::EndOfChain,
                _ => StopReason::NotStored,
            },
        })
    }
}
