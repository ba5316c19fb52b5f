//! get_prefix: the pages of the longest reusable prefix, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use cairn_core::{Deadline, Error, Moment, PageKey, Result, StopReason, Tier};
use cairn_directory::Entry;
use cairn_pool::{SealedPage, VerifiedPage};
use cairn_ssd::Expected;

use crate::engine::{Engine, Shared};
use crate::load::{self, Loaded, Start, Ticket, Wanted};
use crate::namespace::Namespace;
use crate::reuse;
use crate::sync::timeout;
use crate::values::OutOfOrder;

/// What a get asks for, beyond the chain.
#[derive(Clone, Copy, Debug)]
pub struct GetOptions {
    /// Pages that the caller has already and vouches for: they are neither looked at nor read.
    pub first_page: usize,
    /// Pages of the chain that the request can use ([`cairn_core::usable_pages`]); the rest is not read.
    pub usable_pages: u64,
    /// When the call has ended.
    pub deadline: Deadline,
}

/// One page on its way out: verified a moment ago.
#[derive(Debug)]
pub struct ServedPage {
    /// Position in the chain.
    pub page: usize,
    /// Where it was found.
    pub tier: Tier,
    /// Its bytes.
    pub bytes: VerifiedPage,
}

/// How a get ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GetEnd {
    /// Length of the good prefix in pages, the caller's own first pages included.
    pub good_pages: usize,
    /// Why it ends there.
    pub stop: StopReason,
}

/// A get under way. It holds the DRAM pages and pins the SSD slots that it has still to hand over; dropping it lets go of them.
#[derive(Debug)]
pub struct Get {
    shared: Arc<Shared>,
    namespace: Arc<Namespace>,
    chain: Vec<PageKey>,
    runs: Vec<(Tier, usize)>,
    plan: VecDeque<Planned>,
    /// The next page to hand over.
    next: usize,
    /// Why the prefix ends where the plan ends.
    beyond_plan: StopReason,
    deadline: Deadline,
    started: Moment,
    end: Option<StopReason>,
}

#[derive(Debug)]
enum Planned {
    Dram(SealedPage),
    Ssd(Wanted),
    Loading(Ticket),
    /// In DRAM only when it was planned; let go of while the get had to wait for memory, so it is looked up again at its turn.
    Unheld,
}

impl Engine {
    /// Starts to read the longest reusable prefix of `chain`. One pass under the catalogue's lock finds the pages and takes hold of
    /// them: what is found now will not be evicted before it has been handed over. Does not block on I/O. Must be called within a
    /// runtime.
    ///
    /// # Errors
    /// `Invalid` if the chain is longer than the limit, or a known page of it belongs at another position.
    pub fn get_prefix(&self, namespace: &Arc<Namespace>, chain: Vec<PageKey>, options: GetOptions) -> Result<Get> {
        let shared = &self.shared;
        shared.check_chain(&chain)?;
        let usable = usize::try_from(options.usable_pages).unwrap_or(usize::MAX).min(chain.len());
        let mut plan = VecDeque::new();
        {
            let mut catalogue = shared.catalogue.lock();
            let found = catalogue
                .find(namespace.no(), &chain[..usable], options.first_page)
                .map_err(|fault| out_of_order(&fault))?;
            for id in &found {
                plan.extend(catalogue.entry(*id).and_then(|entry| Planned::of(shared, namespace, entry)));
            }
            catalogue.touch(&found);
        }
        if shared.endurance.looks_at_gets() {
            let found = |page: usize| page.checked_sub(options.first_page).and_then(|at| plan.get(at));
            reuse::note(shared, namespace, &chain, |page| found(page).map(Planned::held));
        }
        let runs = runs_of(plan.iter().map(Planned::tier));
        let found_up_to = options.first_page.saturating_add(plan.len());
        let beyond_plan = match found_up_to {
            end if end >= chain.len() => StopReason::EndOfChain,
            end if end >= usable => StopReason::MaxTokens,
            _ => StopReason::NotStored,
        };
        Ok(Get {
            shared: Arc::clone(shared),
            namespace: Arc::clone(namespace),
            runs,
            plan,
            next: options.first_page.min(chain.len()),
            chain,
            beyond_plan,
            deadline: options.deadline,
            started: shared.clock.now(),
            end: None,
        })
    }
}

