//! put_prefix: reserve, bytes, seal, commit, page by page.
//!
//! A page is visible to everyone when [`Put::commit`] returns [`PageOutcome::Stored`], and to no one before. A put that is dropped
//! half way leaves the pages that it committed, which are whole and a prefix, and nothing else. Two puts of one page do not wait for
//! each other: who seals first stores it, the other finds it present.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use cairn_core::metrics::{Put as PutLabel, Skipped};
use cairn_core::{
    Checksum, Deadline, Durability, Error, KeptOff, Moment, NotStored, PageKey, PageOutcome, Result, Tier,
};
use cairn_policy::Link;
use cairn_pool::{PageBufMut, SealedPage};
use cairn_ssd::ReadPin;

use crate::endurance::{Admitted, fingerprint};
use crate::engine::{Engine, Shared};
use crate::get::out_of_order;
use crate::namespace::Namespace;
use crate::room;
use crate::sync::{oneshot, timeout};
use crate::values::{PageName, Published};
use crate::write_queue::{Acknowledge, Offered, WriteJob};

/// Longest wait of a put for one frame, unless it must be durable: far longer than the SSD takes for a batch.
const MEMORY_PATIENCE: Duration = Duration::from_secs(1);

/// A put under way. Dropping it gives back everything that was not committed.
#[derive(Debug)]
pub struct Put {
    shared: Arc<Shared>,
    namespace: Arc<Namespace>,
    chain: Vec<PageKey>,
    asked: Durability,
    deadline: Deadline,
    started: Moment,
    outcomes: Vec<Option<PageOutcome>>,
    /// Present pages that a needed page follows: they stay while memory lasts, so that the needed page finds its parent.
    held: Vec<Held>,
    /// The page committed last, the next one's parent: likewise.
    last: Option<SealedPage>,
    /// Pages on their way to the SSD, and where the answer will come.
    pending: Vec<(usize, oneshot::Receiver<bool>)>,
    /// Pages that the write queue had no room for yet; in prefix order.
    postponed: VecDeque<usize>,
    /// What is to be on the SSD of the chain, and the charge of those of its pages that were not offered yet.
    admitted: Admitted,
    /// The write queue had no room for a page that nobody waits for: what follows it can not be written either.
    overtaken: bool,
}

#[derive(Debug)]
#[expect(dead_code, reason = "held for the sake of being held")]
enum Held {
    Dram(SealedPage),
    Ssd(ReadPin),
}

/// What a put achieved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PutReport {
    /// What became of each page of the chain.
    pub outcomes: Vec<PageOutcome>,
    /// Pages from 0 on that are there, without a gap.
    pub good_pages: usize,
    /// The class that all good pages have reached; never more than was reached.
    pub durability: Durability,
    /// Why admission kept pages of the chain off the SSD, if it kept any.
    pub kept_off: Option<KeptOff>,
}

impl Engine {
    /// Starts a put of pages of `chain`. Takes no page memory yet.
    ///
    /// # Errors
    /// `Invalid` if the chain is empty, longer than the limit, names a page twice or has a known page at another position.
    pub fn begin_put(
        &self,
        namespace: &Arc<Namespace>,
        chain: Vec<PageKey>,
        asked: Durability,
        deadline: Deadline,
    ) -> Result<Put> {
        let shared = &self.shared;
        shared.check_chain(&chain)?;
        if chain.is_empty() {
            return Err(Error::invalid("the chain is empty: a put needs at least one full page"));
        }
        let mut seen = HashSet::with_capacity(chain.len());
        if let Some(page) = chain.iter().position(|key| !seen.insert(*key)) {
            return Err(Error::invalid(format!(
                "key list out of order or repeated: a page is named twice page={page}"
            )));
        }
        let mut put = Put {
            shared: Arc::clone(shared),
            namespace: Arc::clone(namespace),
            outcomes: vec![None; chain.len()],
            chain,
            asked,
            deadline,
            started: shared.clock.now(),
            held: Vec::new(),
            last: None,
            pending: Vec::new(),
            postponed: VecDeque::new(),
            admitted: Admitted { pages: 0, charge: shared.endurance.nothing(), kept_off: None },
            overtaken: false,
        };
        put.find_present()?;
        Ok(put)
    }
}

