//! What is written to the SSD, and the account of it.
//!
//! A put asks once for its whole chain ([`Endurance::put`]); the [admission](cairn_policy::Admission) decides, and the [budget](Budget) holds
//! the upper bound of what the pages will cost. What is held travels with the pages as a [`Charge`], through the write queue to the writer; a
//! page that is dropped on the way gives its charge back by being dropped.
//!
//! The SSD tier counts every byte at the one place where writes begin ([`SsdTier::written_bytes`]), whoever writes, and whatever comes of it.
//! The writer thread, the only one that writes, takes a charge before it does, and [settles](Endurance::settle) it when nothing of it is
//! under way any more: all that the tier has counted since the last settlement is written off. So each byte is on the account exactly once,
//! and its place in the bucket is held for as long as it may be on its way. What can not be refused [is charged](Endurance::demand) too.
//!
//! What the directory writes is not seen here. A page pays, when it is written, for its record and for the removal of it; whoever else
//! changes the directory says so.
//!
//! The ledger survives a crash without a byte gained: before the writer writes, the directory remembers the bucket as if that much, and
//! some more, had been written already. A crash loses what of it had not been; an orderly close loses nothing.
//!
//! The state's lock is taken last: nothing is called while it is held. Who writes the ledger has the turn: an older one never overwrites a
//! later one.

use std::sync::Arc;
use std::time::Duration;

use cairn_core::metrics::Metrics;
use cairn_core::{Clock, Durability, KeptOff, Moment, PageKey, Result};
use cairn_directory::{Directory, DirectoryError};
use cairn_policy::{Admission, Budget, Ledger, Link, Plan, WritePolicy};
use cairn_ssd::SsdTier;
use tracing::warn;

use crate::namespace::Namespace;
use crate::recovery::{OpenMode, Recovery};
use crate::sync::Mutex;

/// Everything is written in blocks of this size.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// One record of 256 bytes, framed, put and removed, 16 times: RocksDB writes it to its log and to a table, and compacts it down two
/// levels (docs/decisions/0007).
pub(crate) const RECORD_BYTES: u64 = 16 * 256;
/// A synced write to RocksDB's log writes the log's last block again.
const LOG_BYTES: u64 = BLOCK_BYTES;
/// A change of the directory that is no page's.
pub(crate) const COMMIT_BYTES: u64 = RECORD_BYTES + LOG_BYTES;
/// What a page costs besides its slot in any case: its record, and the log's block when it is removed.
const PAGE_EXTRA_BYTES: u64 = RECORD_BYTES + LOG_BYTES;
/// What it may cost beyond that: the log's block when it is put, its region's header, both superblocks.
const PAGE_RISK_BYTES: u64 = LOG_BYTES + BLOCK_BYTES + 2 * BLOCK_BYTES;
/// The ledger's own record.
const LEDGER_BYTES: u64 = 2 * RECORD_BYTES + LOG_BYTES;
/// A namespace's record, with an identity of a few kilobytes.
pub(crate) const NAMESPACE_BYTES: u64 = 16 * BLOCK_BYTES;

/// How much is remembered as written ahead of the writer: this part of the bucket, ...
const AHEAD_SHARE: u64 = 1024;
/// ... not less than so much, and not more.
const AHEAD_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 30;
/// The ledger is remembered at least this often, so that what was earned in quiet times survives a crash.
pub(crate) const REMEMBER_INTERVAL: Duration = Duration::from_secs(600);

/// Admission and budget. Shared by all puts, gets and the writer.
#[derive(Debug)]
pub(crate) struct Endurance {
    state: Mutex<State>,
    /// Held while the ledger is written.
    turn: Mutex<()>,
    tier: Arc<SsdTier>,
    looks_at_gets: bool,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct State {
    admission: Admission,
    budget: Budget,
    /// Bytes that the tier had counted at the last settlement.
    counted_bytes: u64,
    /// Bytes that may be written before the ledger must be remembered again.
    covered_bytes: u64,
    remembered: Moment,
}

/// Budget held for pages on their way to the SSD. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Endurance>,
    bytes: u64,
}