impl Get {
    /// The pages that are about to be handed over, by tier, in prefix order.
    pub fn planned_runs(&self) -> &[(Tier, usize)] {
        &self.runs
    }

    /// The next page, verified; `None` at the end of the good prefix ([`Get::end`] says why). Waits for the SSD and for page memory at most
    /// until the deadline. Cancel-safe.
    pub async fn next(&mut self) -> Option<ServedPage> {
        while self.end.is_none() {
            let left = self.deadline.remaining(&*self.shared.clock);
            if left.is_zero() && !self.plan.is_empty() {
                self.stop(StopReason::Deadline);
                break;
            }
            self.look_ahead();
            match self.plan.front_mut() {
                None => self.stop(self.beyond_plan),
                Some(Planned::Dram(page)) => {
                    let page = page.clone();
                    match page.verified() {
                        Ok(bytes) => return Some(self.hand_over(bytes, Tier::Dram)),
                        Err(_) => self.replace_damaged(&page),
                    }
                }
                Some(Planned::Ssd(_)) => {
                    self.let_go_of_later();
                    let (shared, namespace) = (Arc::clone(&self.shared), Arc::clone(&self.namespace));
                    match timeout(left, load::start(&shared, &namespace)).await {
                        Ok(Some(start)) => self.start_front(start),
                        Ok(None) | Err(_) => self.stop(StopReason::NoSpace),
                    }
                }
                Some(Planned::Unheld) => self.look_up_front(),
                Some(Planned::Loading(ticket)) => match timeout(left, ticket.wait()).await {
                    Err(_) => self.stop(StopReason::Deadline),
                    Ok(Loaded::Page(page)) => match page.verified() {
                        Ok(bytes) => return Some(self.hand_over(bytes, Tier::Ssd)),
                        Err(_) => self.replace_damaged(&page),
                    },
                    Ok(Loaded::Damaged) => self.stop(StopReason::Damaged),
                    Ok(Loaded::ReadFailed) => self.stop(StopReason::ReadFailed),
                },
            }
        }
        None
    }

    /// Ends the get because its deadline has passed while its reader was busy elsewhere. Lets go of everything.
    pub fn cut(&mut self) -> GetEnd {
        if self.end.is_none() {
            self.stop(StopReason::Deadline);
        }
        self.end()
    }

    /// How the get ended; before [`Get::next`] has returned `None`, how it would end if the deadline passed now.
    pub fn end(&self) -> GetEnd {
        GetEnd { good_pages: self.next, stop: self.end.unwrap_or(StopReason::Deadline) }
    }

    fn hand_over(&mut self, bytes: VerifiedPage, tier: Tier) -> ServedPage {
        self.plan.pop_front();
        let page = self.next;
        self.next += 1;
        let metrics = &self.shared.metrics;
        metrics.get_pages.of(tier).inc();
        metrics.get_bytes.inc_by(self.namespace.page_bytes());
        ServedPage { page, tier, bytes }
    }

    fn stop(&mut self, reason: StopReason) {
        self.plan.clear();
        self.end = Some(reason);
        let metrics = &self.shared.metrics;
        metrics.get_stops.of(reason).inc();
        metrics.get_seconds.observe(self.shared.clock.now().since(self.started).as_secs_f64());
    }

    /// Starts loads of the next pages on the SSD, in order, within the window and as long as that needs no waiting.
    fn look_ahead(&mut self) {
        let window = (self.shared.settings.load_window_bytes / self.namespace.page_bytes().max(1)).max(1);
        let mut loading = 0;
        for planned in &mut self.plan {
            if loading >= window {
                break;
            }
            match planned {
                Planned::Dram(_) | Planned::Unheld => continue,
                Planned::Loading(_) => {}
                Planned::Ssd(wanted) => match load::join(&self.shared, &self.namespace, wanted) {
                    Some(ticket) => *planned = Planned::Loading(ticket),
                    None => match load::start_now(&self.shared, &self.namespace) {
                        Some(start) => planned.load(&self.shared, &self.namespace, start),
                        None => break,
                    },
                },
            }
            loading += 1;
        }
    }

    fn start_front(&mut self, start: Start) {
        if let Some(front) = self.plan.front_mut() {
            front.load(&self.shared, &self.namespace, start);
        }
    }