impl Put {
    /// Runs of pages whose bytes are needed; the others are there already.
    pub fn needed(&self) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for page in (0..self.chain.len()).filter(|page| self.outcomes[*page].is_none()) {
            match runs.last_mut() {
                Some(run) if run.end == page => run.end += 1,
                _ => runs.push(page..page + 1),
            }
        }
        runs
    }

    /// Whether the bytes of `page` are still wanted. False for a page beyond the chain.
    pub fn wants(&self, page: usize) -> bool {
        self.outcomes.get(page).is_some_and(Option::is_none)
    }

    /// What is known of `page` so far.
    pub fn outcome(&self, page: usize) -> Option<PageOutcome> {
        self.outcomes.get(page).copied().flatten()
    }

    /// Takes page memory for `page`; waits for it, at most until the put's deadline. Cancel-safe.
    ///
    /// # Errors
    /// Why the page will not be stored; that is its outcome from now on, so its bytes need not be sent.
    pub async fn reserve(&mut self, page: usize) -> Result<PageBufMut, NotStored> {
        if !self.parent_is_there(page) {
            return Err(self.give_up(page, NotStored::ParentMissing));
        }
        let parent = page.checked_sub(1).and_then(|parent| self.chain.get(parent)).copied();
        if let Some(frame) = room::frame_now(&self.shared, &self.namespace, parent) {
            return Ok(frame);
        }
        // Who waits for memory holds none: puts that wait for each other's pages would wait until their deadlines. Only others may evict
        // the parent now.
        self.last = None;
        self.held.clear();
        let (shared, namespace, patience) = (Arc::clone(&self.shared), Arc::clone(&self.namespace), self.patience());
        let frame = tokio::select! {
            biased;
            frame = room::frame(&shared, &namespace, parent, patience) => frame,
            // Pages of this very put may have to reach the SSD before any memory comes free.
            () = self.keep_sending() => None,
        };
        match frame {
            Some(frame) => Ok(frame),
            None => Err(self.give_up(page, NotStored::NoSpace)),
        }
    }

    /// Seals the bytes of `page` and makes them visible. `claimed` is the checksum that came with them. Does not block.
    pub fn commit(&mut self, page: usize, frame: PageBufMut, claimed: Checksum) -> PageOutcome {
        let Ok(sealed) = frame.seal(claimed) else {
            return PageOutcome::NotStored(self.give_up(page, NotStored::ChecksumMismatch));
        };
        let Some(name) = self.name(page) else {
            return PageOutcome::NotStored(NotStored::NotSent);
        };
        let published = self.shared.catalogue.lock().publish(&name, sealed.clone());
        let outcome = match published {
            Published::ParentMissing => {
                return PageOutcome::NotStored(self.give_up(page, NotStored::ParentMissing));
            }
            Published::Present(found) => {
                self.last = found;
                PageOutcome::Present(Durability::Memory)
            }
            Published::Stored => {
                self.shared.metrics.put_bytes.inc_by(self.namespace.page_bytes());
                self.last = Some(sealed);
                PageOutcome::Stored(Durability::Memory)
            }
        };
        self.outcomes[page] = Some(outcome);
        self.send_to_ssd(page);
        self.outcomes[page].unwrap_or(outcome)
    }

    /// Ends the put: waits until every page that must be durable is, or the deadline has passed.
    pub async fn finish(mut self) -> PutReport {
        let unsent = if self.deadline.passed(&*self.shared.clock) { NotStored::Deadline } else { NotStored::NotSent };
        self.send_postponed().await;
        for (page, answered) in std::mem::take(&mut self.pending) {
            let left = self.deadline.remaining(&*self.shared.clock);
            if matches!(timeout(left, answered).await, Ok(Ok(true))) {
                self.now_durable(page);
            }
        }
        let outcomes: Vec<PageOutcome> =
            self.outcomes.iter().map(|outcome| outcome.unwrap_or(PageOutcome::NotStored(unsent))).collect();
        self.count(&outcomes);
        let reached: Vec<Durability> = outcomes.iter().map_while(|outcome| reached(*outcome)).collect();
        PutReport {
            good_pages: reached.len(),
            durability: reached.into_iter().min().unwrap_or(Durability::Memory),
            kept_off: self.admitted.kept_off,
            outcomes,
        }
    }

    fn find_present(&mut self) -> Result<()> {
        let mut to_ssd = Vec::new();
        let mut links = Vec::with_capacity(self.chain.len());
        let mut before = None;
        {
            let mut catalogue = self.shared.catalogue.lock();
            let leading = catalogue.find(self.namespace.no(), &self.chain, 0).map_err(|fault| out_of_order(&fault))?;
            catalogue.touch(&leading);
            let each = catalogue.find_each(self.namespace.no(), &self.chain).map_err(|fault| out_of_order(&fault))?;
            for (page, entry) in each.into_iter().enumerate() {
                let place =
                    entry.and_then(|entry| entry.ssd.map(|_| Tier::Ssd).or(entry.dram.as_ref().map(|_| Tier::Dram)));
                links.push(Link { page: fingerprint(&self.chain[page]), place });
                let (held, durability) = match entry.map(|entry| (&entry.dram, entry.ssd)) {
                    None | Some((None, None)) => {
                        self.held.extend(before.take());
                        continue;
                    }
                    Some((Some(page), None)) => (Held::Dram(page.clone()), Durability::Memory),
                    Some((_, Some(slot))) => (Held::Ssd(self.shared.tier.pin(slot)), Durability::Ssd),
                };
                if durability == Durability::Memory {
                    to_ssd.push(page);
                }
                self.outcomes[page] = Some(PageOutcome::Present(durability));
                before = Some(held);
            }
        }
        // A page that the write queue had no room for earlier gets another chance: without it, nothing after it can be written.
        self.admitted = self.shared.endurance.put(&self.namespace, &links, self.asked);
        for page in to_ssd {
            self.send_to_ssd(page);
        }
        Ok(())
    }

    fn name(&self, page: usize) -> Option<PageName> {
        Some(PageName {
            namespace: self.namespace.no(),
            key: *self.chain.get(page)?,
            parent: page.checked_sub(1).map(|parent| self.chain[parent]),
            position: u32::try_from(page).ok()?,
        })
    }

    fn parent_is_there(&self, page: usize) -> bool {
        let Some(parent) = page.checked_sub(1) else { return true };
        let catalogue = self.shared.catalogue.lock();
        catalogue
            .entry_of(self.namespace.no(), &self.chain[parent])
            .is_some_and(|entry| entry.dram.is_some() || entry.ssd.is_some())
    }

    /// How long the put waits for memory. If it must be durable, the SSD makes room at its pace, and the put goes at that pace. Else it is
    /// not worth waiting for: nothing may be leaving at all.
    fn patience(&self) -> Deadline {
        match self.asked {
            Durability::Ssd => self.deadline,
            Durability::Memory => self.deadline.min(Deadline::after(&*self.shared.clock, MEMORY_PATIENCE)),
        }
    }

    fn give_up(&mut self, page: usize, why: NotStored) -> NotStored {
        if let Some(outcome) = self.outcomes.get_mut(page) {
            *outcome = Some(PageOutcome::NotStored(why));
        }
        why
    }

    /// Offers a page that is in DRAM to the write queue, if it is admitted. One that must be durable and finds no room is kept for later, and
    /// so are those that follow it.
    fn send_to_ssd(&mut self, page: usize) {
        if page >= self.admitted.pages {
            return;
        }
        match self.asked {
            Durability::Memory => {
                // Without the pages ahead of it, it would not be written.
                self.overtaken = self.overtaken || !self.offer(page);
                if self.overtaken {
                    self.shared.metrics.ssd_skipped.of(Skipped::QueueFull).inc();
                }
            }
            Durability::Ssd => {
                self.postponed.push_back(page);
                self.send_what_fits();
            }
        }
    }

    /// Offers the postponed pages, in order, up to the first for which there is no room.
    fn send_what_fits(&mut self) {
        while let Some(page) = self.postponed.front().copied() {
            if !self.offer(page) {
                return;
            }
            self.postponed.pop_front();
        }
    }

    /// False if the write queue has no room for the page. Nothing is to be written if it is on the SSD already, or has left DRAM.
    fn offer(&mut self, page: usize) -> bool {
        let Some(name) = self.name(page) else { return true };
        let (on_ssd, in_dram) = {
            let catalogue = self.shared.catalogue.lock();
            let entry = catalogue.entry_of(name.namespace, &name.key);
            entry.map_or((false, None), |entry| (entry.ssd.is_some(), entry.dram.clone()))
        };
        if on_ssd {
            self.now_durable(page);
            return true;
        }
        let Some(sealed) = in_dram else { return true };
        let (acknowledge, answered): (Option<Acknowledge>, _) = match self.asked {
            Durability::Memory => (None, None),
            Durability::Ssd => {
                let (send, receive) = oneshot::channel();
                (Some(send), Some(receive))
            }
        };
        let charge = self.admitted.charge.of_page(&self.namespace);
        let since = self.shared.clock.now();
        let job = WriteJob { name, namespace: *self.namespace.id(), page: sealed, charge, since };
        match self.shared.queue.offer(job, acknowledge, &self.shared.metrics) {
            Offered::Taken => self.pending.extend(answered.map(|answered| (page, answered))),
            Offered::Full(mut charge) => {
                self.admitted.charge.add(&mut charge);
                return false;
            }
            Offered::NotYet => self.shared.metrics.ssd_skipped.of(Skipped::Rebuilding).inc(),
            Offered::Closed => {}
        }
        true
    }

    /// Offers the postponed pages as the queue takes them; never ends.
    async fn keep_sending(&mut self) {
        self.send_postponed().await;
        std::future::pending().await
    }

    /// Offers the postponed pages as the queue takes them, until the deadline. Cancel-safe.
    async fn send_postponed(&mut self) {
        let shared = Arc::clone(&self.shared);
        loop {
            let mut room = std::pin::pin!(shared.queue.room());
            room.as_mut().enable();
            self.send_what_fits();
            let left = self.deadline.remaining(&*shared.clock);
            if self.postponed.is_empty() || left.is_zero() || timeout(left, room).await.is_err() {
                return;
            }
        }
    }

    fn now_durable(&mut self, page: usize) {
        self.outcomes[page] = match self.outcomes[page] {
            Some(PageOutcome::Stored(_)) => Some(PageOutcome::Stored(Durability::Ssd)),
            Some(PageOutcome::Present(_)) => Some(PageOutcome::Present(Durability::Ssd)),
            other => other,
        };
    }

    fn count(&self, outcomes: &[PageOutcome]) {
        let metrics = &self.shared.metrics;
        for outcome in outcomes {
            match outcome {
                PageOutcome::Stored(_) => metrics.put_pages.of(PutLabel::Stored).inc(),
                PageOutcome::Present(_) => metrics.put_pages.of(PutLabel::Present).inc(),
                PageOutcome::NotStored(why) => metrics.put_not_stored.of(*why).inc(),
            }
        }
        metrics.put_seconds.observe(self.shared.clock.now().since(self.started).as_secs_f64());
    }
}

/// The class that a page has reached; `None` if it is not there.
fn reached(outcome: PageOutcome) -> Option<Durability> {
    match outcome {
        PageOutcome::Stored(durability) | PageOutcome::Present(durability) => Some(durability),
        PageOutcome::NotStored(_) => None,
    }
}