/// What is to be written of a chain.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// Pages from the head on.
    pub(crate) pages: usize,
    /// What they may cost.
    pub(crate) charge: Charge,
    /// Why others stay off the SSD.
    pub(crate) kept_off: Option<KeptOff>,
}

/// The write budget and what was written, at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct BudgetStats {
    /// The write policy in effect.
    pub policy: WritePolicy,
    /// The plan; `None` if nothing limits what is written.
    pub plan: Option<Plan>,
    /// Bytes that may be written at once; below 0 if they are owed.
    pub level_bytes: i64,
    /// Bytes held for pages on their way.
    pub held_bytes: u64,
    /// Physical bytes written in the last 24 hours of running.
    pub day_bytes: u64,
    /// Physical bytes a day at that pace.
    pub pace_day_bytes: u64,
    /// Physical bytes written since the ledger was begun.
    pub written_bytes: u64,
    /// Seconds of running that the ledger covers.
    pub running_seconds: u64,
}

impl Endurance {
    /// Opens the account with what `directory` remembers, and charges what opening the tier and `recovery` cost. Blocks on a write to the
    /// directory.
    pub(crate) fn open(
        policy: WritePolicy,
        plan: Option<Plan>,
        directory: &dyn Directory,
        tier: Arc<SsdTier>,
        recovery: &Recovery,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Self>> {
        let ledger = match directory.ledger() {
            Ok(Some(ledger)) => ledger,
            Ok(None) if recovery.mode == OpenMode::Fresh => Ledger::of_new_device(plan.as_ref()),
            Ok(None) => Ledger::default(),
            Err(DirectoryError::Damaged { .. }) => {
                warn!("the ledger of what was written to the SSD is damaged; the write budget starts empty");
                Ledger::default()
            }
            Err(failed) => return Err(failed.into()),
        };
        let now = clock.now();
        let budget = Budget::open(plan, ledger, now);
        let admission = Admission::new(policy, plan.is_some());
        let looks_at_gets = admission.looks_at_gets();
        let state = State { admission, budget, counted_bytes: 0, covered_bytes: 0, remembered: now };
        let (state, turn) = (Mutex::new(state), Mutex::new(()));
        let opened = Arc::new(Self { state, turn, tier, looks_at_gets, clock, metrics });
        opened.settle(&mut opened.nothing(), recovery.changed_records * RECORD_BYTES);
        opened.remember(directory, false)?;
        Ok(opened)
    }

    /// A put of a chain. `links` says where its pages are.
    pub(crate) fn put(self: &Arc<Self>, namespace: &Namespace, links: &[Link], asked: Durability) -> Admitted {
        let verdict = {
            let State { admission, budget, .. } = &mut *self.state.lock();
            admission.put(links, page_bound_bytes(namespace), asked, budget, self.clock.now())
        };
        self.metrics.ssd_admitted_pages.inc_by(verdict.admitted_pages);
        let kept_off = (verdict.refused_pages > 0).then_some(verdict.refused);
        if let Some(reason) = kept_off {
            self.metrics.ssd_refused_pages.of(reason).inc_by(verdict.refused_pages);
            self.metrics.ssd_refused_bytes.of(reason).inc_by(verdict.refused_pages * namespace.page_bytes());
            if asked >= Durability::Ssd {
                self.metrics.put_not_durable.inc_by(verdict.refused_pages);
            }
        }
        Admitted { pages: verdict.pages, charge: self.charge(verdict.held_bytes), kept_off }
    }

    /// Whether [`Endurance::get`] has anything to say.
    pub(crate) fn looks_at_gets(&self) -> bool {
        self.looks_at_gets
    }

    /// A get of a chain: what it uses a second time may deserve to be written now.
    pub(crate) fn get(self: &Arc<Self>, namespace: &Namespace, links: &[Link]) -> Admitted {
        let verdict = {
            let State { admission, budget, .. } = &mut *self.state.lock();
            admission.get(links, page_bound_bytes(namespace), budget, self.clock.now())
        };
        self.metrics.ssd_admitted_pages.inc_by(verdict.admitted_pages);
        Admitted { pages: verdict.pages, charge: self.charge(verdict.held_bytes), kept_off: None }
    }

    /// Takes `bytes` for writes that can not be refused.
    pub(crate) fn demand(self: &Arc<Self>, bytes: u64) -> Charge {
        self.state.lock().budget.claim(bytes, self.clock.now());
        self.charge(bytes)
    }

    /// How many pages of `page_bytes`, up to `pages_max`, the budget has room for now.
    pub(crate) fn affordable_pages(&self, page_bytes: u64, pages_max: u64) -> u64 {
        let available = self.state.lock().budget.available_bytes(self.clock.now());
        available.map_or(pages_max, |bytes| (bytes / page_cost_bytes(page_bytes)).min(pages_max))
    }

    /// Takes what writing pages of these sizes may cost; `None` if the budget does not have it.
    pub(crate) fn afford(self: &Arc<Self>, pages_bytes: impl Iterator<Item = u64>) -> Option<Charge> {
        let bytes = pages_bytes.map(page_cost_bytes).sum();
        let held = self.state.lock().budget.hold(bytes, self.clock.now());
        held.then(|| self.charge(bytes))
    }

    /// Makes sure that the directory remembers `charged_bytes` as written, before they are. Blocks on a write to the directory, seldom.
    pub(crate) fn cover(&self, directory: &dyn Directory, charged_bytes: u64) -> Result<()> {
        let _turn = self.turn.lock();
        {
            let mut state = self.state.lock();
            let is_recent = self.clock.now().since(state.remembered) < REMEMBER_INTERVAL;
            if is_recent && state.covered_bytes >= charged_bytes {
                state.covered_bytes -= charged_bytes;
                return Ok(());
            }
        }
        self.remember(directory, charged_bytes > 0)?;
        let mut state = self.state.lock();
        state.covered_bytes = state.covered_bytes.saturating_sub(charged_bytes);
        Ok(())
    }

    /// Makes the directory remember the account as it is, now that nothing is under way but the superblocks that say so. Blocks on a write
    /// to the directory.
    pub(crate) fn close(self: &Arc<Self>, directory: &dyn Directory) -> Result<()> {
        self.state.lock().budget.spend(2 * BLOCK_BYTES, self.clock.now());
        self.settle(&mut self.nothing(), 0);
        let _turn = self.turn.lock();
        self.remember(directory, false)
    }

    /// Makes the directory remember the ledger. `ahead`: more is about to be written. For who has the turn.
    fn remember(&self, directory: &dyn Directory, ahead: bool) -> Result<()> {
        let (ledger, covered_bytes, now) = {
            let state = &mut *self.state.lock();
            let now = self.clock.now();
            state.budget.spend(LEDGER_BYTES, now);
            let ahead_bytes = if ahead { state.ahead_bytes() } else { 0 };
            (state.budget.ledger(ahead_bytes), state.budget.held_bytes() + ahead_bytes, now)
        };
        directory.save_ledger(&ledger)?;
        let mut state = self.state.lock();
        state.covered_bytes = covered_bytes;
        state.remembered = now;
        Ok(())
    }

    /// Settles the charge of a batch with so many pages in its directory commit.
    pub(crate) fn settle_batch(&self, charge: &mut Charge, pages: usize) {
        let directory_bytes = if pages == 0 { 0 } else { pages as u64 * PAGE_EXTRA_BYTES + LOG_BYTES };
        self.settle(charge, directory_bytes);
    }

    /// Settles a charge by what the tier has counted since the last settlement, and by what was handed to the directory. For the writer
    /// thread, when nothing that it began is under way.
    pub(crate) fn settle(&self, charge: &mut Charge, directory_bytes: u64) {
        let wipes_bytes = self.tier.taken().saturating_mul(BLOCK_BYTES);
        let held_bytes = std::mem::take(&mut charge.bytes);
        let counted_bytes = self.tier.written_bytes();
        let state = &mut *self.state.lock();
        let written_bytes = counted_bytes.saturating_sub(state.counted_bytes) + directory_bytes;
        state.counted_bytes = counted_bytes;
        state.budget.settle(held_bytes, written_bytes, self.clock.now());
        // One day all pages may have to be wiped, spent budget or not.
        state.budget.keep(wipes_bytes);
    }

    /// No charge.
    pub(crate) fn nothing(self: &Arc<Self>) -> Charge {
        self.charge(0)
    }

    /// Takes a snapshot, and sets the gauges in the metrics by it.
    pub(crate) fn stats(&self) -> BudgetStats {
        let stats = {
            let state = &mut *self.state.lock();
            // Lets time pass up to now.
            state.budget.spend(0, self.clock.now());
            let budget = &state.budget;
            BudgetStats {
                policy: state.admission.policy(),
                plan: budget.plan().copied(),
                level_bytes: budget.level_bytes(),
                held_bytes: budget.held_bytes(),
                day_bytes: budget.day_bytes(),
                pace_day_bytes: budget.pace_day_bytes(),
                written_bytes: budget.written_bytes(),
                running_seconds: budget.running_seconds(),
            }
        };
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.metrics.budget_level_bytes.set(stats.level_bytes);
        self.metrics.budget_bucket_bytes.set(gauge(stats.plan.map_or(0, |plan| plan.bucket_bytes())));
        self.metrics.budget_day_bytes.set(gauge(stats.plan.map_or(0, |plan| plan.day_bytes())));
        self.metrics.wear_day_bytes.set(gauge(stats.day_bytes));
        self.metrics.wear_bytes.set(gauge(stats.written_bytes));
        stats
    }

    fn charge(self: &Arc<Self>, bytes: u64) -> Charge {
        Charge { account: Arc::clone(self), bytes }
    }
}

impl State {
    fn ahead_bytes(&self) -> u64 {
        let (least, most) = AHEAD_BYTES.into_inner();
        self.budget.plan().map_or(most, |plan| {
            let share = (plan.bucket_bytes() / AHEAD_SHARE).clamp(least, most);
            share.min(u64::try_from(self.budget.level_bytes()).unwrap_or(0))
        })
    }
}

impl Charge {
    /// Takes the charge of one page off it.
    pub(crate) fn of_page(&mut self, namespace: &Namespace) -> Self {
        let bytes = page_bound_bytes(namespace).min(self.bytes);
        self.bytes -= bytes;
        self.account.charge(bytes)
    }

    /// Puts all of another charge of the same account to it.
    pub(crate) fn add(&mut self, other: &mut Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts all of it as written.
    pub(crate) fn spend(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.account.state.lock().budget.settle(bytes, bytes, self.account.clock.now());
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.account.state.lock().budget.settle(self.bytes, 0, self.account.clock.now());
        }
    }
}

/// Most that one page of `namespace` may cost.
fn page_bound_bytes(namespace: &Namespace) -> u64 {
    page_cost_bytes(namespace.page_bytes())
}

fn page_cost_bytes(page_bytes: u64) -> u64 {
    let slot_bytes = page_bytes.next_multiple_of(BLOCK_BYTES) + BLOCK_BYTES;
    slot_bytes + PAGE_EXTRA_BYTES + PAGE_RISK_BYTES
}

/// What admission knows a page by.
pub(crate) fn fingerprint(key: &PageKey) -> u64 {
    let (head, _) = key.as_bytes().split_first_chunk().unwrap_or((&[0; 8], &[]));
    u64::from_le_bytes(*head)
}