    /// The next page must wait for memory: meanwhile no memory is held for the pages after it. Those on the SSD stay held there.
    fn let_go_of_later(&mut self) {
        let catalogue = self.shared.catalogue.lock();
        for (at, planned) in self.plan.iter_mut().enumerate().skip(1) {
            if matches!(planned, Planned::Dram(_) | Planned::Loading(_)) {
                let entry = self.chain.get(self.next + at).and_then(|key| catalogue.entry_of(self.namespace.no(), key));
                let on_ssd = entry.and_then(|entry| Planned::on_ssd(&self.shared, &self.namespace, entry));
                *planned = on_ssd.unwrap_or(Planned::Unheld);
            }
        }
    }

    /// The next page was let go of while the get waited for memory: it is still there, or the prefix ends here for want of memory.
    fn look_up_front(&mut self) {
        let again = {
            let catalogue = self.shared.catalogue.lock();
            let entry = self.chain.get(self.next).and_then(|key| catalogue.entry_of(self.namespace.no(), key));
            entry.and_then(|entry| Planned::of(&self.shared, &self.namespace, entry))
        };
        match (again, self.plan.front_mut()) {
            (Some(again), Some(front)) => *front = again,
            _ => self.stop(StopReason::NoSpace),
        }
    }

    /// A page in DRAM is damaged: it is dropped, and read from the SSD if it is there.
    fn replace_damaged(&mut self, damaged: &SealedPage) {
        let key = self.chain[self.next];
        self.shared.drop_damaged_in_dram(self.namespace.no(), &key, damaged);
        let again = {
            let catalogue = self.shared.catalogue.lock();
            catalogue
                .entry_of(self.namespace.no(), &key)
                .and_then(|entry| Planned::of(&self.shared, &self.namespace, entry))
        };
        match (again, self.plan.front_mut()) {
            (Some(again), Some(front)) => *front = again,
            _ => self.stop(StopReason::Damaged),
        }
    }
}

impl Planned {
    fn of(shared: &Shared, namespace: &Namespace, entry: &Entry<SealedPage>) -> Option<Self> {
        if let Some(page) = &entry.dram {
            return Some(Self::Dram(page.clone()));
        }
        Self::on_ssd(shared, namespace, entry)
    }

    fn on_ssd(shared: &Shared, namespace: &Namespace, entry: &Entry<SealedPage>) -> Option<Self> {
        let slot = entry.ssd?;
        Some(Self::Ssd(Wanted {
            pin: shared.tier.pin(slot),
            expected: Expected {
                namespace: *namespace.id(),
                key: entry.key,
                generation: entry.generation,
                checksum: entry.checksum,
                payload_bytes: namespace.page_bytes(),
            },
        }))
    }

    /// Starts the load of a page on the SSD; the wanted page moves into it.
    fn load(&mut self, shared: &Arc<Shared>, namespace: &Arc<Namespace>, start: Start) {
        match std::mem::replace(self, Self::Loading(Ticket::answered(Loaded::ReadFailed))) {
            Self::Ssd(wanted) => *self = Self::Loading(load::load(shared, namespace, wanted, start)),
            other => *self = other,
        }
    }

    fn held(&self) -> Option<&SealedPage> {
        match self {
            Self::Dram(page) => Some(page),
            Self::Ssd(_) | Self::Loading(_) | Self::Unheld => None,
        }
    }

    fn tier(&self) -> Tier {
        match self {
            Self::Dram(_) => Tier::Dram,
            Self::Ssd(_) | Self::Loading(_) | Self::Unheld => Tier::Ssd,
        }
    }
}

/// Runs of equal tiers.
pub(crate) fn runs_of(tiers: impl Iterator<Item = Tier>) -> Vec<(Tier, usize)> {
    let mut runs: Vec<(Tier, usize)> = Vec::new();
    for tier in tiers {
        match runs.last_mut() {
            Some((last, pages)) if *last == tier => *pages += 1,
            _ => runs.push((tier, 1)),
        }
    }
    runs
}

pub(crate) fn out_of_order(fault: &OutOfOrder) -> Error {
    Error::invalid(format!("key list out of order: the page belongs at another place of its chain page={}", fault.page))
}
